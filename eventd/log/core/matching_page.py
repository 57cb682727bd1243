"""A page for a reader of single records: those that may be of interest are decoded, the others skipped.

If the types and sources of a block exclude every interesting record, its text is not even searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from eventd.log.core.blocks import Block, unpack
from eventd.log.core.pages import LOOKED_AT, PASSED_OVER, UNREAD, PageRange, cost_of, read_page_range
from eventd.log.core.scan import scan
from eventd.log.core.values import Gap, Head, Record
from eventd.store.engine.database import Connection

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Interest(Protocol[T_co]):
    """Interface: which records a reader is interested in, and how it converts them."""

    def rules_out(self, block: Block) -> bool:
        """Return whether the columns or the undecoded text of a block prove that none of its records is of interest."""
        ...

    def may_be(self, line: str) -> object:
        """Return a true value unless the text of a body excludes its record: a search costs less than decoding."""
        ...

    def take(self, record: Record) -> T_co | None:
        """Return the reader's item for a record; None if the record is of no interest."""
        ...


@dataclass(frozen=True, slots=True)
class MatchingPage(Generic[T]):
    """The items of a reader, in order.

    Everything up to the position `upto` was read, so that a reader with few matches still advances. The page is `full`
    if a limit ended it, and there may be more. For `gaps` and `lost_position` see `PageRange`.
    """

    items: Sequence[T]
    gaps: Sequence[Gap]
    upto: int
    full: bool
    head: Head
    lost_position: int


def read_matching(
    conn: Connection,
    topic_id: int,
    after: int,
    concern: Interest[T],
    *,
    limit: int,
    max_bytes: int,
    until: int | None,
) -> MatchingPage[T]:
    """Return a reader's items in `(after, until]` of a topic (`until` None: up to the head), at most `limit`.

    The page ends with the record that reaches `max_bytes` of bodies. A reader with few matches gets a page of the items
    found so far, which is `full`, so that it continues.
    """
    ahead = read_page_range(conn, topic_id, after, until)
    return fill_matching_page(scan(conn, topic_id, after, ahead.end), ahead, concern, limit=limit, max_bytes=max_bytes)


def fill_matching_page(
    blocks: Iterable[Block], ahead: PageRange, concern: Interest[T], *, limit: int, max_bytes: int
) -> MatchingPage[T]:
    """Return a page of the given blocks, up to its limits; for these see `read_matching`."""
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
                    return MatchingPage(items, ahead.gaps, record.position, True, ahead.head, ahead.lost_position)
        if looked >= LOOKED_AT:
            return MatchingPage(items, ahead.gaps, block.last, True, ahead.head, ahead.lost_position)
    return MatchingPage(items, ahead.gaps, ahead.end, False, ahead.head, ahead.lost_position)
