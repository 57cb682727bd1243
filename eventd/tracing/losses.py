"""Whether a collector takes the spans of this process: logged when that changes, and seldom while it lasts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

REPEAT_SECONDS: Final = 3600.0
"""Seconds after which a loss that lasts, or one that returns, is logged again."""

logger = logging.getLogger("eventd.tracing")


class SpanLosses:
    """Notes the outcome of each export. `reason` says why the last one failed; it is empty if it succeeded."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._logged_at: float | None = None
        self.reason = ""

    def failed(self, reason: str) -> None:
        """Note that spans were not taken. `reason` is a class of errors or a status, never a URL, which may hold a
        secret."""
        self.reason, now = reason, self._monotonic()
        if self._logged_at is None or now - self._logged_at >= REPEAT_SECONDS:
            self._logged_at = now
            logger.warning("spans are lost", extra={"reason": reason})

    def succeeded(self) -> None:
        """Note that spans were taken."""
        self.reason = ""
