"""The latest time at which erased rows may have been recorded, by the reference clock: an acknowledgement made before
that time does not cover them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from eventd.audit.coverage.clock_shifts import ClockShift
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.coverage.holes import EARLIEST, LATEST
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.segments.cells import HOUR
from eventd.audit.segments.plan import LakePlan
from federation.event import micros


class RecordingTimes:
    """The times of the erased rows of a lake."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._ends: dict[tuple[str, str, int, int], int] = {}
        for (node, group), holes in coverage.holes.items():
            for hole in holes:
                key = (node, group, hole.first, hole.last)
                self._ends[key] = max(hole.times[1], self._ends.get(key, EARLIEST))

    def until(self, finding: Finding) -> int:
        """Return when the last rows of an erased hole may have been recorded; the beginning of time for other findings.

        For a hole at the end of a ledger, this is the time up to which its node has reported. Erased rows without a
        hole were recorded after their events were observed; if it is unknown when that was, this is the end of time.
        """
        if finding.kind is not Kind.ERASED or finding.peer:
            return EARLIEST
        end = self._ends.get((finding.source, finding.group, finding.first, finding.last))
        if end is None:
            times = [micros(datetime.fromisoformat(one.at)) if one.at else LATEST for one in finding.evidence]
            end = max(times, default=LATEST)
        return min(LATEST, end + lateness(self._coverage.plan, self._coverage.shifts, finding.source, end // HOUR))


def lateness(plan: LakePlan, shifts: Mapping[str, ClockShift], node: str, hour: int) -> int:
    """Return by how many microseconds a node's rows of an hour may be later than its clock says; at least 0.

    That is the most by which its clock may be behind the reference clock, measured with any peer, in the nearest hour
    with a known difference and in the last such hour. A clock that is ahead makes no row earlier, because the receipts
    that show this may be edited.
    """
    found = [0]
    if (own := shifts.get(node)) is not None:
        found.append(own.error - own.ahead)
    for one, peer in plan.clocks:
        if one == node:
            near, there = plan.skew_between(node, peer, hour), shifts.get(peer, ClockShift(0, 0))
            found.append(max(near.low, near.high) - there.ahead + there.error)
    return max(found)
