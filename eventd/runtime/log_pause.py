"""Limits how often log lines repeat whose causes come from clients or other nodes."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

LOG_SECONDS: Final = 60.0
"""Minimum seconds between two log lines of one kind."""
MOST_REASONS: Final = 16
"""Maximum number of lines of one kind, with different reasons, in that time."""


class LogPause:
    """Allows one log line of each kind in `LOG_SECONDS`. `monotonic` returns seconds. Kinds must be few."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._logged: dict[str, float] = {}
        self._reasons: dict[str, dict[int, float]] = {}  # by kind, when each reason, by its checksum, was logged

    def is_over(self, kind: str = "") -> bool:
        """Return whether a line of this kind may be logged now; if so, its pause begins."""
        now = self._monotonic()
        if now - self._logged.get(kind, float("-inf")) < LOG_SECONDS:
            return False
        self._logged[kind] = now
        return True

    def is_over_for(self, reason: str, kind: str = "") -> bool:
        """Return whether a line of this kind and reason may be logged now: each reason has a pause of its own.

        Reasons may be many, as clients choose them: a kind has `MOST_REASONS` lines in a pause.
        """
        now, named = self._monotonic(), zlib.crc32(reason.encode())
        known = {each: at for each, at in self._reasons.get(kind, {}).items() if now - at < LOG_SECONDS}
        self._reasons[kind] = known
        if named in known or len(known) >= MOST_REASONS:
            return False
        known[named] = now
        return True


class PausedCount:
    """Sums what the log lines of one kind count, while their pause leaves lines out. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._pause = LogPause(monotonic)
        self._count = 0

    def add(self, count: int) -> int:
        """Return the sum that a line has to name now; 0 if there is nothing to add, or none is allowed yet."""
        self._count += count
        if not count or not self._pause.is_over():
            return 0
        counted, self._count = self._count, 0
        return counted
