"""A page for a reader that acts on single records: each that concerns it is taken apart, the others are passed over.

Where what a block tells of itself says that nothing in it concerns the reader, its text is not even looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import sqlalchemy as sa

from eventd.log.core.blocks import Block, unpack
from eventd.log.core.pages import LOOKED_AT, PASSED_OVER, UNREAD, PageRange, cost_of, read_page_range
from eventd.log.core.scan import scan
from eventd.log.core.values import Gap, Head, Record

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Interest(Protocol[T_co]):
    """What concerns a reader, and what it makes of it."""

    def rules_out(self, block: Block) -> bool:
        """Whether nothing in a block can, as far as that shows without taking it apart."""
        ...

    def may_be(self, line: str) -> object:
        """Something true, unless the text of a line says that its record cannot: a look costs less than decoding."""
        ...

    def take(self, record: Record) -> T_co | None:
        """What the reader makes of a record; None when it is none of its concern."""
        ...


@dataclass(frozen=True, slots=True)
class MatchingPage(Generic[T]):
    """What concerns a reader, in order.

    All up to the position `upto` was judged, so that a narrow reader still advances. The page is `full` where it ended
    at its limits, and more may be waiting. For `gaps` and `lost` see `PageRange`.
    """

    items: Sequence[T]
    gaps: Sequence[Gap]
    upto: int
    full: bool
    head: Head
    lost: int


def read_matching(
    conn: sa.Connection,
    topic_id: int,
    after: int,
    concern: Interest[T],
    *,
    limit: int,
    max_bytes: int,
    until: int | None,
) -> MatchingPage[T]:
    """What concerns a reader in a topic beyond `after`: at most `limit` items, about `max_bytes` of bodies.

    A reader that few records concern gets a page of what was found so far; it is `full`, so that more is asked for.
    """
    ahead = read_page_range(conn, topic_id, after, until)
    return fill_matching_page(scan(conn, topic_id, after, ahead.end), ahead, concern, limit=limit, max_bytes=max_bytes)


def fill_matching_page(
    blocks: Iterable[Block], ahead: PageRange, concern: Interest[T], *, limit: int, max_bytes: int
) -> MatchingPage[T]:
    """A page out of the blocks that lie ahead, as far as it gets. For its bounds see `read_matching`."""
    items: list[T] = []
    size = looked = 0
    for block in blocks:
        if concern.rules_out(block):
            looked += PASSED_OVER
        else:
            records = unpack(block, concern.may_be)
            looked += max(PASSED_OVER, cost_of(block) // UNREAD, len(records))
            for record in records:
                item = concern.take(record)
                if item is None:
                    continue
                items.append(item)
                size += record.size
                if len(items) == limit or size >= max_bytes:
                    return MatchingPage(items, ahead.gaps, record.position, True, ahead.head, ahead.lost)
        if looked >= LOOKED_AT:
            return MatchingPage(items, ahead.gaps, block.last, True, ahead.head, ahead.lost)
    return MatchingPage(items, ahead.gaps, ahead.end, False, ahead.head, ahead.lost)
