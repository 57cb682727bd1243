"""Nodes without ledgers of which others hold events, or from which they recorded batches."""

from __future__ import annotations

from eventd.audit.coverage.absent_ledgers import pairs_without_ledgers
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.segments.cells import HOUR, Measure
from eventd.audit.segments.ledger_summaries import KeyRequests, LedgerSummary
from eventd.audit.segments.plan import LakePlan, NodeEpoch
from eventd.audit.segments.row_marks import PairKey

COVERAGE = Coverage(LakePlan(), until={"a": HOUR, "b": HOUR})


def requests(of: str, at: int) -> dict[NodeEpoch, list[LedgerSummary]]:
    """Return the summary of a ledger of `b` with a request of a node."""
    return {NodeEpoch("b", "e"): [LedgerSummary(keys=[KeyRequests(of, "g", "k", "v2", 1, at, at)])]}


def test_a_node_that_others_hold_events_of_is_found_if_it_has_no_ledgers() -> None:
    rows = [{"group": "g", "source": source, "peer": "b", "what": Measure.HELD} for source in ("a", "old")]
    assert pairs_without_ledgers(rows, {}, COVERAGE, (0, 1)) == {PairKey("g", "old", "b")}


def test_a_node_that_only_relays_is_found_by_its_batches_of_the_requested_hours() -> None:
    assert pairs_without_ledgers([], requests("hub", HOUR), COVERAGE, (1, 2)) == {PairKey("g", "hub", "b")}
    assert pairs_without_ledgers([], requests("hub", HOUR - 1), COVERAGE, (1, 2)) == set()
    assert pairs_without_ledgers([], requests("a", HOUR), COVERAGE, (1, 2)) == set()


def test_a_peer_that_only_receives_lacks_no_ledger_that_would_show_more() -> None:
    rows = [{"group": "g", "source": "a", "peer": "old", "what": Measure.SENT}]
    assert pairs_without_ledgers(rows, requests("b", HOUR), COVERAGE, (0, 2)) == set()
