"""Every benchmark of the developers can be imported: nothing else runs them between two releases."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.support.source import ROOT

PROGRAMS = sorted((ROOT / "tests/bench").rglob("*.py"))


@pytest.mark.parametrize("name", [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PROGRAMS])
def test_it_loads(name: str) -> None:
    import_module(name)
