"""Rows that a ledger lacks hide the events of their time, and not all that the node ever recorded."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eventd.audit.coverage.coverage import find_coverage
from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary
from eventd.audit.segments.plan import LakePlan, NodeEpoch
from eventd.audit.verdicts.hidden_events import count_damaged
from eventd.lake.layout import archived
from eventd.lake.manifest import LakeHead, Manifest, NodeState, SegmentRange
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


STATE = NodeState(node="n", epoch="e", instance="i", began_at=0, as_of=900, head=30, complete_until=900)


@pytest.mark.parametrize(("at", "covered"), [(50, True), (101, False), (205, False), (250, True)])
@pytest.mark.parametrize("reason", ["its file was changed after it was written", "its rows have the times …"])
def test_the_manifest_of_an_unreadable_segment_does_not_move_what_it_hides(at: int, covered: bool, reason: str) -> None:
    damaged = segment(10, 20)
    damaged = Segment(damaged.place, replace(damaged.manifest, times=(10, 20), slots=(7, 7)))
    lake = Survey(LakeHead(id="l", made_at=0), [STATE], [segment(0, 10), damaged, segment(20, 30)], [])
    coverage = find_coverage(lake, LakePlan(), {}, {damaged.place.name: reason})
    assert coverage.covers("n", Ledger.EVENTS, 0, (at, at)) is covered


def test_a_ledger_of_which_retention_has_removed_all_rows_covers_nothing() -> None:
    emptied = replace(STATE, segments={Ledger.RECEIPTS: SegmentRange(after=30, upto=30)})
    lake = Survey(LakeHead(id="l", made_at=0), [emptied], [segment(0, 30)], [])
    coverage = find_coverage(lake, LakePlan(), {}, {})
    assert not coverage.is_whole("n", (500, 600))
    assert coverage.covers("n", Ledger.EVENTS, 0, (500, 600))


def test_rows_before_a_segment_of_an_earlier_time_are_not_of_the_requested_hours() -> None:
    damaged = segment(0, 10)
    lake = Survey(LakeHead(id="l", made_at=0), [STATE], [damaged, segment(10, 20), segment(20, 30)], [])
    unreadable = {damaged.place.name: "its file cannot be read"}
    assert count_damaged(lake, unreadable, 111) == {}, "the segment after it begins at 110"
    assert count_damaged(lake, unreadable, 110) == {"n": 1}
    unreadable |= {segment(10, 20).place.name: "its file is missing"}
    assert count_damaged(lake, unreadable, 111) == {"n": 2}, "the next one that can be read begins at 210"
