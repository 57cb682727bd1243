"""Logs the deliveries to a subscriber of the Routemaster surface, as Routemaster does."""

from __future__ import annotations

import logging
from collections.abc import Mapping

logger = logging.getLogger("eventd.callbacks")


class SubscriberLog:
    """Logs each delivery, and a failed one when it is the first or has another reason than the one before.

    `detail` is the line that Routemaster writes. `handle` stands for the subscriber.
    """

    def __init__(self, handle: str) -> None:
        self._handle = handle
        self._reason = ""

    def note_delivery(self, events: int) -> None:
        """Note that this number of events was acknowledged."""
        self._reason = ""
        logger.info("events delivered", extra={"detail": self._line("delivered", events), **self._about(events)})

    def note_failure(self, events: int, reason: str, error: str) -> None:
        """Note that a batch with this number of events was not acknowledged."""
        if reason == self._reason:
            return
        self._reason = reason
        about = {"detail": self._line("failed to deliver", events), "reason": reason, "error": error}
        logger.warning("events not delivered", extra={**about, **self._about(events)})

    def _about(self, events: int) -> Mapping[str, object]:
        return {"subscriber": self._handle, "count": events}

    def _line(self, what: str, events: int) -> str:
        return f"{what} {events} events to '{self._handle}'"
