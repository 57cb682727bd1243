"""The rare branches that a simulation counts: each is one that nodes have."""

from __future__ import annotations

import pytest

from eventd.observe.metrics import Metrics
from eventd.simulation.checks.branches import RARE
from eventd.simulation.checks.calls import CALLS
from tests.support.source import ROOT


@pytest.mark.parametrize("branch", RARE)
def test_what_is_counted_for_a_branch_exists(branch: str) -> None:
    """A metric or an operation that was renamed would count nothing any more."""
    families = {family.name.removeprefix("routerd_eventd_") for family in Metrics().registry.collect()}
    for counted in RARE[branch]:
        what, _, name = counted.partition(" ")
        if what == "call":
            assert callable(getattr(CALLS[name].owner, CALLS[name].name))
        elif what in ("journal", "disk", "session"):
            continue  # of the simulation itself
        elif what == "operation":
            source = (file.read_text() for file in (ROOT / "eventd" / "log").rglob("*.py"))
            assert any(f"def {name}(" in text for text in source)
        else:
            assert what in families


def test_the_page_explains_each_branch() -> None:
    page = (ROOT / "docs/operations/simulation.md").read_text()
    assert [branch for branch in RARE if f"`{branch}`" not in page] == []
