"""Finds the blocks that hold the records of a batch: backwards from the end of its range, or by listed positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from eventd.lake.extract.block_columns import BlockColumns, Memory
from eventd.log.core.blocks import BLOCK_RECORDS, COLUMNS, OUTLINE, Block
from eventd.log.core.scan import BYTES_PER_READ, blocks_at
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, fetch_in
from federation.event import DECODER

AHEAD: Final = 64
"""Maximum number of blocks that one query reads, with all columns except the text."""

Part = tuple[BlockColumns, Sequence[int]]
"""Some records of a block, by their indexes in the block; the indexes are a range object if the records are
adjacent."""


class PositionRange(NamedTuple):
    """The positions `(after, upto]` of a topic; `own`: without the blocks of events that came from other nodes."""

    topic_id: int
    after: int
    upto: int
    own: bool


def walk_back(
    conn: Connection, memory: Memory, positions: PositionRange, skips: Callable[[Block], bool]
) -> Iterator[BlockColumns]:
    """Yield the topic's blocks with records in a range, the last one first, except those for which `skips` is true.

    A block is yielded whole, also if it begins before the range or ends after it.
    """
    topic_id, after, upto, _ = positions
    at = upto
    while at > after:
        known = memory.holding(at)
        if known is None:
            near = _outlines_back(conn, positions, at)
            if not near:
                return
            new = [*takewhile(lambda block: memory.holding(block.position) is None, near)]
            wanted = _affordable([block for block in new if not skips(block)])
            yield from _load(conn, memory, wanted)
            at = (wanted or new)[-1].position - 1 if new else near[0].last
            continue
        if known.block.topic_id == topic_id and not skips(known.block):
            yield known
        at = known.block.position - 1


def _outlines_back(conn: Connection, positions: PositionRange, at: int) -> list[Block]:
    """Read the next blocks of the range backwards from position `at`, the last one first, without their text."""
    own = "AND own = 1" if positions.own else ""
    sql = (
        f"SELECT {OUTLINE} FROM blocks WHERE topic_id = ? AND position <= ? AND position > ? {own}"
        " ORDER BY position DESC LIMIT ?"
    )
    rows = fetch(conn, sql, (positions.topic_id, at, positions.after - BLOCK_RECORDS, AHEAD))
    return [block for block in map(Block._make, rows) if block.last > positions.after]


def _affordable(found: Sequence[Block]) -> Sequence[Block]:
    size = 0
    for count, block in enumerate(found):
        size += block.bytes
        if size > BYTES_PER_READ:
            return found[: max(1, count)]
    return found


def _load(conn: Connection, memory: Memory, outlines: Sequence[Block]) -> Iterator[BlockColumns]:
    sql = f"SELECT {COLUMNS} FROM blocks WHERE position {{in}}"
    stored = {row[0]: row for row in fetch_in(conn, sql, (), [block.position for block in outlines])}
    for block in outlines:
        yield memory.keep(Block._make(stored[block.position]))


def find_at(conn: Connection, memory: Memory, positions: Sequence[int]) -> list[Part]:
    """Return the records at these ascending positions that are still stored, as one part for each block."""
    parts: list[Part] = []
    unknown: list[int] = []
    for place in positions:
        if parts and place <= parts[-1][0].block.last:
            parts[-1][1].append(place - parts[-1][0].block.position)  # type: ignore[attr-defined]
        elif (known := memory.holding(place)) is not None:
            parts.append((known, [place - known.block.position]))
        else:
            unknown.append(place)
    for block, places in blocks_at(conn, unknown):
        parts.append((memory.keep(block), [place - block.position for place in places]))
    return sorted(parts, key=lambda part: part[0].block.position + part[1][0])


def read_payloads(conn: Connection, block: Block, indexes: Sequence[int]) -> list[Mapping[str, str]]:
    """Return the payloads of the records of a block with these ascending indexes, without those no longer stored."""
    sql = f"SELECT {COLUMNS} FROM blocks WHERE position = ?"
    rows = fetch(conn, sql, (block.position,))
    if not rows:
        return []
    bodies = Block._make(rows[0]).bodies()
    return [DECODER.decode(bodies[at]).payload for at in indexes if at < len(bodies)]


def count(parts: Sequence[Part]) -> int:
    """Return the number of records in these parts."""
    return sum(len(indexes) for _, indexes in parts)
