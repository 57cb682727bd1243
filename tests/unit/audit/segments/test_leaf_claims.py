"""The leaves that rows of other nodes claim are kept by range of a task, whatever senders state."""

from __future__ import annotations

import pytest

from eventd.audit.segments import tree_leaves
from eventd.audit.segments.leaf_comparison import LEAVES
from eventd.audit.segments.tree_leaves import LeafClaims, LeafTerms, find_leaves
from eventd.lake.schema import Ledger
from tests.support.ledger_rows import columns_of, event_row

TERMS = LeafTerms((), (), 100.0, b"key")


def claims_of(*places: tuple[str, int]) -> list[LeafClaims]:
    """Return the claims of a segment whose rows have these trees and leaves."""
    rows = [event_row(at, own=False, tree=tree, leaf=leaf) for at, (tree, leaf) in enumerate(places, 1)]
    return find_leaves(columns_of(Ledger.EVENTS, rows), TERMS).claims


def test_two_leaves_far_apart_do_not_claim_what_is_between_them() -> None:
    assert claims_of(("t", 9), ("t", 3 * LEAVES), ("u", 5), ("t", 8), ("t", LEAVES - 1)) == [
        LeafClaims("g", "t", 8, LEAVES - 1),
        LeafClaims("g", "t", 3 * LEAVES, 3 * LEAVES),
        LeafClaims("g", "u", 5, 5),
    ]
    assert claims_of() == []


def test_of_too_many_claims_those_of_the_most_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_leaves, "MOST_CLAIMED", 2)
    single = [("t", LEAVES * at) for at in range(1, 9)]
    assert claims_of(*single, ("u", 5), ("u", 6), ("u", 7)) == [
        LeafClaims("g", "t", LEAVES, LEAVES),
        LeafClaims("g", "u", 5, 7),
    ]
