"""The leases of a queue's jobs: which jobs are handed out, to which client and until when, and which are done.

The head must be locked to write. A job that was never handed out has no row; one that was has a row until its record is
deleted. `free_at` is when it may be handed out again: 0 means now; a time in the future is the end of a lease if a
client holds it, and of a delay if not; NULL means that it is done (acked, or a dead letter), and its record, which
readers no longer see, waits for compaction.

Storage functions take the open transaction and commit nothing. Times are microseconds by the steady clock: setting the
wall clock must neither end nor extend leases.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert, execute, execute_many, fetch, fetch_in

LEASE_MS = (100, 86_400_000)
"""The shortest and the longest lease of a job, in milliseconds."""
ENDED_AT_ONCE = 5000
"""Maximum number of leases and delays that one call of `end_leases` ends; the others wait for the next call."""
LONGEST = LEASE_MS[1] * 1000
"""The longest lease, and the longest delay, in microseconds."""

_MOST_LEFT = f"CASE WHEN length > 0 THEN length ELSE {LONGEST} END"
_ENDED = "topic_id = ? AND free_at > 0 AND free_at <= ?"
_COUNTS = "count(*), coalesce(sum(CASE WHEN node <> '' THEN 1 ELSE 0 END), 0)"


class Lease(NamedTuple):
    """A job that was handed out at least once; `node`, its client, and `lease_id` are empty unless it is leased.

    `deliveries` counts how often it was handed out; `size` is the bytes of its data and meta. The lease or delay that
    ends at `free_at` was asked for `length` microseconds before; 0: there is none, or the length is not known.
    """

    seq: int
    node: str
    lease_id: str
    free_at: int | None
    deliveries: int
    size: int
    length: int = 0

    def is_held(self, node: str, lease_id: str, now: int) -> bool:
        """Return whether the client `node` holds the job at `now`, by the lease `lease_id` if that is not empty."""
        valid = self.free_at is not None and now < self.free_at
        return valid and self.node == node and lease_id in ("", self.lease_id)


class LeaseCounts(NamedTuple):
    """Numbers of held and of delayed jobs, or by how much they change."""

    held: int = 0
    delayed: int = 0


class JobCounts(NamedTuple):
    """The jobs of a queue: how many can be claimed now, how many are leased, and how many ever became dead letters."""

    ready: int
    in_flight: int
    dead_lettered: int


def acked_seqs(conn: Connection, topic_id: int, first: int, last: int) -> frozenset[int]:
    """Return the seqs from `first` to `last` (inclusive) of done jobs that are still stored and must be hidden."""
    sql = "SELECT seq FROM leases WHERE topic_id = ? AND seq >= ? AND seq <= ? AND free_at IS NULL"
    return frozenset(seq for (seq,) in fetch(conn, sql, (topic_id, first, last)))


def read_leases(conn: Connection, topic_id: int, seqs: Sequence[int]) -> dict[int, Lease]:
    """Return the rows of these jobs by seq; jobs that were never handed out have none."""
    sql = f"SELECT {', '.join(Lease._fields)} FROM leases WHERE topic_id = ? AND seq {{in}}"
    return {row[0]: Lease(*row) for row in fetch_in(conn, sql, (topic_id,), seqs)}


def read_unfinished_leases(conn: Connection, topic_id: int, *, after: tuple[int, int], limit: int) -> list[Lease]:
    """Return up to `limit` leases and delays of a queue, ordered by their end and seq, after a pair of these."""
    columns, (free_at, seq) = ", ".join(Lease._fields), after
    sql = f"SELECT {columns} FROM leases WHERE topic_id = ? AND free_at"
    same = f"{sql} = ? AND seq > ? ORDER BY seq LIMIT ?"
    rows = fetch(conn, same, (topic_id, free_at, seq, limit))
    later = f"{sql} > ? ORDER BY free_at, seq LIMIT ?"
    rows += fetch(conn, later, (topic_id, free_at, limit - len(rows))) if len(rows) < limit else []
    return [Lease(*row) for row in rows]


MOST_QUEUES = 200
"""Maximum number of queues with dead letters that are read."""


def read_dead_lettering(conn: Connection, limit: int) -> list[tuple[str, str]]:
    """Return the names of up to `limit` queues that have had dead letters, each with the topic of its dead letters."""
    sql = (
        "SELECT t.name, t.config FROM queues q JOIN topics t ON t.id = q.topic_id"
        " WHERE q.dead_lettered > 0 AND t.name >= '0' ORDER BY t.name LIMIT ?"
    )
    rows = fetch(conn, sql, (limit,))
    found = [(name, msgspec.json.decode(config).get("dead_letter")) for name, config in rows]
    return [(str(name), letters) for name, letters in found if letters]


def count_jobs(conn: Connection, topic_id: int, live: int, now: int) -> JobCounts:
    """Count the jobs of a queue with `live` records; a job whose lease or delay has ended counts as ready."""
    rows = fetch(conn, "SELECT held, delayed, dead_lettered FROM queues WHERE topic_id = ?", (topic_id,))
    if not rows:
        return JobCounts(live, 0, 0)
    held, delayed, dead_lettered = rows[0]
    ended, ended_leases = fetch(conn, f"SELECT {_COUNTS} FROM leases WHERE {_ENDED}", (topic_id, now))[0]
    in_flight = held - ended_leases
    waiting = delayed - (ended - ended_leases)
    return JobCounts(max(0, live - in_flight - waiting), in_flight, dead_lettered)


def first_end(conn: Connection, topic_id: int) -> int | None:
    """Return when the first lease or delay of a queue ends, perhaps in the past; None without any."""
    sql = "SELECT min(free_at) FROM leases WHERE topic_id = ? AND free_at > 0"
    end: int | None = fetch(conn, sql, (topic_id,))[0][0]
    return end


def first_ended(conn: Connection, topic_id: int, after: int, now: int) -> int | None:
    """Return the first seq after `after` of the `ENDED_AT_ONCE` jobs whose lease or delay ended first; None without."""
    ended = f"SELECT seq FROM leases WHERE {_ENDED} ORDER BY free_at, seq LIMIT {ENDED_AT_ONCE}"
    sql = f"SELECT min(seq) FROM ({ended}) AS ended WHERE seq > ?"
    seq: int | None = fetch(conn, sql, (topic_id, now, after))[0][0]
    return seq


def end_leases(conn: Connection, topic_id: int, now: int) -> LeaseCounts:
    """Free the first `ENDED_AT_ONCE` jobs whose lease or delay has ended.

    Returns by how much the numbers of held and delayed jobs change; the caller adds this to the queue's row.
    """
    sql = f"SELECT seq, node FROM leases WHERE {_ENDED} ORDER BY free_at LIMIT {ENDED_AT_ONCE}"
    ended = fetch(conn, sql, (topic_id, now))
    held = sum(node != "" for _, node in ended)
    free(conn, topic_id, [seq for seq, _ in ended])
    return LeaseCounts(-held, held - len(ended))


def free(conn: Connection, topic_id: int, seqs: Sequence[int], free_at: int = 0, length: int = 0) -> None:
    """End the leases of jobs, which may be handed out again after a delay of `length`, at `free_at`; 0: at once."""
    sql = "UPDATE leases SET node = '', lease_id = '', free_at = ?, length = ? WHERE topic_id = ? AND seq = ?"
    execute_many(conn, sql, [(free_at, length, topic_id, seq) for seq in seqs])


def read_free(conn: Connection, topic_id: int, after: int, limit: int) -> list[Lease]:
    """Return the rows of the first `limit` jobs after the seq `after` that were freed (`free_at` is 0)."""
    names = ", ".join(Lease._fields)
    sql = f"SELECT {names} FROM leases WHERE topic_id = ? AND free_at = 0 AND seq > ? ORDER BY seq LIMIT ?"
    return [Lease(*row) for row in fetch(conn, sql, (topic_id, after, limit))]


def add_leases(conn: Connection, topic_id: int, made: Sequence[Lease]) -> None:
    """Insert the leases of jobs that are handed out for the first time."""
    bulk_insert(conn, "leases", ("topic_id", *Lease._fields), [(topic_id, *lease) for lease in made])


def renew_leases(conn: Connection, topic_id: int, renewed: Sequence[Lease]) -> None:
    """Update the leases of jobs that are handed out again."""
    sql = (
        "UPDATE leases SET node = ?, lease_id = ?, free_at = ?, deliveries = ?, size = ?, length = ?"
        " WHERE topic_id = ? AND seq = ?"
    )
    execute_many(conn, sql, [(*lease[1:], topic_id, lease.seq) for lease in renewed])


def extend_leases(conn: Connection, topic_id: int, seqs: Sequence[int], free_at: int, length: int) -> None:
    """Set the end of these leases to `free_at`, which is `length` from now."""
    sql = "UPDATE leases SET free_at = ?, length = ? WHERE topic_id = ? AND seq = ?"
    execute_many(conn, sql, [(free_at, length, topic_id, seq) for seq in seqs])


def mark_done(conn: Connection, topic_id: int, seqs: Sequence[int]) -> None:
    """End the leases of jobs and mark these as done: readers do not see them any more."""
    sql = "UPDATE leases SET node = '', lease_id = '', free_at = NULL WHERE topic_id = ? AND seq = ?"
    execute_many(conn, sql, [(topic_id, seq) for seq in seqs])


def forget_upto(conn: Connection, topic_id: int, seq: int) -> None:
    """Delete the lease rows of all jobs up to and including `seq`, and subtract them from the queue's counts.

    The caller deletes their records.
    """
    where = "topic_id = ? AND seq <= ?"
    held, delayed = _count_open(conn, where, (topic_id, seq))
    if execute(conn, f"DELETE FROM leases WHERE {where}", (topic_id, seq)):
        add_moves(conn, topic_id, LeaseCounts(-held, -delayed))


def forget_jobs(conn: Connection, topic_id: int, seqs: Collection[int]) -> None:
    """Delete the lease rows of these jobs, and subtract them from the queue's counts.

    The caller deletes their records.
    """
    found = read_leases(conn, topic_id, sorted(seqs))
    open_ = [lease for lease in found.values() if lease.free_at]
    held = sum(lease.node != "" for lease in open_)
    execute_many(conn, "DELETE FROM leases WHERE topic_id = ? AND seq = ?", [(topic_id, seq) for seq in found])
    add_moves(conn, topic_id, LeaseCounts(-held, held - len(open_)))


def _count_open(conn: Connection, where: str, params: tuple[int, ...]) -> LeaseCounts:
    """Return the numbers of held and of delayed jobs among the rows that satisfy a condition."""
    several, held = fetch(conn, f"SELECT {_COUNTS} FROM leases WHERE {where} AND free_at > 0", params)[0]
    return LeaseCounts(held, several - held)


def add_moves(conn: Connection, topic_id: int, moved: LeaseCounts) -> None:
    """Add changes to the stored numbers of held and delayed jobs of a queue."""
    if any(moved):
        sql = "UPDATE queues SET held = held + ?, delayed = delayed + ? WHERE topic_id = ?"
        execute(conn, sql, (*moved, topic_id))


def release_leases(conn: Connection, steady: int) -> None:
    """Free the held and delayed jobs of all queues without `leases_durable`; for when a node starts.

    The count of deliveries stays. The steady clock restarts with a node, perhaps far behind the earlier one: a lease or
    delay that survives ends no later than one of the same length that begins now, and for that reason none too early.
    """
    for topic_id, config in fetch(conn, "SELECT id, config FROM topics WHERE id IN (SELECT topic_id FROM queues)"):
        if msgspec.json.decode(config)["leases_durable"]:
            sql = f"UPDATE leases SET free_at = ? + {_MOST_LEFT} WHERE topic_id = ? AND free_at > ? + {_MOST_LEFT}"
            execute(conn, sql, (steady, topic_id, steady))
            continue
        where = "topic_id = ? AND free_at > 0"
        execute(conn, f"UPDATE leases SET node = '', lease_id = '', free_at = 0 WHERE {where}", (topic_id,))
        execute(conn, "UPDATE queues SET held = 0, delayed = 0 WHERE topic_id = ?", (topic_id,))
