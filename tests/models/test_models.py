"""The models hold within small bounds, and notice each seeded bug."""

from __future__ import annotations

import pytest

from tests.models.bugs import ALL, SeededBug
from tests.models.spaces import SMALL, WALKS, Space


@pytest.mark.parametrize("space", SMALL, ids=lambda space: space.title)
def test_no_order_of_steps_breaks_an_invariant(space: Space) -> None:
    result = space.explore()
    assert result.found is None, str(result.found)
    assert result.whole


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.title)
def test_a_seeded_bug_is_found(bug: SeededBug) -> None:
    result = bug.explore()
    assert result.found is not None, f"not in {result.states} states"
    assert result.found.invariant == bug.invariant, str(result.found)


def test_random_walks_break_no_invariant() -> None:
    for walks in WALKS:
        result = walks._replace(walks=100).explore(seed=1)
        assert result.found is None, str(result.found)
