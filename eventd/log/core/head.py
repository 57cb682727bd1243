"""The head row: the position of the next record.

A transaction that appends locks the head row first, and holds it until its commit. So positions follow the order of
commits, without holes, in one process or several, and a reader that has seen position n has seen everything below it.
"""

from __future__ import annotations

from typing import NamedTuple

from eventd.errors import DatabaseUnusable
from eventd.log.core.values import Head
from eventd.store.engine.database import Connection
from eventd.store.engine.head_file import HeadMark
from eventd.store.engine.statements import execute, fetch, for_update, notify_head, run_of_system
from eventd.store.ids.runs import has_runs
from eventd.store.schema.migrations import new_epoch

_HEAD = "next_position, epoch, incarnation, registry_version, parts_version, topics_version, unsynced"


def lock_head(conn: Connection) -> Head:
    """Lock the head row until the transaction ends, and return it. Must be called before any cursor is locked."""
    return _head(fetch(conn, f"SELECT {_HEAD} FROM log_heads WHERE id = 1{for_update(conn)}"))


def read_head(conn: Connection) -> Head:
    """Return the head in this snapshot."""
    return _head(fetch(conn, f"SELECT {_HEAD} FROM log_heads WHERE id = 1"))


def _head(rows: list[tuple[int, str, int, int, int, int, str]]) -> Head:
    if not rows:
        raise DatabaseUnusable("the database has no log head", hint="run `routerd-eventd migrate`")
    return Head(*rows[0])


def move_head(conn: Connection, next_position: int, record_bytes: int = 0) -> None:
    """Store the next free position, and add bytes to the size of all topics of records. The head must be locked."""
    sql = "UPDATE log_heads SET next_position = ?, record_bytes = record_bytes + ? WHERE id = 1"
    execute(conn, sql, (next_position, record_bytes))


def shrink(conn: Connection, size: int) -> None:
    """Subtract bytes from the total size of all topics of records, which the head row stores.

    The head must be locked.
    """
    if size:
        execute(conn, "UPDATE log_heads SET record_bytes = record_bytes - ? WHERE id = 1", (size,))


def mark_unsynced(conn: Connection, run: str) -> None:
    """Record that commits may be lost if `run`, which names a boot of the system or a run of Postgres, ends in a
    crash.

    If `run` is empty, record that no commit can be lost.
    """
    execute(conn, "UPDATE log_heads SET unsynced = ? WHERE id = 1", (run,))


def touch_head(conn: Connection) -> None:
    """Change a row, so that the commit flushes everything committed before.

    Danger: the value must change. SQLite does not write a row that stays the same, and then flushes nothing.
    """
    execute(conn, "UPDATE log_heads SET flushes = flushes + 1 WHERE id = 1")


def settle_unsynced(conn: Connection) -> Head:
    """Record that no commit can be lost any more, and return the head.

    This holds once `Database.write` has committed it, which flushes everything committed before.
    """
    head = lock_head(conn)
    if head.unsynced:
        mark_unsynced(conn, "")
    return head


class Recovery(NamedTuple):
    """The head of a log that is opened, the random name of its database (`instance`), and why a new epoch began.

    `reason` is empty if none began. `has_runs`: ids are in sorted runs, of which a merge may have been left unfinished.
    """

    head: Head
    instance: str
    reason: str
    has_runs: bool = False


def read_instance(conn: Connection) -> str:
    """Return the random name of the database, which a copy of it shares."""
    ((instance,),) = fetch(conn, "SELECT instance FROM log_heads WHERE id = 1")
    return str(instance)


def recover(conn: Connection, acknowledged: HeadMark | None) -> Recovery:
    """Return the `Recovery` of a log that is opened; first begin a new epoch if commits are, or may be, lacking.

    An older copy of the database lacks commits; `acknowledged` (the head file's content, None if unknown) shows that,
    and must have been read before the transaction began. Commits may be lacking if the operating system, or the
    Postgres server, ended before it had flushed all of them. A killed node loses nothing: the operating system writes
    its data.
    """
    head, instance = read_head(conn), read_instance(conn)
    reason = ""
    if may_lack_commits(head.unsynced, run_of_system(conn)):
        reason = "this machine, or the Postgres server, ended before all commits were known to be on the disk"
    if acknowledged is not None and _is_older(head, instance, acknowledged):
        reason = (
            f"the database is an older copy: it ends at position {head.last} of the epoch {head.epoch}, and this node "
            f"has acknowledged position {acknowledged.last} of the epoch {acknowledged.epoch}"
        )
    if reason:
        lock_head(conn)
        renew_epoch(conn)
        mark_unsynced(conn, "")
        head = read_head(conn)
    return Recovery(head, instance, reason, has_runs(conn))


def may_lack_commits(unsynced: str, run: str) -> bool:
    """Return whether commits may be lacking: they were not flushed in a run of the system that has ended since."""
    return bool(unsynced) and unsynced != run


def _is_older(head: Head, instance: str, acknowledged: HeadMark) -> bool:
    """Return whether the head file shows that this node acknowledged more of the database `instance` than `head` has.

    Another epoch shows that as well: the head file gets a new epoch as soon as it begins.
    """
    if instance != acknowledged.instance:
        return False
    return head.epoch != acknowledged.epoch or head.last < acknowledged.last


def require_whole(conn: Connection, head: Head, seen: int) -> Head:
    """Return the head; first begin a new epoch if the log ends before the position `seen`. The head must be locked.

    In that case the database came back without its last commits while this process kept running. The new
    epoch begins beyond `seen`, the last position that this process knows: a reader that waits beyond it must not miss
    what replaces the lost records.
    """
    if head.last >= seen:
        return head
    renew_epoch(conn)
    mark_unsynced(conn, "")
    move_head(conn, seen + 1)
    return read_head(conn)


def announce_topics(conn: Connection, *, deleted: int = 0) -> int:
    """Increase `topics_version`, which covers topics, routers and API keys, and notify other processes at commit.

    Returns the new version. The head must be locked.

    `deleted`: how many topics of records were deleted; their number in the head decreases by it.
    """
    changed = "topics_version = topics_version + 1, topics = topics - ?"
    sql = f"UPDATE log_heads SET {changed} WHERE id = 1 RETURNING topics_version"
    ((version,),) = fetch(conn, sql, (deleted,))
    notify_head(conn)
    return int(version)


def renew_epoch(conn: Connection) -> str:
    """Begin a new epoch for a log that was restored or lost commits; return the name of the epoch.

    Positions of the log that other nodes remember become invalid.
    """
    epoch = new_epoch(conn)
    execute(conn, "UPDATE log_heads SET epoch = ?", (epoch,))
    return epoch
