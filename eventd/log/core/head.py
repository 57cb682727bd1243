"""The head row and the topics: where the next record goes.

Whoever appends first locks the head row, and holds it until its commit. So positions are given in the order of commits,
without holes, in one process or several, and a reader that has seen position n has seen everything below it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from eventd.errors import DatabaseUnusable, NotFound
from eventd.log.core.values import Head, Topic
from eventd.store.engine.database import execute, fetch, for_update, insert, notify_head, run_of_system
from eventd.store.engine.head_file import Acknowledged
from eventd.store.schema.migrations import new_epoch
from eventd.store.schema.tables import log_heads, topics

DELETED = "-retired:"
"""Prefix of the name of a deleted topic. No name of a group or a topic begins with a dash."""
DELETED_END = f"{DELETED[:-1]};"
IS_DELETED = f"(name >= '{DELETED}' AND name < '{DELETED_END}')"
"""As a range, which an index finds among many topics."""

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


def move_head(conn: sa.Connection, next_position: int, record_bytes: int = 0) -> None:
    """Record the next free position, and by how many bytes topics of records have grown. The head must be locked."""
    sql = "UPDATE log_heads SET next_position = ?, record_bytes = record_bytes + ? WHERE id = 1"
    execute(conn, sql, (next_position, record_bytes))


def shrink(conn: sa.Connection, size: int) -> None:
    """Record that topics of records hold so many bytes less. The head must be locked."""
    if size:
        execute(conn, "UPDATE log_heads SET record_bytes = record_bytes - ? WHERE id = 1", (size,))


def mark_unsynced(conn: sa.Connection, run: str) -> None:
    """Say that commits may be lost when this run of the system ends badly; with an empty one, that none can be."""
    execute(conn, "UPDATE log_heads SET unsynced = ? WHERE id = 1", (run,))


def touch_head(conn: sa.Connection) -> None:
    """Write something, so that the commit takes all that was committed before to the disk.

    Danger: it has to be another value. SQLite does not write a row that stays as it was, and then flushes nothing.
    """
    execute(conn, "UPDATE log_heads SET flushes = flushes + 1 WHERE id = 1")


def settle_unsynced(conn: sa.Connection) -> Head:
    """Everything is on the disk when this is committed, as `Database.write` does; the head as it then is."""
    head = lock_head(conn)
    if head.unsynced:
        mark_unsynced(conn, "")
    return head


class Recovered(NamedTuple):
    """The head of a log that is opened, the name of its database, and why a new epoch began; blank if none did."""

    head: Head
    instance: str
    reason: str


def recover(conn: sa.Connection, acknowledged: Acknowledged | None) -> Recovered:
    """Begin a new epoch if the database lacks commits that were made, or may lack some.

    It may when the run of the system has ended in which they were made, before all were on the disk. A process that
    was killed has lost nothing: what it had written, the system continues to write. It does when it is an older copy:
    `acknowledged` must have been read before the transaction began.
    """
    head = read_head(conn)
    ((instance,),) = fetch(conn, "SELECT instance FROM log_heads WHERE id = 1")
    reason = ""
    if head.unsynced and head.unsynced != run_of_system(conn):
        reason = "the system ended before all commits were on the disk"
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
    return Recovered(head, instance, reason)


def _is_older(head: Head, instance: str, acknowledged: Acknowledged) -> bool:
    """Whether the same database has been further, or in another epoch: a new one is recorded where it begins."""
    if instance != acknowledged.instance:
        return False
    return head.epoch != acknowledged.epoch or head.last < acknowledged.last


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


def announce_topics(conn: sa.Connection, *, deleted: int = 0) -> int:
    """Say, at commit, that topics, routers or keys have changed; the version this makes. The head must be locked.

    `deleted`: so many topics of records are no more.
    """
    changed = "topics_version = topics_version + 1, topics = topics - ?"
    sql = f"UPDATE log_heads SET {changed} WHERE id = 1 RETURNING topics_version"
    ((version,),) = fetch(conn, sql, (deleted,))
    notify_head(conn)
    return int(version)


def renew_epoch(conn: sa.Connection) -> str:
    """Begin a new history: every position given to others before is void. For restored copies."""
    epoch = new_epoch(conn)
    conn.execute(log_heads.update().values(epoch=epoch))
    return epoch


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


def read_topics(conn: sa.Connection, *, deleted: bool = False) -> list[Topic]:
    """The topics of groups by name, with `deleted` also of deleted groups. The others, of any number, are not read."""
    where = "name >= 'group:' AND name < 'group;'" + (" OR name < '0'" if deleted else "")
    found = [Topic(*row) for row in fetch(conn, f"SELECT {_COLUMNS} FROM topics WHERE form = 'event' AND ({where})")]
    return sorted(found, key=lambda topic: topic.name)


def read_topic_bytes(conn: sa.Connection, topic_id: int) -> int:
    """Bytes of the bodies a topic stores."""
    return int(fetch(conn, "SELECT bytes FROM topics WHERE id = ?", (topic_id,))[0][0])


def require_in_use(conn: sa.Connection, head: Head, topic_id: int) -> None:
    """Raise `NotFound` when the topic was retired. The head must be locked.

    A topic is retired by a declared change only, so one that was found in use is looked up again only when the version
    of what is declared has moved. The connection remembers, for it lives as long as one process's writing.
    """
    found: dict[int, int] = conn.info.setdefault("topics in use", {})
    if found.get(topic_id) == head.registry_version:
        return
    found.pop(topic_id, None)
    if not fetch(conn, f"SELECT 1 FROM topics WHERE id = ? AND NOT {IS_DELETED}", (topic_id,)):
        raise NotFound("the group was deleted meanwhile", hint="declare it again, or publish to another one")
    found[topic_id] = head.registry_version
