"""A router's input and output: the records it reads (originals), and the copies of a page of them.

An original may itself be a copy that another router made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeAlias

from eventd.log.core.blocks import Block, pack, unpack
from eventd.log.core.records import (
    RecordId,
    body_of_event,
    content_size,
    parse_record_id,
    read_body,
    read_provenance,
    record_id,
)
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import NOTHING, Draft, Drafts
from eventd.log.topics.source_page import SourcePage, SourceStart, read_source_page
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

    @property
    def size(self) -> int:
        """Return the characters of its body."""
        return len(self.body)

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
        """Return the size in bytes that each copy has in the count of its topic."""
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


OriginalPage: TypeAlias = SourcePage[Original]
"""A page of a router's source."""


class Originals:
    """Reads all live records of a source, as the originals of routers. Times in microseconds."""

    def __init__(self, now: int) -> None:
        self._now = now

    def rules_out(self, block: Block) -> bool:
        """Return False: no block is skipped, because a router filters records only after they are read."""
        return False

    def read(self, topic: TopicRow, block: Block) -> list[Original]:
        """Return the originals of a block, without removed records and expired events."""
        return _events(block, self._now) if topic.of_group else _records(block)


def _records(block: Block) -> list[Original]:
    found: list[Original] = []
    shift = block.seq - block.position
    for position, (path, body) in enumerate(block.entries(), block.position):
        if body:
            hops, origin = read_provenance(path)
            found.append(Original(position, position + shift, block.recorded_at, hops, origin, body))
    return found


def _events(block: Block, now: int) -> list[Original]:
    """Return the live events of a block."""
    return [
        Original(r.position, r.seq, r.recorded_at, 0, r.event_id, body_of_event(r.body), r.body)
        for r in unpack(block)
        if is_alive(r.expires_at, now)
    ]


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
) -> OriginalPage | None:
    """Return the originals of the next page of a topic; None if the topic is deleted. See `read_source_page`."""
    start = SourceStart(position, seq)
    return read_source_page(
        conn, topic_id, start, Originals(now), until=until, limit=limit, max_bytes=max_bytes, expire_at=now
    )
