"""A router's input and output: the records it reads (originals), a page of them, and the copies of a page.

An original may itself be a copy that another router made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from eventd.log.core.blocks import Block, pack, unpack
from eventd.log.core.head import read_head
from eventd.log.core.live_records import read_done
from eventd.log.core.losses import SOURCE_TRIM, read_losses
from eventd.log.core.records import (
    RecordId,
    body_of_event,
    content_size,
    parse_record_id,
    read_body,
    read_provenance,
    record_id,
)
from eventd.log.core.scan import scan
from eventd.log.core.topic_row import TopicRow, find_topic_by_id
from eventd.log.core.values import NOTHING, Draft, Drafts, Head
from eventd.log.topics.limits import due_at
from eventd.store.engine.database import Connection
from federation.event import is_alive
from federation.lines import size_of

MOST_LISTED = 16
"""Once more distinct tags and more distinct nodes than this are found, copies are not searched for others: a block does
not list so many."""


class Original(NamedTuple):
    """A live record of the source. `id` is the record id that it keeps as a copy, or the event's id; empty otherwise.

    `event` is the event's canonical form if the source is a group's topic; empty otherwise. `hops`: how many routers
    have copied it so far (0 for an event). `recorded_at` is in microseconds.
    """

    position: int
    seq: int
    recorded_at: int
    hops: int
    id: str
    body: str
    event: str = ""

    def identity(self, instance: int) -> str:
        """Return the id that its copies share: its `id`, or else one made of its topic's `instance`, seq and time."""
        return self.id or record_id(instance, self.seq, self.recorded_at)


class Copy(NamedTuple):
    """The stored form of a copy of the original at `position` and `seq` of the source.

    `id` is the record id that it keeps; empty: the router keeps none.
    """

    position: int
    seq: int
    id: str
    path: str
    body: str


class CopyFailure(NamedTuple):
    """An original that can never be copied, or a loss, and the reason. `id`: that of its copy; empty if unknown."""

    position: int
    id: str
    reason: str
    detail: str


def _template(drafts: Drafts) -> Block | None:
    """Return the block of some drafts without its position; None if they are more than one block."""
    made = [*pack(drafts, topic_id=0, position=0, seq=0, now=0)]
    return made[0] if len(made) == 1 else None


@dataclass(frozen=True, slots=True)
class CopyPage:
    """The copies of a page, for all routers that make equal ones: `drafts`, and each original's position and seq.

    `failures`: originals that cannot be copied. `keeps`: the copies keep record ids. `made_here` holds, by the instance
    number of a topic, the record ids (by the index of the copy) of records that may first have been written to that
    topic. `template`: the block of all copies, without its position, if they fit into one; it serves all destinations.
    """

    positions: Sequence[int] = ()
    seqs: Sequence[int] = ()
    drafts: Drafts = NOTHING
    failures: Sequence[CopyFailure] = ()
    keeps: bool = False
    made_here: dict[int, dict[int, RecordId]] = field(default_factory=dict)
    template: Block | None = None

    @classmethod
    def of_records(cls, copies: Sequence[Copy]) -> Self:
        """Return a page of copies for topics of records."""
        if not copies:
            return cls()
        positions, seqs, ids, paths, bodies = zip(*copies, strict=True)
        tags, nodes = _tags_and_nodes(bodies)
        keeps = bool(ids[0])
        sizes = [*map(content_size, bodies)]
        drafts = Drafts(ids if keeps else (), paths, bodies, tags, nodes, None, sizes)
        return cls(positions, seqs, drafts, (), keeps, _made_here(ids) if keeps else {}, _template(drafts))

    @classmethod
    def of_events(cls, made: Sequence[tuple[Original, Draft]], failures: Sequence[CopyFailure], *, keeps: bool) -> Self:
        """Return a page of copies for the topic of a group."""
        drafts = Drafts.of([draft for _, draft in made])
        return cls([o.position for o, _ in made], [o.seq for o, _ in made], drafts, failures, keeps)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def bytes(self) -> int:
        """Return the bytes of all copies."""
        return self.drafts.bytes

    @property
    def sizes(self) -> Sequence[int]:
        """Return the bytes for which each copy counts in its topic."""
        return self.drafts.sizes or [*map(size_of, self.drafts.bodies)]


def _tags_and_nodes(bodies: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tags and nodes that occur, an empty text for none; if both exceed what a block lists, only some."""
    tags: set[str] = set()
    nodes: set[str] = set()
    for body in bodies:
        found = read_body(body)
        tags.add(found.tag or "")
        nodes.add(found.node or "")
        if min(len(tags), len(nodes)) > MOST_LISTED:
            break
    return frozenset(tags), frozenset(nodes)


def _made_here(ids: Sequence[str]) -> dict[int, dict[int, RecordId]]:
    found: dict[int, dict[int, RecordId]] = {}
    for index, text in enumerate(ids):
        parsed = parse_record_id(text)
        if parsed is not None:
            found.setdefault(parsed.instance, {})[index] = parsed
    return found


class SourcePage(NamedTuple):
    """A page of a source after a router's position. Everything up to `upto` and `upto_seq` was read.

    Before the first original, `lost` records were removed or had exceeded their time to live, and `trimmed` never
    reached the source, because a router's source had lost them. `full`: the source may have more.
    """

    line: TopicRow
    head: Head
    originals: Sequence[Original]
    lost: int
    trimmed: int
    upto: int
    upto_seq: int
    full: bool


def read_source(
    conn: Connection,
    topic_id: int,
    *,
    position: int,
    seq: int,
    until: int | None,
    limit: int,
    max_bytes: int,
    now: int,
) -> SourcePage | None:
    """Return the next page of a topic after `position` and `seq`; None if the topic is deleted.

    It ends at the position `until` (None: at the head), before lost records that follow an original, or with at most
    `limit` originals and about `max_bytes` of their bodies. Records that have exceeded the topic's time to live are
    lost; deleted records, and expired events, are skipped.
    """
    line = find_topic_by_id(conn, topic_id)
    if line is None:
        return None
    head = read_head(conn)
    page = _SourcePageBuilder(conn, line, seq, limit, max_bytes, now)
    end = head.last if until is None else min(until, head.last)
    for block in scan(conn, topic_id, position, end):
        if not page.take(block):
            return page.source(head, page.position, full=True)
    if end == head.last and not page.reach(line.next_seq):
        return page.source(head, page.position, full=True)
    return page.source(head, max(end, position), full=end < head.last)


class _SourcePageBuilder:
    """Builds a page, block by block."""

    def __init__(self, conn: Connection, line: TopicRow, seq: int, limit: int, max_bytes: int, now: int) -> None:
        self.position = 0
        self._conn = conn
        self._line = line
        self._seq = seq
        self._limit = limit
        self._room = max_bytes
        self._now = now
        self._ttl_ms = line.config.ttl_ms
        self._originals: list[Original] = []
        self._lost = self._trimmed = 0

    def source(self, head: Head, upto: int, *, full: bool) -> SourcePage:
        return SourcePage(self._line, head, self._originals, self._lost, self._trimmed, upto, self._seq, full)

    def take(self, block: Block) -> bool:
        """Add a block; return False if the page ends before the end of the block."""
        if not self.reach(block.seq):
            return False
        if self._ttl_ms and due_at(block.recorded_at, self._ttl_ms) <= self._now:
            self._lost += len(self._records(block))
            self._pass(block)
            return True
        part = block.within(block.position - 1, block.position + self._limit - len(self._originals) - 1)
        if part is None:
            return False
        for original in _events(part, self._now) if self._line.of_group else self._records(part):
            if self._originals and self._room < len(original.body):
                return False
            self._originals.append(original)
            self._room -= len(original.body)
            self.position, self._seq = original.position, original.seq
        self._pass(part)
        return part.last == block.last

    def _records(self, block: Block) -> list[Original]:
        """Return the live records of a block: without deleted ones and finished jobs."""
        found: list[Original] = []
        shift, line = block.seq - block.position, self._line
        done = read_done(self._conn, line, block.seq, block.last_seq)
        for at, (path, body) in enumerate(block.entries(), block.position):
            seq = at + shift
            if body and seq not in done:
                hops, origin = read_provenance(path)
                found.append(Original(at, seq, block.recorded_at, hops, origin, body))
        return found

    def _pass(self, block: Block) -> None:
        self.position, self._seq = block.last, block.seq + block.records - 1

    def reach(self, seq: int) -> bool:
        """Move to just before a seq; return False if records before it are lost and the page has originals already."""
        if seq <= self._seq + 1:
            return True
        lost, trimmed = self._missing(seq - 1)
        if self._originals and (lost or trimmed):
            return False
        self._lost += lost
        self._trimmed += trimmed
        self._seq = seq - 1
        return True

    def _missing(self, upto: int) -> tuple[int, int]:
        """Return how many records up to a seq the topic lost, and how many were lost before they reached it."""
        if self._line.of_group:  # the topic of a group loses records only by eviction
            return max(0, min(self._line.evicted_seq, upto) - self._seq), 0
        losses = read_losses(self._conn, self._line.id, self._seq, upto)
        trimmed = sum(loss.records for loss in losses if loss.reason == SOURCE_TRIM)
        return sum(loss.records for loss in losses) - trimmed, trimmed


def _events(block: Block, now: int) -> list[Original]:
    """Return the live events of a block."""
    return [
        Original(r.position, r.seq, r.recorded_at, 0, r.event_id, body_of_event(r.body), r.body)
        for r in unpack(block)
        if is_alive(r.expires_at, now)
    ]
