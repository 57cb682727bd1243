"""Follows changes of topics, routers, API keys and Routemaster subscriptions by other processes.

One read covers all changes before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from eventd.api.keys.valid_keys import Keys
from eventd.egress.routers.pump import Routing
from eventd.errors import EventdError
from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Head
from eventd.store.rows.keys import read_keys

REST_SECONDS: Final = 0.05
"""Seconds between two reads: each read costs several queries, and the database may be busy with the changes themselves.
"""
BROKEN_SECONDS: Final = 1.0
"""Seconds until the next read after one that failed."""

logger = logging.getLogger("eventd.node")


class TopicChanges:
    """Reads API keys and routers again, and wakes readers of topics, when another process has changed any of these.

    `subscriptions_changed` is called, too: a subscription to the Routemaster surface may have changed.
    Call `look` with every head that is read; one task runs `run_for_ever`. `trouble` is the reason why the last read
    failed, empty if it succeeded.
    """

    def __init__(
        self, log: EventLog, keys: Keys, routing: Routing, subscriptions_changed: Callable[[], None] = lambda: None
    ) -> None:
        self.trouble = ""
        self._log = log
        self._keys = keys
        self._routing = routing
        self._subscriptions_changed = subscriptions_changed
        self._found = 0
        self._sign = asyncio.Event()

    def look(self, head: Head) -> None:
        """Schedule a read if the head shows a change that this process does not know."""
        if not self._log.topic_versions.knows(head.topics_version):
            self._found = head.topics_version
            self._sign.set()

    async def run_for_ever(self) -> None:
        """Read changes whenever a read is scheduled, including those that were made during the last read, until
        cancelled.

        A failure is logged once and retried.
        """
        while True:
            await self._sign.wait()
            try:
                await self._read()
                self.trouble = ""
            except EventdError as error:
                if self.trouble != str(error):
                    logger.error("following topics failed", extra={"error": str(error)})
                self.trouble = str(error)
            await self._log.clock.sleep(BROKEN_SECONDS if self.trouble else REST_SECONDS)

    async def _read(self) -> None:
        version = self._found  # a change during the reads raises `_found`, and the next turn reads again
        await self._keys.take_over(lambda: self._log.database.read(read_keys))
        self._routing.changed()
        self._subscriptions_changed()
        self._log.wakeups.touch_all()
        self._log.topic_versions.read(version)
        if self._found == version:
            self._sign.clear()
