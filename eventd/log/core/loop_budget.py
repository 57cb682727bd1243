"""Decides whether a lone transaction may run in the thread of the loop, which everything else then waits for.

Two changes of threads take about as long as the flush of a short transaction. They are worth it only where the disk may
be slow. So the disk has to prove itself in the writer thread first, and a slow one is not trusted for a while: it holds
up the loop once for each pause, however often it is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SHORT: Final = 0.002
"""Seconds below which a flush is short."""
SLOW: Final = 0.005
"""Seconds from which a transaction in the loop is slow."""
TRUSTED: Final = 16
"""Number of short flushes from which the disk is trusted. One that is longer takes back `LONG_COSTS` of them."""
LONG_COSTS: Final = 4
DOUBTED: Final = 8
"""Number of short flushes at which a disk is not trusted any more."""
FIRST_PAUSE: Final = 10.0
"""Seconds for which the loop runs no transaction after a slow one; twice as many after each further one."""
LONGEST_PAUSE: Final = 300.0
CALM: Final = 600.0
"""Seconds after a slow transaction in which no other one in the loop is slow, and the pauses begin again."""


class LoopBudget:
    """Whether the loop may run a transaction now. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._credit = 0
        self._is_trusted = False
        self._pause = 0.0
        self._slow_at = float("-inf")

    @property
    def is_open(self) -> bool:
        """Return whether the loop may run a transaction: the disk is trusted, and no pause is under way."""
        return self._is_trusted and self._monotonic() >= self._slow_at + self._pause

    def note_flush(self, seconds: float) -> None:
        """Note how long a flush of the writer thread took."""
        if seconds >= SLOW:
            self.distrust()
        else:
            self._note(seconds)

    def note_loop(self, seconds: float) -> None:
        """Note how long a whole transaction in the loop took."""
        if seconds < SLOW:
            self._note(seconds)
            return
        now = self._monotonic()
        calm = now - self._slow_at >= CALM
        self._pause = FIRST_PAUSE if calm else min(2 * self._pause, LONGEST_PAUSE)
        self._slow_at = now
        self.distrust()

    def distrust(self) -> None:
        """Do not trust the disk until it has proved itself again: a flush was slow, or a transaction has failed."""
        self._credit = 0
        self._is_trusted = False

    def _note(self, seconds: float) -> None:
        self._credit += 1 if seconds < SHORT else -LONG_COSTS
        if self._credit >= TRUSTED:
            self._credit, self._is_trusted = TRUSTED, True
        elif self._credit < 0 or (self._is_trusted and self._credit <= DOUBTED):
            self.distrust()
