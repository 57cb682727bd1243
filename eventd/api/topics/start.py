"""The start of a client in the requested topics, and the options of its pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import UNSET, Struct, UnsetType

from eventd.api.framework.models import U64, require_u64
from eventd.api.topics.calls import V0
from eventd.api.topics.client_stream import WatchCursor
from eventd.api.topics.models import filter_ids
from eventd.api.topics.shared_reads import PageOptions
from eventd.errors import Invalid
from eventd.log.core.head import read_head
from eventd.log.core.records import View
from eventd.log.core.topic_row import find_topic
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.limits import read_size
from eventd.log.topics.topic_page import epoch_of
from eventd.log.topics.topics import NAME
from eventd.store.engine.database import Connection

MOST_TOPICS = 256
MOST_RECORDS = 1000
MOST_BYTES = 8 << 20
MOST_SEQ = 2**63 - 1
"""A seq larger than that of any record."""
OTHER_EPOCH = "-"
"""Stands for every epoch but the present one: the client's own text may be of any length, so it is not kept."""


class From(Struct, kw_only=True):
    """The start in a topic: after a seq of an `epoch`, the present one if it is unknown, or with `tail` after its
    newest record."""

    from_seq: U64 = 0
    tail: bool = False
    epoch: str | None = None

    def __post_init__(self) -> None:
        require_u64(from_seq=self.from_seq)


class Viewing(Struct, kw_only=True):
    """The members of records that a client wants, and whether it wants epochs of seqs.

    `node`: whose records are excluded, in topics with `dedupe_node`.
    """

    node: str | list[str] | None = None
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    include_epoch: bool = False

    def pages(self, limit: int, max_bytes: int) -> PageOptions:
        """Return the options of pages with at most this many records and about this many bytes, within the node's
        limits."""
        view = View(tags=self.include_tags, meta=self.include_meta, data=self.include_data)
        nodes, most = filter_ids(self.node), min(max_bytes, MOST_BYTES)
        return PageOptions(nodes, view, min(limit, MOST_RECORDS), most, self.include_epoch)


class Beginning(Struct, kw_only=True):
    """The start of a client in a topic, after `from_seq`; the topic's last assigned seq, its oldest record's, and, if
    the client wants it, the epoch of these two."""

    from_seq: int
    head_seq: int
    earliest_seq: int
    epoch: str | UnsetType = UNSET


class TopicSnapshot(NamedTuple):
    """A topic when it was found: its id, last assigned seq, oldest record's seq, and the epoch of these seqs."""

    topic_id: int
    head_seq: int
    earliest_seq: int
    epoch: str

    def begin(self, asked: From, *, include_epoch: bool) -> Beginning:
        """Return the start of a client in the topic, as requested."""
        first, epoch = self.head_seq if asked.tail else min(asked.from_seq, MOST_SEQ), self.epoch
        return Beginning(
            from_seq=first,
            head_seq=self.head_seq,
            earliest_seq=self.earliest_seq,
            epoch=epoch if include_epoch else UNSET,
        )

    def epoch_of(self, asked: From) -> str:
        """Return the epoch of the seq at which a client starts, as requested.

        A seq beyond the newest one is of another epoch, also if the topic has grown beyond it before a stream begins.
        """
        is_known = asked.from_seq <= self.head_seq and asked.epoch in (None, "", self.epoch)
        return self.epoch if asked.tail or is_known else OTHER_EPOCH


def begin_topics(
    found: Mapping[str, TopicSnapshot], asked: Mapping[str, From], *, include_epoch: bool
) -> tuple[dict[str, Beginning], dict[str, WatchCursor]]:
    """Return by name where a client starts in topics: as the node answers, and as cursors for its streams."""
    beginnings = {name: topic.begin(asked[name], include_epoch=include_epoch) for name, topic in found.items()}
    cursors = {
        name: WatchCursor(beginnings[name].from_seq, topic.epoch_of(asked[name])) for name, topic in found.items()
    }
    return beginnings, cursors


async def find_topics(v0: V0, names: Collection[str], *, lenient: bool) -> dict[str, TopicSnapshot]:
    """Return topics by name, after routers into each had a few seconds to copy what their sources hold.

    Raises `TopicNotFound` for a missing topic; `lenient` leaves it out instead.
    """
    known = [name for name in names if NAME.fullmatch(name)]
    for name in known:
        await v0.catch_up(name)
    found = await v0.database.read(_find, known, v0.clock.now())
    missing = [name for name in names if name not in found]
    if missing and not lenient:
        raise TopicNotFound(missing[0])
    return found


def require_some(names: Collection[str]) -> None:
    """Raises `Invalid` for no topic at all, and for too many."""
    if not 1 <= len(names) <= MOST_TOPICS:
        raise Invalid(f"a request must name 1 to {MOST_TOPICS} topics; this one names {len(names)}")


def _find(conn: Connection, names: Iterable[str], now: int) -> dict[str, TopicSnapshot]:
    epoch = read_head(conn).epoch
    lines = ((name, find_topic(conn, name)) for name in names)
    return {
        name: TopicSnapshot(line.id, line.head_seq, read_size(conn, line, now).earliest_seq, epoch_of(epoch, line.id))
        for name, line in lines
        if line is not None
    }
