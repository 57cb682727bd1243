"""The public interface of the log: append, read, wait, settle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from eventd.errors import EventdError
from eventd.log.core.accompanied import AccompaniedUnit
from eventd.log.core.blocks import Block
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
from eventd.log.cursors.steps import Postponement, Step
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock
from eventd.store.engine.attached import take_attached
from eventd.store.engine.database import Database
from eventd.store.engine.head_file import HeadFile, HeadMark

logger = logging.getLogger("eventd.log")

R = TypeVar("R")
T = TypeVar("T")


def _untimed(_seconds: float, _records: int, _in_loop: bool) -> None:
    """Ignore the time of a transaction: the default of `timed`."""


class EventLog:
    """One log in one database; created by `EventLog.open`, ended by `close`. `epoch` is the last one seen.

    `acknowledged` is the head file, which stores the last acknowledged position; None on Postgres, or if it cannot be
    used.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        found: Recovery,
        acknowledged: HeadFile | None,
        timed: Callable[[float, int, bool], None] = _untimed,
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
        self.unsettled_trees: set[int] = set()
        """Trees in which this process may not sign yet: their database may be an older copy, and then leaves move."""
        self.tree_origins: dict[int, str] = {}
        """The origin lines of trees by their ids, which are never used again."""
        self.unmerged = asyncio.Event()
        """Set when sorted runs of ids may have to be merged: this process has written some, or found some, or a round
        of merges has failed."""
        if found.has_runs:
            self.unmerged.set()
        self.count_blocks: Callable[[Sequence[Block]], None] | None = None
        """Called with the blocks that each commit of this process has appended, once they are committed."""
        self.epoch_begun: Callable[[], None] | None = None
        """Called when this process sees that a new epoch has begun while it runs."""
        self._appender = Writer(database, clock, self._committed, timed, lambda: self.wakeups.head)

    @classmethod
    async def open(
        cls, database: Database, clock: Clock, *, timed: Callable[[float, int, bool], None] = _untimed
    ) -> EventLog:
        """Return the log of a database with a current schema; a new epoch begins if commits are, or may be, lost.

        After each committed transaction, `timed` gets its seconds, the number of records it appended, and whether it
        ran in the thread of the loop.
        """
        acknowledged, mark = _open_head_file(database)
        found = await database.write(recover, mark)
        if found.reason:
            logger.warning("epoch renewed", extra={"reason": found.reason, "epoch": found.head.epoch})
        return cls(database, clock, found, acknowledged, timed)

    @property
    def chance(self) -> Chance:
        """Return the node's source of randomness, which tests replace as they replace `clock`."""
        return self.database.chance

    async def topic(self, name: str) -> int:
        """Return the id of a group's topic, which is created if missing.

        Do not cache the id by name: after a deletion, another topic may get the name.
        """
        return await self.database.write(ensure_topic, name, self.clock.now())

    def _committed(self, done: CommitResult) -> bool:
        """Wake the readers; return whether they are so few that they may run before the callers are answered."""
        self._note_epoch(done.head.epoch)
        self._acknowledge(done.last)
        if self.count_blocks is not None:
            self.count_blocks(done.blocks)
        if done.wrote_run:
            self.unmerged.set()
        self.tail.add(done.head, done.blocks)
        families = done.families() if self.wakeups.needs_families else None
        topics = done.topics()
        self.wakeups.appended(done.head.next_position, done.last, topics, families)
        return self.wakeups.are_few(topics)

    def _note_epoch(self, epoch: str) -> None:
        """If `epoch` is a new one, discard what is remembered of the previous one, and wake every reader."""
        if epoch != self.epoch:
            logger.warning("epoch renewed", extra={"epoch": epoch})
            self.epoch = epoch
            self.tail.clear()
            self.topic_versions.forget()
            self.wakeups.touch_all()
            if self.epoch_begun is not None:
                self.epoch_begun()

    def _acknowledge(self, last: int) -> None:
        """Store `last` in the head file as the last acknowledged position, before results are returned.

        After an error, the file is not written any more.
        """
        if self._acknowledged is None:
            return
        try:
            self._acknowledged.write(HeadMark(self._instance, self.epoch, last))
        except (
            OSError
        ) as error:  # the commit itself is safe: the file only serves to detect an older copy of the database
            _warn_of(error)
            self._acknowledged = None

    async def append(self, topic_id: int, drafts: Sequence[Draft]) -> AppendResult:
        """Append events as one unit; return their outcomes once durable. Only new events and refreshes are stored."""
        return await self.submit(Publish(topic_id, drafts))

    @property
    def work(self) -> WriterStats:
        """Return the writer's counts since the process began."""
        return self._appender.work

    @property
    def waiting(self) -> int:
        """Return the number of units that wait to be written."""
        return self._appender.waiting

    @property
    def is_writing(self) -> bool:
        """Return whether a unit is being written, or waits for it."""
        return not self._appender.is_idle

    def submit(self, unit: Unit[R]) -> asyncio.Future[R]:
        """Queue a unit for the writer; the future gets its result or error. Raises `Unavailable` after `close`.

        The unit's transaction also carries out what is attached to the operation.
        """
        attached = take_attached()
        if attached is None:
            return self._appender.submit(unit)
        try:
            future = self._appender.submit(AccompaniedUnit(unit, attached))
        except EventdError as error:
            attached.settle(error)
            raise
        future.add_done_callback(lambda done: attached.settle(_error_of(done)))
        return future

    async def settle(self, step: Step, effect: Effect | None = None) -> None:
        """Move a cursor, and write the step's effect. Raises `FenceLost`, and the errors of the effect."""
        await self.submit(Settle(step, effect))

    async def postpone(self, failure: Postponement) -> None:
        """Record a failed attempt of a consumer, unless its cursor has moved since."""
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
        """Return a page of one topic, in the form sent to peers, of the positions in `(after, until]`.

        `at_tail` allows pages from memory, which report no `gaps` and no `lost_position`: for readers that follow the
        end of the log.
        """
        now = self.clock.now()
        recent = self.recent(topic_id, after, own=wanted.own) if at_tail and until is None else None
        if recent is None:
            return await self.database.read_for_delivery(
                read_wire_page, topic_id, after, wanted, limit=limit, max_bytes=max_bytes, until=until, now=now
            )
        ahead = PageRange(recent.head, recent.head.last, [], 0)
        return fill_wire_page(recent.blocks, ahead, wanted, limit=limit, max_bytes=max_bytes, now=now)

    def recent(self, topic_id: int, after: int, *, own: bool = False) -> RecentBlocks | None:
        """Return the blocks of a topic after position `after` from memory; None if the database must be read."""
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
        """Return a page of one reader's items, made of the records of interest at positions in `(after, until]`.

        For `at_tail` see `lines`.
        """
        recent = self.recent(topic_id, after) if at_tail and until is None else None
        if recent is None:
            return await self.database.read_for_delivery(
                read_matching, topic_id, after, concern, limit=limit, max_bytes=max_bytes, until=until
            )
        ahead = PageRange(recent.head, recent.head.last, [], 0)
        return fill_matching_page(recent.blocks, ahead, concern, limit=limit, max_bytes=max_bytes)

    async def try_writing(self) -> None:
        """Commit and flush a change of a counter, after which writing counts as working again. Raises `EventdError`."""
        await self.database.write(touch_head)
        self.work.trouble = ""

    @contextmanager
    def watch(
        self, topics: Collection[int] | None, *, own: bool = False, families: frozenset[str] | None = None
    ) -> Iterator[Watch]:
        """Watch the topics with these ids, None for all; with `own`, only for records that enter the log at this node.

        For `families` see `Watch`.

        Enter the context before the first read, so that no append is missed.
        """
        watch = self.wakeups.watch(topics, own=own, families=families)
        try:
            yield watch
        finally:
            self.wakeups.unwatch(watch)

    async def look_around(self) -> Head:
        """Return the stored head; wake every reader if it is beyond the last known position, or of a new epoch.

        Raises `DatabaseUnavailable` if the database file was deleted, moved or replaced.
        """
        self.database.file_guard.require()
        head = await self.database.read_for_delivery(read_head)
        self._note_epoch(head.epoch)
        if head.last > self.wakeups.head:
            self.wakeups.foreign(head.last)
        return head

    @property
    def units(self) -> int:
        """Return the number of units that are being written, or wait for it."""
        return self._appender.units

    async def close(self) -> None:
        """Refuse new units, wait for all submitted ones, then flush them and record that no commit can be lost.

        Errors of that flush are ignored.
        """
        await self._appender.close()
        with suppress(EventdError, RuntimeError):  # otherwise the next start assumes that commits may be lost
            head = await self.database.write(settle_unsynced)
            self.epoch = head.epoch
            self._acknowledge(head.last)


def _error_of(done: asyncio.Future[Any]) -> BaseException | None:
    return asyncio.CancelledError() if done.cancelled() else done.exception()


def _open_head_file(database: Database) -> tuple[HeadFile | None, HeadMark | None]:
    """Return the head file and its content (None if the file is new or damaged).

    Both are None on Postgres, and after an error: an older copy of the database is then not detected.
    """
    try:
        file = database.open_head_file()
        return file, file.read() if file is not None else None
    except OSError as error:
        _warn_of(error)
        return None, None


def _warn_of(error: OSError) -> None:
    logger.warning("older copies undetectable", extra={"error": str(error)})
