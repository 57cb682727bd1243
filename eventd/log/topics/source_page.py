"""Pages of a topic for programs that copy or push its records: events of groups and records alike, and what was lost.

Losses come first and are counted by seq; a page ends before a loss that follows one of its items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from eventd.log.core.blocks import Block
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.log.core.live_records import read_done
from eventd.log.core.losses import CAP, SOURCE_TRIM, Loss, read_losses
from eventd.log.core.pages import LOOKED_AT, PASSED_OVER, cost_of
from eventd.log.core.scan import scan
from eventd.log.core.topic_row import TopicRow, find_topic_by_id
from eventd.log.core.values import Head
from eventd.log.topics.limits import due_at
from eventd.store.engine.database import Connection


class SourceItem(Protocol):
    """Interface of the form into which a reader converts a record; `size` in bytes, approximately."""

    @property
    def position(self) -> int: ...

    @property
    def seq(self) -> int: ...

    @property
    def size(self) -> int: ...


T = TypeVar("T", bound=SourceItem)
T_co = TypeVar("T_co", bound=SourceItem, covariant=True)


class _Numbered(Protocol):
    @property
    def seq(self) -> int: ...


V = TypeVar("V", bound=_Numbered)


class SourceReader(Protocol[T_co]):
    """Interface: which records a reader gets, and in which form."""

    def rules_out(self, block: Block) -> bool:
        """Return whether the columns of a block prove that the reader gets none of its records."""
        ...

    def read(self, topic: TopicRow, block: Block) -> Sequence[T_co]:
        """Return the reader's items of a block, in order."""
        ...


class StoredRecord(NamedTuple):
    """A record as it is stored in a topic of records; see `eventd.log.core.records`."""

    position: int
    seq: int
    path: str
    body: str


def stored_records(block: Block) -> Iterator[StoredRecord]:
    """Yield the records of a block, without removed ones."""
    shift = block.seq - block.position
    for position, (path, body) in enumerate(block.entries(), block.position):
        if body:
            yield StoredRecord(position, position + shift, path, body)


class SourceStart(NamedTuple):
    """Where a page begins: after `position`, which is the position of the record `seq` or of a later record of another
    topic."""

    position: int
    seq: int


class SourcePage(NamedTuple, Generic[T]):
    """A page of a topic. Everything up to `upto` and `upto_seq` was read.

    Before the first item, `lost` records were removed or had exceeded their time to live, and `trimmed` never reached
    the topic, because a router's source had lost them; `losses` are their ranges of seqs, without those that exceeded
    their time to live but are still stored. `full`: the topic may have more.
    """

    topic: TopicRow
    head: Head
    items: Sequence[T]
    lost: int
    trimmed: int
    upto: int
    upto_seq: int
    full: bool
    losses: Sequence[Loss] = ()


def read_source_page(
    conn: Connection,
    topic_id: int,
    start: SourceStart,
    reader: SourceReader[T],
    *,
    until: int | None,
    limit: int,
    max_bytes: int,
    expire_at: int | None,
) -> SourcePage[T] | None:
    """Return the next page of a topic after `start`; None if the topic is deleted.

    It ends at the position `until` (None: at the head), before lost records that follow an item, with at most `limit`
    items and about `max_bytes` of them, or after a bounded amount of work. Records that have exceeded the topic's time
    to live at `expire_at` (microseconds; None: no record has) are lost; deleted records are skipped.
    """
    topic = find_topic_by_id(conn, topic_id)
    if topic is None:
        return None
    head = read_head(conn)
    page = _SourcePageBuilder(topic, head, start, reader, limit, max_bytes, expire_at, conn)
    end = head.last if until is None else min(until, head.last)
    return page.fill(scan(conn, topic_id, start.position, end), end)


def recent_source_page(
    log: EventLog, topic: TopicRow, start: SourceStart, reader: SourceReader[T], *, limit: int, max_bytes: int
) -> SourcePage[T] | None:
    """Return the next page from memory, for readers that follow the end of the log; None: the database must be read.

    `topic` is from an earlier page. It must not be a queue.
    """
    recent = log.recent(topic.id, start.position)
    if recent is None:
        return None
    page = _SourcePageBuilder(topic, recent.head, start, reader, limit, max_bytes, None, None)
    try:
        return page.fill(recent.blocks, recent.head.last)
    except _Unknown:
        return None


class _Unknown(Exception):
    """Raised if records are missing before a block, and only the database can say why."""


class _SourcePageBuilder(Generic[T]):
    """Builds a page, block by block. Without a connection, it cannot tell why records are missing."""

    def __init__(
        self,
        topic: TopicRow,
        head: Head,
        start: SourceStart,
        reader: SourceReader[T],
        limit: int,
        max_bytes: int,
        expire_at: int | None,
        conn: Connection | None,
    ) -> None:
        self._topic = topic
        self._head = head
        self._start = start.position
        self._position, self._seq = start
        self._reader = reader
        self._limit = limit
        self._room = max_bytes
        self._expire_at = expire_at
        self._conn = conn
        self._ttl_ms = 0 if expire_at is None else topic.config.ttl_ms
        self._items: list[T] = []
        self._losses: list[Loss] = []
        self._too_old = 0
        self._looked = 0

    def fill(self, blocks: Iterable[Block], end: int) -> SourcePage[T]:
        """Return the page of these blocks, which reach to the position `end`."""
        for block in blocks:
            if not self._take(block):
                return self._page(self._position, full=True)
            if self._looked >= LOOKED_AT:
                return self._page(self._position, full=True)
        if self._conn is not None and end == self._head.last and not self._reach(self._topic.next_seq):
            return self._page(self._position, full=True)
        return self._page(max(end, self._start), full=end < self._head.last)

    def _page(self, upto: int, *, full: bool) -> SourcePage[T]:
        trimmed = sum(loss.records for loss in self._losses if loss.reason == SOURCE_TRIM)
        lost = sum(loss.records for loss in self._losses) - trimmed + self._too_old
        return SourcePage(
            self._topic, self._head, self._items, lost, trimmed, upto, self._seq, full, tuple(self._losses)
        )

    def _take(self, block: Block) -> bool:
        """Add a block; return False if the page ends before the end of the block."""
        if not self._reach(block.seq):
            return False
        if self._ttl_ms and due_at(block.recorded_at, self._ttl_ms) <= (self._expire_at or 0):
            self._too_old += len(self._live([*stored_records(block)], block))
            self._pass(block)
            return True
        if self._reader.rules_out(block):
            self._looked += PASSED_OVER
            self._pass(block)
            return True
        part = block.within(block.position - 1, block.position + self._limit - len(self._items) - 1)
        if part is None:
            return False
        found = self._live(self._reader.read(self._topic, part), part)
        self._looked += max(PASSED_OVER, cost_of(part)) if not found else 0
        for item in found:
            if self._items and self._room < item.size:
                return False
            self._items.append(item)
            self._room -= item.size
            self._position, self._seq = item.position, item.seq
        self._pass(part)
        return part.last == block.last

    def _live(self, found: Sequence[V], block: Block) -> Sequence[V]:
        """Return the found items without those of finished jobs."""
        if self._conn is None or not self._topic.is_queue:
            return found
        done = read_done(self._conn, self._topic, block.seq, block.last_seq)
        return [one for one in found if one.seq not in done]

    def _pass(self, block: Block) -> None:
        self._position, self._seq = block.last, block.seq + block.records - 1

    def _reach(self, seq: int) -> bool:
        """Move to just before a seq; return False if records before it are lost and the page has items already."""
        if seq <= self._seq + 1:
            return True
        lost = self._missing(seq - 1)
        if self._items and lost:
            return False
        self._losses += lost
        self._seq = seq - 1
        return True

    def _missing(self, upto: int) -> list[Loss]:
        """Return the losses among the records up to a seq. Raises `_Unknown` without a connection."""
        if self._conn is None:
            raise _Unknown
        if self._topic.of_group:  # the topic of a group loses records only by eviction
            last = min(self._topic.evicted_seq, upto)
            return [Loss(self._seq + 1, last, CAP)] if last > self._seq else []
        return read_losses(self._conn, self._topic.id, self._seq, upto)
