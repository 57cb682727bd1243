"""The head row and the topics: where the next record goes.

Whoever appends first locks the head row, and holds it until its commit. So positions are given in the order of commits,
without holes, in one process or several, and a reader that has seen position n has seen everything below it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from eventd.errors import DatabaseUnusable, NotFound
from eventd.log.values import Head, Topic
from eventd.store.database import execute, fetch, for_update, insert, notify_head, run_of_system
from eventd.store.migrations import new_epoch
from eventd.store.schema import log_heads, topics

_HEAD = "next_position, epoch, incarnation, registry_version, parts_version, topics_version, unsynced"
_COLUMNS = "id, name, next_seq, bytes, ids, evicted_seq, evicted_position, lost_position"


def lock_head(conn: sa.Connection) -> Head:
    """Lock the head row until the transaction ends. Must come before any cursor is locked."""
    return _head(fetch(conn, f"SELECT {_HEAD} FROM log_heads WHERE id = 1{for_update(conn)}"))


def read_head(conn: sa.Connection) -> Head:
    """The head as this snapshot sees it."""
    return _head(fetch(conn, f"SELECT {_HEAD} FROM log_heads WHERE id = 1"))


def _head(rows: list[tuple[int, str, int, int, int, int, str]]) -> Head:
    if not rows:
        raise DatabaseUnusable("the database has no log head", hint="run `routerd-eventd migrate`")
    return Head(*rows[0])


def move_head(conn: sa.Connection, next_position: int) -> None:
    """Record the next free position. The head must be locked."""
    execute(conn, "UPDATE log_heads SET next_position = ? WHERE id = 1", (next_position,))


def mark_unsynced(conn: sa.Connection, run: str) -> None:
    """Say that commits may be lost when this run of the system ends badly; with an empty one, that none can be."""
    execute(conn, "UPDATE log_heads SET unsynced = ? WHERE id = 1", (run,))


def touch_head(conn: sa.Connection) -> None:
    """Write something, so that the commit takes all that was committed before to the disk.

    Danger: it has to be another value. SQLite does not write a row that stays as it was, and then flushes nothing.
    """
    execute(conn, "UPDATE log_heads SET flushes = flushes + 1 WHERE id = 1")


def settle_unsynced(conn: sa.Connection) -> None:
    """Everything is on the disk when this is committed, as `Database.write` does."""
    if lock_head(conn).unsynced:
        mark_unsynced(conn, "")


def recover(conn: sa.Connection) -> bool:
    """Begin a new history if commits may have been lost since the log was written last; whether they may.

    They are when the run of the system has ended in which they were made, before all were on the disk. A process that
    was killed has lost nothing: what it had written, the system goes on to write.
    """
    unsynced = read_head(conn).unsynced
    if not unsynced or unsynced == run_of_system(conn):
        return False
    lock_head(conn)
    renew_epoch(conn)
    mark_unsynced(conn, "")
    return True


def require_whole(conn: sa.Connection, head: Head, seen: int) -> Head:
    """The head as it is, unless the log ends before a position that was `seen`. The head must be locked.

    Then the database came back without its last commits, under a process that goes on. A new history begins, beyond
    all that anybody here has seen: who waits for more than that must not miss what comes in the place of what is lost.
    """
    if head.last >= seen:
        return head
    renew_epoch(conn)
    mark_unsynced(conn, "")
    move_head(conn, seen + 1)
    return read_head(conn)


def announce_topics(conn: sa.Connection) -> None:
    """Say, at commit, that topics, routers or keys have changed. The head must be locked."""
    execute(conn, "UPDATE log_heads SET topics_version = topics_version + 1 WHERE id = 1")
    notify_head(conn)


def renew_epoch(conn: sa.Connection) -> str:
    """Begin a new history: every position given to others before is void. For restored copies."""
    epoch = new_epoch()
    conn.execute(log_heads.update().values(epoch=epoch))
    return epoch


def renew_epoch_of(conn: sa.Connection, epoch: str) -> str:
    """`renew_epoch` if the history still is this one; otherwise nothing happens, and the answer is empty."""
    return renew_epoch(conn) if lock_head(conn).epoch == epoch else ""


def first_line(name: str, now: int) -> dict[str, Any]:
    """The line of a topic that is made now, by column."""
    nothing = ("bytes", "ids", "evicted_seq", "evicted_position", "lost_position")
    return {"name": name, "next_seq": 1, **dict.fromkeys(nothing, 0), "created_at": now}


def ensure_topic(conn: sa.Connection, name: str, now: int) -> int:
    """The id of the topic, made if it is missing."""
    conn.execute(
        insert(conn, topics).values(**first_line(name, now)).on_conflict_do_nothing(index_elements=[topics.c.name])
    )
    return read_topic(conn, name).id


def read_topic(conn: sa.Connection, name: str) -> Topic:
    """The topic's line. Raises `NotFound`."""
    rows = fetch(conn, f"SELECT {_COLUMNS} FROM topics WHERE name = ?", (name,))
    if not rows:
        raise NotFound(f"no topic {name!r}")
    return Topic(*rows[0])


def read_topics(conn: sa.Connection) -> list[Topic]:
    """The topics of groups, also of deleted ones, by name. There may be many others: they are not looked at."""
    where = "form = 'event' AND (name < '0' OR (name >= 'group:' AND name < 'group;'))"
    found = [Topic(*row) for row in fetch(conn, f"SELECT {_COLUMNS} FROM topics WHERE {where}")]
    return sorted(found, key=lambda topic: topic.name)


def read_topic_bytes(conn: sa.Connection, topic_id: int) -> int:
    """Bytes of the bodies a topic stores."""
    return int(fetch(conn, "SELECT bytes FROM topics WHERE id = ?", (topic_id,))[0][0])
