"""Reads blocks from the database, a few at a time, so that memory stays bounded however long the log is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from eventd.log.core.blocks import COLUMNS, OUTLINE, Block, unpack, unpack_readable
from eventd.log.core.values import Record
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, fetch_in, indexed_by

FIRST_BLOCKS = 2
"""How many blocks the first read of a scan gets: a reader that has caught up needs one."""
BLOCKS_PER_READ = 256
"""Maximum number of blocks per read, as long as they are small."""
BYTES_PER_READ = 1 << 20
"""Maximum bytes of bodies per read, unless a single block has more."""
POSITIONS_PER_STATEMENT = 250
"""Positions looked up in one statement."""

_START = "{key} >= coalesce((SELECT max({key}) FROM blocks WHERE topic_id = ? AND {key} <= ?), 0)"


def scan(conn: Connection, topic_id: int, after: int, until: int, *, own: bool = False) -> Iterator[Block]:
    """Yield the blocks of a topic at positions in `(after, until]`, in order; the first and last are cut to that range.

    With `own`, only those whose records entered the log at this node.
    """
    for block in _read(conn, "position", topic_id, after, until, own=own):
        part = block.within(after, until)
        if part is not None:
            yield part


def scan_seqs(conn: Connection, topic_id: int, after: int, until: int) -> Iterator[Block]:
    """Yield the blocks of a topic that contain seqs in `(after, until]`, in order and whole."""
    for block in _read(conn, "seq", topic_id, after, until):
        if block.seq + block.records > after + 1:
            yield block


def _source(conn: Connection, *, own: bool) -> tuple[str, str]:
    """Return the table of blocks as SQL, and the condition for those whose records entered the log at this node."""
    return (f"blocks{indexed_by(conn, 'blocks_own')}", " AND own = 1") if own else ("blocks", "")


def _read(conn: Connection, key: str, topic_id: int, after: int, until: int, *, own: bool = False) -> Iterator[Block]:
    """Yield the blocks, uncut, from the one that contains `after + 1` or precedes it to the one that contains `until`.

    Both are positions or seqs, by `key`.
    """
    place = Block._fields.index(key)
    table, which = _source(conn, own=own)
    condition = f"topic_id = ? AND {{}} AND {key} <= ?{which} ORDER BY {key} LIMIT ?"
    first = fetch(
        conn,
        f"SELECT {COLUMNS} FROM {table} WHERE {condition.format(_START.format(key=key))}",
        (topic_id, topic_id, after + 1, until, FIRST_BLOCKS),
    )
    yield from map(Block._make, first)
    full = len(first) == FIRST_BLOCKS
    at = first[-1][place] + 1 if first else 0
    sql, portion = condition.format(f"{key} >= ?"), FIRST_BLOCKS
    while full:
        portion = min(BLOCKS_PER_READ, 4 * portion)
        sizes = fetch(conn, f"SELECT {key}, bytes FROM {table} WHERE {sql}", (topic_id, at, until, portion))
        count = _affordable([size for _, size in sizes])
        yield from map(
            Block._make, fetch(conn, f"SELECT {COLUMNS} FROM {table} WHERE {sql}", (topic_id, at, until, count))
        )
        full = count < len(sizes) or len(sizes) == portion
        at = sizes[count - 1][0] + 1 if sizes else at
        portion = count  # many are read together as long as they are small


def scan_back(conn: Connection, topic_id: int, after: int, before: int) -> Iterator[Block]:
    """Yield the blocks of a topic at positions in `(after, before)`, cut to that range, the newest first."""
    at, portion = before, FIRST_BLOCKS
    sql = "FROM blocks WHERE topic_id = ? AND position < ? ORDER BY position DESC LIMIT ?"
    while sizes := fetch(conn, f"SELECT position, bytes {sql}", (topic_id, at, portion)):
        portion = min(BLOCKS_PER_READ, 4 * portion)
        count = _affordable([size for _, size in sizes])
        yield from _cut(fetch(conn, f"SELECT {COLUMNS} {sql}", (topic_id, at, count)), after, before - 1)
        at = sizes[count - 1][0]
        if at <= after:
            return


def outlines(
    conn: Connection, topic_id: int, after: int, until: int, *, own: bool = False, portion: int = BLOCKS_PER_READ
) -> Iterator[Block]:
    """Yield the blocks of a topic with positions in `(after, until]`, in order, uncut and without their lines.

    With `own`, only those whose records entered the log at this node. At most `portion` are read at once.
    """
    table, which = _source(conn, own=own)
    condition = f"topic_id = ? AND {{}} AND position <= ?{which} ORDER BY position LIMIT ?"
    sql = f"SELECT {OUTLINE} FROM {table} WHERE {condition}"
    rows = fetch(conn, sql.format(_START.format(key="position")), (topic_id, topic_id, after + 1, until, portion))
    while rows:
        yield from (block for block in map(Block._make, rows) if block.last > after)
        at = rows[-1][0]
        rows = fetch(conn, sql.format("position > ?"), (topic_id, at, until, portion)) if len(rows) == portion else []


def outlines_back(
    conn: Connection, topic_id: int, after: int, before: int, *, portion: int = BLOCKS_PER_READ
) -> Iterator[Block]:
    """Yield the blocks of a topic with positions in `(after, before)`, uncut and without lines, the newest first."""
    sql = f"SELECT {OUTLINE} FROM blocks WHERE topic_id = ? AND position < ? ORDER BY position DESC LIMIT ?"
    at = before
    while rows := fetch(conn, sql, (topic_id, at, portion)):
        for block in map(Block._make, rows):
            if block.last <= after:
                return
            yield block
        at = rows[-1][0]


def _cut(rows: Sequence[Sequence[object]], after: int, until: int) -> Iterator[Block]:
    for row in rows:
        part = Block._make(row).within(after, until)
        if part is not None:
            yield part


def _affordable(sizes: Sequence[int]) -> int:
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > BYTES_PER_READ:
            return max(1, count)
    return len(sizes)


def read_block(conn: Connection, position: int) -> Block:
    """Return the block whose first position this is; it must exist."""
    return Block._make(fetch(conn, f"SELECT {COLUMNS} FROM blocks WHERE position = ?", (position,))[0])


def blocks_at(conn: Connection, positions: Sequence[int]) -> Iterator[tuple[Block, list[int]]]:
    """Yield the blocks of any topic that contain these positions, each with the positions in it, all in order.

    Positions that no stored block contains are left out.
    """
    wanted = sorted(set(positions))
    for start in range(0, len(wanted), POSITIONS_PER_STATEMENT):
        some = wanted[start : start + POSITIONS_PER_STATEMENT]
        sizes = _sizes_at(conn, some)
        while sizes:
            count = _affordable([size for _, size in sizes])
            near, sizes = [at for at, _ in sizes[:count]], sizes[count:]
            rows = fetch_in(conn, f"SELECT {COLUMNS} FROM blocks WHERE position {{in}}", (), near)
            for block in sorted(map(Block._make, rows)):
                if places := some[bisect_left(some, block.position) : bisect_right(some, block.last)]:
                    yield block, places


def _sizes_at(conn: Connection, positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first position, bytes) of each block that may contain one of these positions, in order."""
    values = ", ".join(["(CAST(? AS BIGINT))"] * len(positions))
    start = "SELECT max(position) FROM blocks WHERE position <= place"
    starts = fetch(conn, f"WITH places(place) AS (VALUES {values}) SELECT DISTINCT ({start}) FROM places", positions)
    known = [position for (position,) in starts if position is not None]
    return sorted(fetch_in(conn, "SELECT position, bytes FROM blocks WHERE position {in}", (), known))


def stored_at(conn: Connection, topic_id: int, positions: Sequence[int]) -> set[int]:
    """Return those of the positions that lie in a stored block of the topic, without reading its lines."""
    wanted = sorted(set(positions))
    stored: set[int] = set()
    for start in range(0, len(wanted), POSITIONS_PER_STATEMENT):
        some = wanted[start : start + POSITIONS_PER_STATEMENT]
        near = [at for at, _ in _sizes_at(conn, some)]
        sql = "SELECT position, records FROM blocks WHERE topic_id = ? AND position {in}"
        for first, records in fetch_in(conn, sql, (topic_id,), near):
            stored.update(some[bisect_left(some, first) : bisect_left(some, first + records)])
    return stored


def read_at(conn: Connection, positions: Sequence[int]) -> list[Record]:
    """Return the events that are still stored at these positions, in the order of positions."""
    return [record for block, places in blocks_at(conn, positions) for record in pick(block, places)]


def pick(block: Block, positions: Sequence[int]) -> list[Record]:
    """Return the block's events at these positions, which are in order and at least one."""
    part = block.within(positions[0] - 1, positions[-1])
    wanted = set(positions)
    return [record for record in unpack(part) if record.position in wanted] if part is not None else []


def pick_readable(block: Block, positions: Sequence[int]) -> list[Record]:
    """Return the events of `pick` whose lines are not damaged."""
    part = block.within(positions[0] - 1, positions[-1])
    wanted = set(positions)
    return [record for record in unpack_readable(part) if record.position in wanted] if part is not None else []
