"""Logs requests that this node could not serve, such as while its disk is full, without a line for each of them."""

from __future__ import annotations

import logging
from asyncio import get_running_loop

from eventd.errors import EventdError
from eventd.runtime.log_pause import PausedCount

logger = logging.getLogger("eventd.api")


class FailedRequests:
    """Logs failed requests once a minute for each route and code of an error, with their number."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], PausedCount] = {}

    def note(self, error: EventdError, route: str, request: str = "") -> None:
        """Count a failed request, and log it if no other with its route and code was logged within a minute.

        `request` is its id, if it has one.
        """
        added = self._counts.setdefault((route, error.code), PausedCount(lambda: get_running_loop().time()))
        if count := added.add(1):
            extra = {"route": route, "request": request, "code": error.code, "why": str(error), "count": count}
            logger.warning("request failed", extra={field: value for field, value in extra.items() if value})
