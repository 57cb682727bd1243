"""Scales of charts: the coordinates of durations and moments, and where to draw ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from eventd.audit.report.figures import DAY, HOUR, MINUTE
from federation.event import FIRST_TIME, LAST_TIME

SECOND = 1_000_000
"""Microseconds per second; moments are in microseconds."""
_MICROSECOND = timedelta(microseconds=1)
_STEPS = tuple(
    seconds * SECOND
    for seconds in (
        *(1, 5, 15, 30),
        *(MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE),
        *(HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR),
        *(DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 365 * DAY),
    )
)


class Tick(NamedTuple):
    """A line across a chart, and its label, empty for none; `anchor` is start, middle or end."""

    x: float
    label: str
    anchor: str


def coordinate(value: float) -> str:
    """Format a coordinate with at most two decimals, which is fine enough for a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


@dataclass(frozen=True, slots=True)
class LogScale:
    """A logarithmic scale that maps durations (any positive values) to coordinates from `left` to `right`."""

    first: float
    last: float
    left: float
    right: float

    def at(self, value: float) -> float:
        """Return the coordinate of a value; values outside the scale are placed at its edge."""
        inside = min(max(value, self.first), self.last)
        share = math.log(inside / self.first) / math.log(self.last / self.first)
        return self.left + share * (self.right - self.left)

    def ticks(self) -> list[float]:
        """Return the powers of ten on the scale; if they are few, also twice and five times each."""
        steps = (1, 2, 5) if self.last / self.first < 10**2.5 else (1,)
        powers = range(math.floor(math.log10(self.first)), math.ceil(math.log10(self.last)) + 1)
        marks = (step * 10.0**power for power in powers for step in steps)
        return [mark for mark in marks if self.first * (1 - 1e-9) <= mark <= self.last * (1 + 1e-9)]


@dataclass(frozen=True, slots=True)
class TimeScale:
    """A scale of moments (microseconds since 1970) between two pixels, with round times of a time zone."""

    first: int
    last: int
    left: float
    right: float
    zone: tzinfo = UTC

    def at(self, moment: float) -> float:
        """Return the pixel of a moment; moments outside the scale are placed at its edge."""
        inside = min(max(moment, self.first), self.last)
        return self.left + (inside - self.first) / max(self.last - self.first, 1) * (self.right - self.left)

    def ticks(self, most: int = 8) -> list[tuple[int, str]]:
        """Return up to `most` + 1 round moments, each with its label: the time of day, or at midnight the date."""
        length = max(self.last - self.first, 1)
        step = next(
            (step for step in _STEPS if length / step <= most), _STEPS[-1] * math.ceil(length / _STEPS[-1] / most)
        )
        # On the first and the last day of the calendar, a time of the zone may be outside of it.
        begin = min(max(self.first, FIRST_TIME + DAY * SECOND), LAST_TIME - DAY * SECOND)
        ahead = datetime.fromtimestamp(begin // SECOND, self.zone).utcoffset() or timedelta()
        shown = -(-max(self.first + ahead // _MICROSECOND, FIRST_TIME) // step) * step  # by a clock of the zone
        found = []
        while shown <= LAST_TIME and (moment := self._moment(shown)) <= self.last:
            found.append((moment, _label(shown, step)))
            shown += step
        return found

    def _moment(self, shown: int) -> int:
        """Return the moment at which a clock of the zone shows this time."""
        time = datetime.fromtimestamp(shown // SECOND, UTC).replace(tzinfo=self.zone)
        return int(time.timestamp()) * SECOND


def _label(moment: int, step: int) -> str:
    time = datetime.fromtimestamp(moment // SECOND, UTC)
    if step >= DAY * SECOND:
        return f"{time:%Y-%m-%d}" if step >= 28 * DAY * SECOND else f"{time:%b} {time.day}"
    if moment % (DAY * SECOND) == 0:
        return f"{time:%b} {time.day}"
    return f"{time:%H:%M}" if step >= MINUTE * SECOND else f"{time:%H:%M:%S}"
