"""Signals that end a campaign of simulated runs, and those that are held back."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class CampaignSignals:
    """Within its block SIGINT raises KeyboardInterrupt, and SIGTERM SystemExit, wherever this process is.

    What a run calls may lose an exception, as the collector does with one that a finalizer raises, and SQLite with one
    of a file: `came` keeps it, and Python does not print it.
    """

    def __init__(self) -> None:
        self.came: BaseException | None = None
        self._before: dict[int, Any] = {}
        self._report_lost = sys.unraisablehook

    def __enter__(self) -> CampaignSignals:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as shells set it for background jobs
                self._before[number] = signal.signal(number, self._end)
        self._report_lost, sys.unraisablehook = sys.unraisablehook, self._lose
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._report_lost

    def _lose(self, lost: sys.UnraisableHookArgs) -> None:
        if self.came is None or lost.exc_value is not self.came:
            self._report_lost(lost)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.came = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
        raise self.came


@contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Hold back signals until the block ends. A process that is started within it never gets them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
