"""Counts and times of the writer since the process began."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

BOUNDS = (50, 100, 250, 500, 1_000, 5_000, 10_000, 50_000, 100_000)
"""Upper bounds of the buckets of flush times, in microseconds."""


class WriterStats:
    """Counts of one writer. Times in microseconds."""

    def __init__(self) -> None:
        self.transactions = 0
        self.records = 0
        self.bytes = 0
        self.flushes = 0
        self.flush_micros = 0
        self.flushes_within = [0] * (len(BOUNDS) + 1)
        """Flushes by the first of `BOUNDS` that their time does not exceed; the last counts those that exceed all."""
        self.waiting_peak = 0
        self.trouble = ""
        """Why the last transaction failed as a whole; empty if it did not."""

    @property
    def failing(self) -> bool:
        """Return whether the last transaction failed as a whole and no `EventLog.try_writing` has succeeded since."""
        return bool(self.trouble)

    def queued(self, waiting: int) -> None:
        """Raise the peak of waiting units to this number, if it is higher."""
        self.waiting_peak = max(self.waiting_peak, waiting)

    def done(self, sizes: Sequence[tuple[int, int]], flush: float | None) -> None:
        """Count a transaction that wrote blocks of these `sizes` (records, bytes), and clear `trouble`.

        `flush`: the seconds that it waited for the disk; None: it was not flushed.
        """
        self.trouble = ""
        self.transactions += 1
        self.records += sum(records for records, _ in sizes)
        self.bytes += sum(size for _, size in sizes)
        if flush is not None:
            micros = round(flush * 1_000_000)
            self.flushes += 1
            self.flush_micros += micros
            self.flushes_within[bisect_left(BOUNDS, micros)] += 1
