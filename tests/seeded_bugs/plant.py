"""A plugin of pytest: `-p tests.seeded_bugs.plant --seeded-bug NAME` runs tests of the product with a bug in it."""

from __future__ import annotations

import pytest

from tests.seeded_bugs.table import TABLE

_PATCH = pytest.MonkeyPatch()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeded-bug", default="", help="the name of the bug that the product has in this run")


def pytest_configure(config: pytest.Config) -> None:
    named = config.getoption("--seeded-bug")
    [patch] = [bug.patch for bug in TABLE if bug.name == named and bug.patch is not None]
    patch(_PATCH)


def pytest_unconfigure() -> None:
    _PATCH.undo()
