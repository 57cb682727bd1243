"""The log as its users see it: append, read, wait, settle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from eventd.clock import Clock
from eventd.errors import EventdError
from eventd.log.appender import Appender
from eventd.log.commit import Committed, Unit
from eventd.log.cursors import Postponement, Step
from eventd.log.flushes import Flushes
from eventd.log.head import ensure_topic, read_head, recover, renew_epoch_of, settle_unsynced
from eventd.log.lines import Lines, Wanted, fill_lines, read_lines
from eventd.log.matching import Concern, Found, find_in, read_matching
from eventd.log.reading import Stretch, read_page
from eventd.log.tail import Recent, Tail
from eventd.log.units import Effect, Postpone, Publish, Settle
from eventd.log.values import Appended, Draft, Head, Page
from eventd.log.wakeups import Wakeups, Watch
from eventd.log.work import Work
from eventd.store.database import Database

logger = logging.getLogger("eventd.log")

R = TypeVar("R")
T = TypeVar("T")


def _untimed(_seconds: float, _records: int) -> None:
    """Nobody wants to know."""


class EventLog:
    """One log over one database. Make it with `EventLog.open`, end it with `close`.

    `first_epoch` is the history that was found. A later one began in here: nobody else can know more of it than we do.
    """

    def __init__(
        self, database: Database, clock: Clock, head: Head, timed: Callable[[float, int], None] = _untimed
    ) -> None:
        self.database = database
        self.clock = clock
        self.first_epoch = self._epoch = head.epoch
        self.wakeups = Wakeups()
        self.wakeups.head = head.last
        self.tail = Tail()
        self.flushes = Flushes()
        self._appender = Appender(database, clock, self._committed, timed, lambda: self.wakeups.head)

    @classmethod
    async def open(
        cls, database: Database, clock: Clock, *, timed: Callable[[float, int], None] = _untimed
    ) -> EventLog:
        """The log of a database whose schema is up to date. `timed(seconds, records)` hears of each transaction."""
        if await database.write(recover):
            logger.warning("the system ended before all was on the disk: the log begins a new history")
        return cls(database, clock, await database.read(read_head), timed)

    async def topic(self, name: str) -> int:
        """The id of a topic, made if it is missing. Not to be kept by its name, which may get another topic."""
        return await self.database.write(ensure_topic, name, self.clock.now())

    def _committed(self, done: Committed) -> None:
        if done.head.epoch != self._epoch:
            logger.warning("the log has begun a new history")
            self._epoch = done.head.epoch
        self.tail.add(done.head, done.blocks)
        self.wakeups.appended(done.head.next_position, done.last, done.topics())

    async def append(self, topic_id: int, drafts: Sequence[Draft]) -> Appended:
        """Append; when this returns, the drafts are durable. One unit: all of them or none."""
        return await self.submit(Publish(topic_id, drafts))

    @property
    def work(self) -> Work:
        """What was written since the process began."""
        return self._appender.work

    @property
    def waiting(self) -> int:
        """Units that wait to be written."""
        return self._appender.waiting

    def submit(self, unit: Unit[R]) -> asyncio.Future[R]:
        """Hand any unit to the writer."""
        return self._appender.submit(unit)

    async def settle(self, step: Step, effect: Effect | None = None) -> None:
        """Move a cursor, and write what belongs to the step. Raises `FenceLost`, and what the effect refuses."""
        await self.submit(Settle(step, effect))

    async def postpone(self, failure: Postponement) -> None:
        """Record a failed try."""
        await self.submit(Postpone(failure))

    async def read(
        self,
        topic_id: int,
        after: int,
        *,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
        until: int | None = None,
        own: bool = False,
    ) -> Page:
        """A page of one topic beyond position `after`; with `own`, only of what entered the log here."""
        return await self.database.read(
            read_page, topic_id, after, limit=limit, max_bytes=max_bytes, until=until, own=own
        )

    async def lines(
        self,
        topic_id: int,
        after: int,
        wanted: Wanted,
        *,
        limit: int,
        max_bytes: int,
        until: int | None = None,
        at_tail: bool = False,
    ) -> Lines:
        """A page of one topic beyond position `after` as it goes to a peer; `until` ends the scan.

        `at_tail` allows it to come from memory, which knows nothing of what retention removed meanwhile: that is for
        readers who follow what is being written.
        """
        now = self.clock.now()
        recent = self._at_tail(topic_id, after, own=wanted.own) if at_tail and until is None else None
        if recent is None:
            return await self.database.read(
                read_lines, topic_id, after, wanted, limit=limit, max_bytes=max_bytes, until=until, now=now
            )
        ahead = Stretch(recent.head, recent.head.last, [], 0)
        return fill_lines(recent.blocks, ahead, wanted, limit=limit, max_bytes=max_bytes, now=now)

    def _at_tail(self, topic_id: int, after: int, *, own: bool) -> Recent | None:
        """What a topic has beyond `after`, out of memory; None where the database has to be asked."""
        known = self.wakeups.head
        return self.tail.nothing_beyond(after, known) or self.tail.beyond(topic_id, after, own=own)

    async def matching(
        self,
        topic_id: int,
        after: int,
        concern: Concern[T],
        *,
        limit: int,
        max_bytes: int,
        until: int | None = None,
        at_tail: bool = False,
    ) -> Found[T]:
        """A page of what concerns one reader beyond position `after`. For `until` and `at_tail` see `lines`."""
        recent = self._at_tail(topic_id, after, own=False) if at_tail and until is None else None
        if recent is None:
            return await self.database.read(
                read_matching, topic_id, after, concern, limit=limit, max_bytes=max_bytes, until=until
            )
        ahead = Stretch(recent.head, recent.head.last, [], 0)
        return find_in(recent.blocks, ahead, concern, limit=limit, max_bytes=max_bytes)

    @contextmanager
    def watch(self, topics: Collection[int] | None, *, own: bool = False) -> Iterator[Watch]:
        """An interest in some topics, or only in what enters them here; to be registered before the first read."""
        watch = self.wakeups.watch(topics, own=own)
        try:
            yield watch
        finally:
            self.wakeups.unwatch(watch)

    async def renew_epoch(self, epoch: str) -> str:
        """Begin a new history in the place of `epoch`; its name, empty where another one has begun already."""
        renewed = await self.database.write(renew_epoch_of, epoch)
        self.tail.clear()
        return renewed

    async def look_around(self) -> Head:
        """Read the head another process may have moved, and wake whoever is behind it."""
        self.database.place.require()
        head = await self.database.read(read_head)
        if head.last > self.wakeups.head:
            self.wakeups.foreign(head.last)
        return head

    async def close(self) -> None:
        """Wait until all that was handed over is durable."""
        await self._appender.close()
        with suppress(EventdError, RuntimeError):  # then the next start takes it that something may be lost
            await self.database.write(settle_unsynced)
