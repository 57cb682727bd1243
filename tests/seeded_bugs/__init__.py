"""Seeded bugs: patches of the product that the tests of reliability must notice, each under a number of its own.

`python -m tests.seeded_bugs` searches for each of them; see `table` for what they are.
"""
