"""Notices when other processes have written to the database, and when the database can be read and written again after
a failure."""

from __future__ import annotations

import logging
from contextlib import suppress

from eventd.dynamic.effective import Following
from eventd.errors import EventdError
from eventd.log.core.eventlog import EventLog
from eventd.node.reconciler import Reconciler
from eventd.node.topic_changes import TopicChanges
from eventd.runtime.clock import Clock

BROKEN_SECONDS = 1.0
"""Seconds until the next attempt after the database could not be read or written."""

logger = logging.getLogger("eventd.node")


class ChangeFollower:
    """Passes on changes of the log's head: new events raise its position, new declarations its version.

    `trouble`: why the database cannot be followed at present; empty if it can.
    """

    def __init__(
        self, log: EventLog, following: Following, topics: TopicChanges, reconciler: Reconciler, clock: Clock
    ) -> None:
        self.trouble = ""
        self._log = log
        self._following = following
        self._topics = topics
        self._reconciler = reconciler
        self._clock = clock

    async def follow_changes(self) -> None:
        """Follow the changes of the database for ever."""
        source = self._log.database.change_source(self._clock.sleep)
        try:
            while True:
                if not self.trouble:  # what failed is retried even without a new change
                    await source.wait()
                try:
                    await self._look_around()
                    self.trouble = ""
                except EventdError as error:
                    if self.trouble != str(error):
                        logger.error("database unavailable", extra={"error": str(error)})
                    self.trouble = str(error)
                    await self._clock.sleep(BROKEN_SECONDS)
                except Exception as error:  # a defect: the supervisor runs this again
                    self.trouble = f"{type(error).__name__} in this node; see its log"
                    raise
        finally:
            await source.close()

    async def _look_around(self) -> None:
        head = await self._log.look_around()
        self._following.look(head)
        self._topics.look(head)
        if head.registry_version != self._reconciler.version:
            await self._reconciler.apply()

    async def follow_writing(self) -> None:
        """After a failed write, test whether writing works again: clients may wait for readiness before they write."""
        while True:
            await self._clock.sleep(BROKEN_SECONDS)
            if self._log.work.failing:
                with suppress(EventdError):
                    await self._log.try_writing()
