"""Seqs without a row are erased ones, except for as many as retention has removed or the node declares as lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from eventd.audit.coverage.holes import Hole, HoleIndex, find_holes
from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary
from eventd.audit.segments.plan import NodeEpoch
from eventd.audit.segments.seq_runs import SeqRun
from eventd.lake.layout import archived
from eventd.lake.manifest import GroupState, LakeHead, LostRows, Manifest, NodeState, SegmentRange
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

END = 200
"""The last position of the log."""
EVICTED = GroupState(group="g", last_seq=100, evicted_seq=100)


def run(first: int, last: int, position: int, group: str = "g") -> SeqRun:
    """Return a run of events that begins at a position of the log; each was recorded at its position as a time."""
    end = position + last - first
    return SeqRun(group, first, last, position, end, position, end)


def gap(after: int, upto: int, group: str = "g") -> DeclaredGap:
    return DeclaredGap(group, "", "e", after, upto, "events_lost", 0)


def holes(
    runs: Sequence[SeqRun], gaps: Iterable[DeclaredGap] = (), group: GroupState = EVICTED, lost: Iterable[LostRows] = ()
) -> list[Hole]:
    """Return the holes of a node's only epoch, whose `events` are in one segment."""
    place = archived(Ledger.EVENTS, "n", "e", 0, END, day="2026-11-20")
    book = {"book": Ledger.EVENTS, "node": "n", "epoch": "e", "after": 0, "upto": END}
    manifest = Manifest(**book, rows=1, bytes=1, sha256="", slots=None, times=None, written_at=END, lost=(*lost,))
    promised = {Ledger.EVENTS: SegmentRange(after=0, upto=END)}
    times = {"began_at": 0, "as_of": END, "complete_until": END}
    state = NodeState(node="n", epoch="e", instance="i", head=END, segments=promised, groups=(group,), **times)
    lake = Survey(LakeHead(id="l", made_at=0), [state], [Segment(place, manifest)], [])
    return find_holes(lake, {place.name: runs}, {NodeEpoch("n", "e"): [LedgerSummary(gaps=[*gaps])]})


def seqs(found: Iterable[Hole]) -> list[tuple[int, int, int]]:
    """Return the first and last seq of each hole, and the number of its events."""
    return [(hole.first, hole.last, hole.events) for hole in found]


def test_a_declared_gap_excuses_the_events_between_its_positions() -> None:
    assert holes([run(1, 10, 1), run(21, 100, 21)], [gap(10, 20)]) == []


def test_a_loss_that_a_segment_names_excuses_the_events_before_the_gap_ledger_has_it() -> None:
    lost = LostRows("g", "", "e", 10, 20, 0, "events_lost")
    assert holes([run(1, 10, 1), run(21, 100, 21)], lost=[lost]) == []
    assert seqs(holes([run(1, 10, 1), run(26, 100, 26)], lost=[lost])) == [(21, 25, 5)]


def test_events_erased_beside_a_declared_gap_are_found() -> None:
    after, before = [run(1, 10, 1), run(26, 100, 26)], [run(1, 5, 1), run(21, 100, 21)]
    assert seqs(holes(after, [gap(10, 20)])) == [(21, 25, 5)]
    assert seqs(holes(before, [gap(10, 20)])) == [(6, 10, 5)]
    assert seqs(holes([run(1, 5, 1), run(26, 100, 26)], [gap(10, 20)])) == [(6, 25, 10)]


def test_events_erased_between_two_declared_gaps_are_found() -> None:
    assert seqs(holes([run(1, 5, 1), run(31, 100, 31)], [gap(5, 10), gap(20, 30)])) == [(11, 20, 10)]


def test_the_gap_of_another_group_excuses_nothing() -> None:
    assert seqs(holes([run(1, 10, 1), run(21, 100, 21)], [gap(10, 20, "other")])) == [(11, 20, 10)]


def test_positions_at_which_another_group_has_events_excuse_nothing() -> None:
    runs = [run(1, 10, 1), run(1, 15, 11, "other"), run(18, 100, 31)]
    assert seqs(holes(runs, [gap(10, 30)])) == [(16, 17, 2)]
    # What other positions held is not known: it may have been of the group.
    assert holes([runs[0], runs[2]], [gap(10, 30)]) == []


def test_events_after_the_last_evicted_one_are_found_and_the_evicted_ones_are_not_counted() -> None:
    evicted = GroupState(group="g", last_seq=100, evicted_seq=15)
    runs = [run(1, 10, 1), run(21, 100, 21)]
    assert seqs(holes(runs, [gap(10, 15)], evicted)) == [(16, 20, 5)]
    assert seqs(holes(runs, [gap(10, 20)], evicted)) == [(16, 20, 5)]
    assert seqs(holes(runs, [], evicted)) == [(11, 20, 10)]


def test_the_first_events_of_a_group_that_was_declared_again_are_found() -> None:
    again = GroupState(group="g", last_seq=30, evicted_seq=0)
    found = holes([run(1, 40, 1), run(4, 30, 44)], (), again)
    assert [(hole.first, hole.last, hole.after, hole.upto) for hole in found] == [(1, 3, 40, 43)]
    assert holes([run(1, 40, 1), run(1, 30, 41)], (), again) == []


def test_what_the_state_says_of_a_group_is_not_about_one_of_the_same_name_that_was_deleted_before() -> None:
    again = GroupState(group="g", last_seq=30, evicted_seq=5)
    runs = [run(1, 10, 1), run(21, 40, 21), run(1, 30, 41)]
    assert holes(runs, [gap(10, 20)], again) == []
    assert seqs(holes(runs, (), again)) == [(11, 20, 10)]


NUMBERS = st.integers(0, 30)
SPANS = st.tuples(NUMBERS, st.integers(0, 5)).map(lambda one: (one[0], one[0] + one[1]))


@given(st.lists(st.tuples(SPANS, SPANS), max_size=12), NUMBERS, SPANS)
def test_the_first_hole_with_a_seq_or_of_a_time_is_found_also_if_seqs_or_the_clock_went_back(
    spans: list[tuple[tuple[int, int], tuple[int, int]]], seq: int, during: tuple[int, int]
) -> None:
    known = [Hole("n", "e", "g", *seqs, 1, 0, 99, times) for seqs, times in spans]
    found = HoleIndex(known)
    with_seq = next((at for at, hole in enumerate(known) if hole.first <= seq <= hole.last), None)
    assert found.with_seq(seq) == with_seq
    overlap = (hole for hole in known if hole.times[0] <= during[1] and during[0] <= hole.times[1])
    assert found.during(during) == next(overlap, None)


def test_of_many_holes_few_are_looked_at() -> None:
    class Counted(list[Hole]):
        looks = 0

        def __getitem__(self, at: object) -> Hole:  # type: ignore[override]
            self.looks += 1
            return super().__getitem__(at)  # type: ignore[call-overload, no-any-return]

    known = Counted(Hole("n", "e", "g", n, n, 1, n, n, (n, n)) for n in range(0, 2000, 2))
    found = HoleIndex(known)
    assert [found.with_seq(n) for n in range(1990, 2000)] == [995, None, 996, None, 997, None, 998, None, 999, None]
    assert [found.during((n, n)) for n in range(1, 100, 2)] == [None] * 50
    assert known.looks <= 60
