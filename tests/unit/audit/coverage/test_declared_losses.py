"""A loss of events that a node declared hides the events of its time, and not all that the node ever recorded."""

from __future__ import annotations

import pytest

from eventd.audit.coverage.coverage import find_coverage
from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary
from eventd.audit.segments.plan import LakePlan, NodeEpoch
from eventd.lake.layout import archived
from eventd.lake.manifest import LakeHead, Manifest, NodeState
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment


def segment(after: int, upto: int) -> Segment:
    """Return a segment of `events` whose rows were recorded at ten times their positions."""
    place = archived(Ledger.EVENTS, "n", "e", after, upto, day="2026-11-20")
    book = {"book": Ledger.EVENTS, "node": "n", "epoch": "e", "after": after, "upto": upto}
    times = (10 * after + 10, 10 * upto)
    return Segment(place, Manifest(**book, rows=1, bytes=1, sha256="", slots=None, times=times, written_at=0))


@pytest.mark.parametrize(("at", "covered"), [(50, True), (150, False), (199, False), (250, True)])
def test_events_of_another_time_are_sure_to_be_in_the_ledger(at: int, covered: bool) -> None:
    state = NodeState(node="n", epoch="e", instance="i", began_at=0, as_of=900, head=30, complete_until=900)
    lake = Survey(LakeHead(id="l", made_at=0), [state], [segment(0, 10), segment(10, 20), segment(20, 30)], [])
    gap = DeclaredGap("g", "", "e", 12, 15, "events_lost", 200)
    coverage = find_coverage(lake, LakePlan(), {NodeEpoch("n", "e"): [LedgerSummary(gaps=[gap])]}, {})
    assert coverage.covers("n", Ledger.EVENTS, 0, (at, at)) is covered
