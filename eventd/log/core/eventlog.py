"""The log as its users see it: append, read, wait, settle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from eventd.errors import EventdError
from eventd.log.core.commit import CommitResult, Unit
from eventd.log.core.durability import DurabilityCache
from eventd.log.core.head import Recovery, read_head, recover, settle_unsynced, touch_head
from eventd.log.core.matching_page import Interest, MatchingPage, fill_matching_page, read_matching
from eventd.log.core.pages import PageRange
from eventd.log.core.tail import RecentBlocks, Tail
from eventd.log.core.topic_row import ensure_topic
from eventd.log.core.topic_versions import TopicVersions
from eventd.log.core.units import Effect, Postpone, Publish, Settle
from eventd.log.core.values import AppendResult, Draft, Head
from eventd.log.core.wakeups import Wakeups, Watch
from eventd.log.core.wire_page import PeerFilter, WirePage, fill_wire_page, read_wire_page
from eventd.log.core.writer import Writer
from eventd.log.core.writer_stats import WriterStats
from eventd.log.cursors.cursors import Postponement, Step
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock
from eventd.store.engine.database import Database
from eventd.store.engine.head_file import HeadFile, HeadMark

logger = logging.getLogger("eventd.log")

R = TypeVar("R")
T = TypeVar("T")


def _untimed(_seconds: float, _records: int) -> None:
    """Measure nothing."""


class EventLog:
    """One log over one database. Make it with `EventLog.open`, end it with `close`. `epoch` is the one seen last.

    `acknowledged` is the head file, which keeps the last acknowledged position; None on Postgres.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        found: Recovery,
        acknowledged: HeadFile | None,
        timed: Callable[[float, int], None] = _untimed,
    ) -> None:
        self.database = database
        self.clock = clock
        self.epoch = found.head.epoch
        self._instance = found.instance
        self._acknowledged = acknowledged
        self._acknowledge(found.head.last)
        self.wakeups = Wakeups()
        self.wakeups.head = found.head.last
        self.topic_versions = TopicVersions()
        self.tail = Tail()
        self.flushes = DurabilityCache()
        self._appender = Writer(database, clock, self._committed, timed, lambda: self.wakeups.head)

    @classmethod
    async def open(
        cls, database: Database, clock: Clock, *, timed: Callable[[float, int], None] = _untimed
    ) -> EventLog:
        """The log of a database whose schema is current. `timed(seconds, records)` is called after each transaction."""
        acknowledged, told = _open_head_file(database)
        found = await database.write(recover, told)
        if found.reason:
            logger.warning("epoch renewed", extra={"reason": found.reason, "epoch": found.head.epoch})
        return cls(database, clock, found, acknowledged, timed)

    @property
    def chance(self) -> Chance:
        """The randomness of the node, as `clock` is its time."""
        return self.database.chance

    async def topic(self, name: str) -> int:
        """The id of a topic, made if it is missing. Do not cache it by name: another topic may get the name."""
        return await self.database.write(ensure_topic, name, self.clock.now())

    def _committed(self, done: CommitResult) -> None:
        self._note_epoch(done.head.epoch)
        self._acknowledge(done.last)
        self.tail.add(done.head, done.blocks)
        self.wakeups.appended(done.head.next_position, done.last, done.topics())

    def _note_epoch(self, epoch: str) -> None:
        """If a new epoch has begun, wake every reader: their positions are of the one before."""
        if epoch != self.epoch:
            logger.warning("epoch renewed", extra={"epoch": epoch})
            self.epoch = epoch
            self.tail.clear()
            self.topic_versions.forget()
            self.wakeups.touch_all()

    def _acknowledge(self, last: int) -> None:
        """Store, before any caller is answered, that everything up to `last` is acknowledged."""
        if self._acknowledged is None:
            return
        try:
            self._acknowledged.write(HeadMark(self._instance, self.epoch, last))
        except (
            OSError
        ) as error:  # the commit itself is safe: the file only serves to notice an older copy of the database
            _warn_of(error)
            self._acknowledged = None

    async def append(self, topic_id: int, drafts: Sequence[Draft]) -> AppendResult:
        """Append; when this returns, the drafts are durable. One unit: all of them or none."""
        return await self.submit(Publish(topic_id, drafts))

    @property
    def work(self) -> WriterStats:
        """Counts of what was written since the process began."""
        return self._appender.work

    @property
    def waiting(self) -> int:
        """Units that wait to be written."""
        return self._appender.waiting

    def submit(self, unit: Unit[R]) -> asyncio.Future[R]:
        """Hand any unit to the writer."""
        return self._appender.submit(unit)

    async def settle(self, step: Step, effect: Effect | None = None) -> None:
        """Move a cursor, and write what belongs to the step. Raises `FenceLost`, and the errors of the effect."""
        await self.submit(Settle(step, effect))

    async def postpone(self, failure: Postponement) -> None:
        """Record a failed try."""
        await self.submit(Postpone(failure))

    async def lines(
        self,
        topic_id: int,
        after: int,
        wanted: PeerFilter,
        *,
        limit: int,
        max_bytes: int,
        until: int | None = None,
        at_tail: bool = False,
    ) -> WirePage:
        """A page of one topic beyond position `after` as it goes to a peer; `until` ends the scan.

        `at_tail` allows it to come from memory, which does not show what retention removed meanwhile: for readers that
        follow the end of the log.
        """
        now = self.clock.now()
        recent = self._at_tail(topic_id, after, own=wanted.own) if at_tail and until is None else None
        if recent is None:
            return await self.database.read_for_delivery(
                read_wire_page, topic_id, after, wanted, limit=limit, max_bytes=max_bytes, until=until, now=now
            )
        ahead = PageRange(recent.head, recent.head.last, [], 0)
        return fill_wire_page(recent.blocks, ahead, wanted, limit=limit, max_bytes=max_bytes, now=now)

    def _at_tail(self, topic_id: int, after: int, *, own: bool) -> RecentBlocks | None:
        """The blocks of a topic beyond `after`, from memory; None where the database has to be read."""
        known = self.wakeups.head
        return self.tail.nothing_beyond(after, known) or self.tail.beyond(topic_id, after, own=own)

    async def matching(
        self,
        topic_id: int,
        after: int,
        concern: Interest[T],
        *,
        limit: int,
        max_bytes: int,
        until: int | None = None,
        at_tail: bool = False,
    ) -> MatchingPage[T]:
        """A page of records that concern one reader, beyond position `after`. For `until` and `at_tail` see `lines`."""
        recent = self._at_tail(topic_id, after, own=False) if at_tail and until is None else None
        if recent is None:
            return await self.database.read_for_delivery(
                read_matching, topic_id, after, concern, limit=limit, max_bytes=max_bytes, until=until
            )
        ahead = PageRange(recent.head, recent.head.last, [], 0)
        return fill_matching_page(recent.blocks, ahead, concern, limit=limit, max_bytes=max_bytes)

    async def try_writing(self) -> None:
        """After a transaction that failed as a whole: try whether the next one would. Raises `EventdError`."""
        await self.database.write(touch_head)
        self.work.trouble = ""

    @contextmanager
    def watch(self, topics: Collection[int] | None, *, own: bool = False) -> Iterator[Watch]:
        """Watch some topics, or only records that enter them here; to be registered before the first read."""
        watch = self.wakeups.watch(topics, own=own)
        try:
            yield watch
        finally:
            self.wakeups.unwatch(watch)

    async def look_around(self) -> Head:
        """Read the head another process may have moved, and wake the readers behind it."""
        self.database.file_guard.require()
        head = await self.database.read_for_delivery(read_head)
        self._note_epoch(head.epoch)
        if head.last > self.wakeups.head:
            self.wakeups.foreign(head.last)
        return head

    async def close(self) -> None:
        """Wait until all submitted units are durable."""
        await self._appender.close()
        with suppress(EventdError, RuntimeError):  # then the next start assumes that commits may be lost
            head = await self.database.write(settle_unsynced)
            self.epoch = head.epoch
            self._acknowledge(head.last)


def _open_head_file(database: Database) -> tuple[HeadFile | None, HeadMark | None]:
    """The head file and its content. None on Postgres, or after an error: then an older copy is not noticed."""
    try:
        file = database.open_head_file()
        return file, file.read() if file is not None else None
    except OSError as error:
        _warn_of(error)
        return None, None


def _warn_of(error: OSError) -> None:
    logger.warning("older copies undetectable", extra={"error": str(error)})
