"""What is done goes out of a queue: its floor rises at once, its records are removed when that pays.

An ack is one line in the table of leases. Rewriting a block for each would cost as much as a thousand of them, so a
block is rewritten when half of what it holds is done, and dropped when all of it is. Until then readers leave out what
is done; see `acked_seqs`. The head must be locked.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.blocks import Block, names
from eventd.log.leases import acked_seqs
from eventd.log.records import content_size, read_provenance
from eventd.store.database import bulk_insert, execute, execute_many, fetch, fetch_in
from eventd.store.schema import blocks
from federation.lines import split_line

_PLACES = 250
"""Seqs looked up in one statement."""
_RUN = 200
"""Leases read at once where the floor rises."""
_COLUMNS = ", ".join(Block._fields)


class Floor(NamedTuple):
    """Up to where a topic is empty, and how many records beyond that are done or deleted."""

    seq: int
    deleted: int


class _Share(NamedTuple):
    """A block that holds jobs, and how many bytes of its content are done."""

    position: int
    seq: int
    records: int
    bytes: int
    done: int

    @property
    def last(self) -> int:
        return self.seq + self.records - 1


def clear_done(conn: sa.Connection, topic_id: int, seqs: Sequence[int], now: int) -> None:
    """Remove the records of jobs that are done from the blocks of these seqs, where half of the block is done."""
    shares = _shares(conn, topic_id, seqs)
    _remove(conn, topic_id, [share for share in shares if share.done and 2 * share.done >= share.bytes], now)


def clear_acked(conn: sa.Connection, topic_id: int, upto_seq: int, now: int) -> None:
    """Remove the records of all jobs that are done from the blocks that begin at or before a seq.

    After that blocks tell by themselves what lives there: to be called before anything else is removed from them.
    """
    sql = "SELECT seq FROM leases WHERE topic_id = ? AND seq <= ? AND free_at IS NULL"
    done = [seq for (seq,) in fetch(conn, sql, (topic_id, upto_seq))]
    _remove(conn, topic_id, _shares(conn, topic_id, done), now)


def _shares(conn: sa.Connection, topic_id: int, seqs: Sequence[int]) -> list[_Share]:
    """The blocks that hold these seqs."""
    firsts: set[int] = set()
    start = "SELECT max(seq) FROM blocks WHERE topic_id = ? AND seq <= place"
    for at in range(0, len(seqs), _PLACES):
        some = seqs[at : at + _PLACES]
        values = ", ".join(["(CAST(? AS BIGINT))"] * len(some))
        sql = f"WITH places(place) AS (VALUES {values}) SELECT DISTINCT ({start}) FROM places"
        firsts.update(seq for (seq,) in fetch(conn, sql, (*some, topic_id)) if seq is not None)
    done = (
        "SELECT coalesce(sum(size), 0) FROM leases WHERE leases.topic_id = blocks.topic_id"
        " AND leases.seq >= blocks.seq AND leases.seq < blocks.seq + blocks.records AND free_at IS NULL"
    )
    sql = f"SELECT position, seq, records, bytes, ({done}) FROM blocks WHERE topic_id = ? AND seq {{in}}"
    return [_Share(*row) for row in fetch_in(conn, sql, (topic_id,), sorted(firsts))]


def _remove(conn: sa.Connection, topic_id: int, shares: Sequence[_Share], now: int) -> None:
    """Remove what is done from these blocks."""
    if not shares:
        return
    floor = fetch(conn, "SELECT evicted_seq FROM topics WHERE id = ?", (topic_id,))[0][0]
    remaining: list[Block] = []
    for share in shares:
        remaining += _without_done(conn, topic_id, share, floor, now)
    execute_many(conn, "DELETE FROM blocks WHERE position = ?", [(share.position,) for share in shares])
    bulk_insert(conn, blocks, Block._fields, remaining)
    execute_many(
        conn,
        "DELETE FROM leases WHERE topic_id = ? AND seq >= ? AND seq <= ? AND free_at IS NULL",
        [(topic_id, share.seq, share.last) for share in shares],
    )


def _without_done(conn: sa.Connection, topic_id: int, share: _Share, floor: int, now: int) -> list[Block]:
    """What stays of a block: nothing, or a block with empty lines for what is done, cut to what is above the floor."""
    if share.done == share.bytes and not _may_be_known(conn, share.position):
        return []
    block = Block._make(fetch(conn, f"SELECT {_COLUMNS} FROM blocks WHERE position = ?", (share.position,))[0])
    done = acked_seqs(conn, topic_id, share.seq, share.last)
    _forget_identities(conn, block, done, now)
    return emptied(block, done, floor)


def emptied(block: Block, gone: Container[int], floor: int) -> list[Block]:
    """A block with empty lines for the seqs that are gone, without what is at or below the floor; or nothing."""
    skipped = max(0, floor + 1 - block.seq)
    lines: list[str] = []
    size = 0
    for seq, line in enumerate(block.lines.split("\n")[skipped:-1], block.seq + skipped):
        position, path, body = split_line(line)
        if seq in gone:
            body = ""
        size += content_size(body)
        lines.append(f"{position}\t{path}\t{body}\n")
    if not size:
        return []
    return [
        block._replace(
            position=block.position + skipped,
            seq=block.seq + skipped,
            records=len(lines),
            bytes=size,
            lines="".join(lines),
        )
    ]


def _may_be_known(conn: sa.Connection, position: int) -> bool:
    """Whether a block may hold copies whose identity is remembered."""
    paths = names(fetch(conn, "SELECT paths FROM blocks WHERE position = ?", (position,))[0][0])
    return paths is None or any(" " in path for path in paths)


def _forget_identities(conn: sa.Connection, block: Block, gone: Container[int], now: int) -> None:
    """Have the identities of copies that go be remembered for a while only."""
    known = names(block.paths)
    if known is not None and not any(" " in path for path in known):
        return
    went = []
    for seq, line in enumerate(block.lines.split("\n")[:-1], block.seq):
        position, path, _ = split_line(line)
        if seq in gone and (identity := read_provenance(path).id):
            went.append((now, block.topic_id, identity, int(position)))
    sql = "UPDATE event_ids SET gone_at = ? WHERE topic_id = ? AND event_id = ? AND position = ? AND gone_at IS NULL"
    count = execute_many(conn, sql, went)
    execute(conn, "UPDATE topics SET ids = ids - ? WHERE id = ?", (count, block.topic_id))


def raise_floor(conn: sa.Connection, topic_id: int) -> None:
    """Move the floor over all that is done or deleted at the beginning of a queue."""
    row = fetch(conn, "SELECT evicted_seq, deleted, next_seq FROM topics WHERE id = ?", (topic_id,))[0]
    before, head = Floor(row[0], row[1]), row[2] - 1
    after = _rise(conn, topic_id, before, head)
    if after == before:
        return
    position = _position_of(conn, topic_id, after.seq)
    execute(
        conn,
        "UPDATE topics SET evicted_seq = ?, deleted = ?, evicted_position = ? WHERE id = ?",
        (*after, position, topic_id),
    )


def _rise(conn: sa.Connection, topic_id: int, floor: Floor, head: int) -> Floor:
    while floor.seq < head and floor.deleted:
        passed = _done_run(conn, topic_id, floor.seq)
        if passed is None:
            return floor  # the next job is not done
        if not passed:
            passed = _empty_run(conn, topic_id, floor.seq, head)
        if not passed:
            return floor
        floor = Floor(floor.seq + passed, floor.deleted - passed)
    return floor


def _done_run(conn: sa.Connection, topic_id: int, floor: int) -> int | None:
    """How many jobs right beyond the floor are done; None where the first one is not."""
    sql = "SELECT seq, free_at FROM leases WHERE topic_id = ? AND seq > ? ORDER BY seq LIMIT ?"
    rows = fetch(conn, sql, (topic_id, floor, _RUN))
    if rows and rows[0][0] == floor + 1 and rows[0][1] is not None:
        return None
    run = 0
    for seq, free_at in rows:
        if seq != floor + run + 1 or free_at is not None:
            break
        run += 1
    return run


def _empty_run(conn: sa.Connection, topic_id: int, floor: int, head: int) -> int:
    """How many records right beyond the floor are deleted."""
    sql = (
        f"SELECT {_COLUMNS} FROM blocks WHERE topic_id = ? AND seq >="
        " coalesce((SELECT max(seq) FROM blocks WHERE topic_id = ? AND seq <= ?), 0) ORDER BY seq LIMIT 2"
    )
    found = map(Block._make, fetch(conn, sql, (topic_id, topic_id, floor + 1)))
    block = next((block for block in found if block.seq + block.records > floor + 1), None)
    if block is None:
        return head - floor
    if block.seq > floor + 1:
        return block.seq - floor - 1
    lines = block.lines.split("\n")[floor + 1 - block.seq : -1]
    return next((index for index, line in enumerate(lines) if not line.endswith("\t")), len(lines))


def _position_of(conn: sa.Connection, topic_id: int, seq: int) -> int:
    """The position of a record, or, where its block is gone, one between those of its neighbours."""
    sql = "SELECT position, seq, records FROM blocks WHERE topic_id = ? AND seq {} ? ORDER BY seq {} LIMIT 1"
    for position, first, records in fetch(conn, sql.format("<=", "DESC"), (topic_id, seq)):
        if seq < first + records:
            return int(position + seq - first)
    following = fetch(conn, sql.format(">", ""), (topic_id, seq))
    if following:
        return int(following[0][0]) - 1
    return int(fetch(conn, "SELECT next_position - 1 FROM log_heads WHERE id = 1")[0][0])
