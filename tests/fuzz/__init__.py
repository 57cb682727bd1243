"""Fuzzing of every parser: functions of bytes, each with a property that must hold for any input.

`python -m tests.fuzz TARGET` guides inputs by coverage, with atheris, which `make venv-fuzz` installs. The corpora
that it found are replayed without it, by `test_corpora`.
"""
