"""Pairs of kinds of faults: they meet when one begins soon after the other."""

from __future__ import annotations

import pytest

from eventd.simulation.faults.fault import LACKING, SQLITE, FaultKind
from eventd.simulation.faults.pairs import MEET_SECONDS, pairs_on, pairs_that_met


def test_kinds_meet_if_one_begins_soon_after_the_other() -> None:
    met = pairs_that_met([(1.0, "kill"), (2.0, "clock"), (2.0 + MEET_SECONDS + 0.1, "cut")])
    assert met == ["clock + kill"]
    assert set(met) <= set(pairs_on(SQLITE))


@pytest.mark.parametrize("store", LACKING)
def test_a_pair_is_counted_once_and_has_two_kinds(store: str) -> None:
    assert pairs_that_met([(1.0, "kill"), (1.5, "kill"), (2.0, "wall"), (2.5, "kill")]) == ["kill + wall"]
    kinds = len(FaultKind) - len(LACKING[store])
    assert len(pairs_on(store)) == kinds * (kinds - 1) / 2
