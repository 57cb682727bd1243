"""The page docs/operations/reliability.md: written by `python -m tests.reliability` from the figures in `kept`.

The tools that measure write these figures: `routerd-eventd simulate --report`, and `--output` of `tests.models`,
`tests.seeded_bugs`, `tests.chaos`, `tests.soak` and `tests.mutation`.
"""
