"""Splits blocks into columns and caches the latest, because the rows for several peers come from the same blocks.

While a block is cached, it is split only once, for the event ledger and for every delivery of its events.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from struct import unpack_from
from typing import Final, NamedTuple

from eventd.log.core.blocks import Block
from federation.event import UNSET, read_outlines

MOST_BYTES: Final = 8 << 20
"""Maximum bytes of event bodies in cached blocks; split into columns they need several times as much memory."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO: Final = timedelta(microseconds=1)


class BlockColumns(NamedTuple):
    """The records of a block, column by column. The text of `block` is empty; times are in microseconds."""

    block: Block
    ids: list[str]
    sources: list[str]
    types: list[str]
    subjects: list[str]
    paths: list[str]
    event_at: list[int]
    expires_at: list[int | None]
    sizes: list[int]
    digests: list[bytes]
    fingerprints: Sequence[int]


def take_apart(block: Block) -> BlockColumns:
    """Split a whole block into columns."""
    paths, bodies = zip(*block.entries(), strict=True)
    outlines = read_outlines(bodies)
    raw = [body.encode() for body in bodies]
    sha256 = hashlib.sha256
    digests = [sha256(each).digest() for each in raw]
    return BlockColumns(
        block._replace(text=""),
        [outline.id for outline in outlines],
        [outline.source_node for outline in outlines],
        [outline.type for outline in outlines],
        [outline.subject for outline in outlines],
        [*paths],
        [(outline.observed_at - _EPOCH) // _MICRO for outline in outlines],
        [None if outline.expires_at == UNSET else (outline.expires_at - _EPOCH) // _MICRO for outline in outlines],
        [len(each) for each in raw],
        digests,
        unpack_from(">" + "q24x" * len(digests), b"".join(digests)),
    )


class Memory:
    """A cache of the blocks of one log. It belongs to one reader, which may reuse it for the next extract."""

    def __init__(self) -> None:
        self._apart: OrderedDict[int, BlockColumns] = OrderedDict()  # by position, most recently used last
        self._places: list[int] = []  # sorted
        self._bytes = 0

    def holding(self, position: int) -> BlockColumns | None:
        """Return the cached block that holds a position, or None."""
        at = bisect_right(self._places, position) - 1
        found = self._apart[self._places[at]] if at >= 0 else None
        if found is None or found.block.last < position:
            return None
        self._apart.move_to_end(found.block.position)
        return found

    def keep(self, block: Block) -> BlockColumns:
        """Return the columns of a block, cached; beyond `MOST_BYTES`, the blocks used longest ago are dropped."""
        known = self._apart.get(block.position)
        if known is not None and known.block.records == block.records:
            return known
        apart = take_apart(block)
        if known is None:
            insort(self._places, block.position)
        else:
            self._bytes -= known.block.bytes
        self._apart[block.position] = apart
        self._bytes += block.bytes
        while self._bytes > MOST_BYTES and len(self._apart) > 1:
            position, oldest = self._apart.popitem(last=False)
            self._places.remove(position)
            self._bytes -= oldest.block.bytes
        return apart
