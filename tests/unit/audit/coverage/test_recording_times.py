"""Erased rows count as recorded as late as the clocks of all nodes allow: no acknowledgement covers later ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from eventd.audit.coverage.clock_shifts import ClockShift
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.coverage.holes import EARLIEST, LATEST, Hole
from eventd.audit.coverage.recording_times import RecordingTimes
from eventd.audit.report.findings import EventEvidence, Finding, Kind
from eventd.audit.segments.plan import ClockOffset, LakePlan
from eventd.runtime.clock import SECOND
from federation.event import format_time

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
NOON = 500_004 * HOUR
HOLE = Finding(Kind.ERASED, "g", "a", "", 10, 12, (), count=3)


def until(
    finding: Finding = HOLE,
    *,
    shifts: Mapping[str, ClockShift] | None = None,
    clocks: dict[tuple[str, str], list[ClockOffset]] | None = None,
) -> int:
    """Return when the rows of a finding were recorded. The lake has one hole, which ends at noon."""
    hole = Hole("a", "e", "g", 10, 12, 3, 9, 13, (NOON - HOUR, NOON))
    coverage = Coverage(LakePlan(clocks=clocks or {}), holes={("a", "g"): [hole]}, shifts=shifts or {})
    return RecordingTimes(coverage).until(finding)


def offsets(ahead: int, hour: int = NOON // HOUR) -> dict[tuple[str, str], list[ClockOffset]]:
    return {("a", "b"): [ClockOffset(hour, ahead - SECOND, ahead + SECOND)]}


def test_without_known_clocks_the_end_of_the_hole_counts() -> None:
    assert until() == NOON


def test_rows_of_a_clock_that_is_behind_were_recorded_later() -> None:
    assert until(shifts={"a": ClockShift(-3 * HOUR, 2 * SECOND)}) == NOON + 3 * HOUR + 2 * SECOND


def test_rows_of_a_clock_that_is_ahead_are_not_taken_for_earlier() -> None:
    assert until(shifts={"a": ClockShift(3 * HOUR, SECOND)}) == NOON


def test_the_clock_of_the_hour_counts_and_not_only_the_one_of_today() -> None:
    late = offsets(2 * HOUR)
    assert until(clocks=late, shifts={"a": ClockShift(0, 0), "b": ClockShift(0, 0)}) == NOON + 2 * HOUR + SECOND
    assert until(clocks=late, shifts={"b": ClockShift(2 * HOUR, 5 * SECOND)}) == NOON + 6 * SECOND, "b is ahead"


def test_bounds_that_contradict_each_other_count_as_the_later_one() -> None:
    assert until(clocks={("a", "b"): [ClockOffset(NOON // HOUR, HOUR, -HOUR)]}) == NOON + HOUR


def test_the_peer_by_which_the_rows_are_latest_counts() -> None:
    clocks = offsets(HOUR) | {
        ("a", "c"): [ClockOffset(NOON // HOUR, 0, 4 * HOUR)],
        ("c", "b"): offsets(9 * HOUR)["a", "b"],
    }
    assert until(clocks=clocks) == NOON + 4 * HOUR


@pytest.mark.parametrize("at", [NOON, 0])
def test_rows_without_a_hole_are_as_late_as_their_events_by_the_clock_of_their_node(at: int) -> None:
    evidence = (EventEvidence(id="e", at=format_time(at)),)
    lone = Finding(Kind.ERASED, "g", "a", "", 20, 20, ("e",), evidence=evidence)
    assert until(lone, shifts={"a": ClockShift(-HOUR, 0)}) == at + HOUR
    assert until(Finding(Kind.ERASED, "g", "a", "", 20, 20, ("e",)), shifts={"a": ClockShift(-HOUR, 0)}) == LATEST


def test_other_findings_are_not_of_a_time() -> None:
    assert until(Finding(Kind.MISSING, "g", "a", "b", 10, 12, ("e",))) == EARLIEST


def test_each_hole_is_looked_up_once_however_many_there_are() -> None:
    """10,000 holes have 10,000 times, and none is compared with another."""
    looks: list[int] = []

    class Counted(int):
        def __eq__(self, other: object) -> bool:
            looks.append(int(self))
            return int.__eq__(self, other)

        __hash__ = int.__hash__

    holes = [Hole("a", "e", "g", Counted(at), at, 1, at, at, (at, at)) for at in range(10_000)]
    times = RecordingTimes(Coverage(LakePlan(), holes={("a", "g"): holes}))
    found = [times.until(Finding(Kind.ERASED, "g", "a", "", at, at, (), count=1)) for at in range(10_000)]
    assert found == [*range(10_000)]
    assert len(looks) <= 40_000
