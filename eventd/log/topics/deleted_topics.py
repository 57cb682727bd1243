"""Deleted topics, of groups or of records: out of use at once, and removed in the background.

Every row that belongs to a topic refers to its id. Deleting the topic gives it a name that no topic in use can have; a
new topic with the old name gets another id. So no row of the old topic is found under the new one, and the delete
itself touches no record and no receipt, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventd.log.core.head import announce_topics, lock_head
from eventd.log.core.topic_row import DELETED, DELETED_END, IS_DELETED, read_topic_by_id
from eventd.log.cursors.dead_letters import delete_some_dead_letters
from eventd.log.history.closed_trees import close_own
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.retention.prefix import remove_records
from eventd.log.topics.router_rows import remove_routers_of
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, execute_many, fetch
from eventd.store.ids.known import delete_runs

STEP_ROWS = 500
"""Rows and records that one step removes, approximately: a writer waits for it for a few milliseconds."""
STEP_BYTES = 4 << 20
"""Bytes of records that one step removes, approximately."""
TOPICS_AT_ONCE = 10
"""Maximum number of deleted topics whose data one step removes."""
PAGE = 100
"""Maximum number of deleted topics without data that are read, or whose rows in `topics` are deleted, together."""

_TABLES = {
    "event_ids": ("topic_id", "event_id"),
    "id_runs": ("id",),
    "id_ranges": ("topic_id", "first"),
    "gone_ids": ("topic_id", "first"),
    **dict.fromkeys(("dead_letters", "inbound_batches", "inbound_gaps"), ("id",)),
    "inbound_links": ("topic_id", "node"),
    "topic_losses": ("topic_id", "first_seq"),
    "write_keys": ("topic_id", "key"),
    "leases": ("topic_id", "seq"),
    "queues": ("topic_id",),
    "id_conflicts": ("topic_id", "owner", "owner_key", "source", "key_id"),
    "returned_events": ("topic_id", "event_id"),
    "witnessed": ("topic_id", "origin"),
    "closed_trees": ("topic_id", "origin"),
    "history_keys": ("topic_id", "node", "kind"),
    "history_findings": ("id",),
    "trees": ("id",),
    "leaf_hints": ("topic_id", "position"),
    "refuted_events": ("topic_id", "position"),
}
"""The tables whose rows belong to a topic, with their key columns. Each has an index that begins with `topic_id`."""
_OF_TREES = {"tiles": ("tree", "level", "number"), "checkpoints": ("tree", "size"), "witnesses": ("tree", "peer")}
"""The tables whose rows belong to a tree of a topic, with their key columns."""
_KEEP_NOTHING = EvictionLimits(max_records=0, keep_undelivered=False)


class TopicRemoval(NamedTuple):
    """The names of the routers that were deleted with a topic, sorted by bytes, and the new `topics_version`."""

    routers: list[str]
    version: int


def delete_topic(conn: Connection, name: str, *, of_records: bool = False) -> TopicRemoval | None:
    """Take a topic out of use in the open transaction, which must hold the head; None if no topic has the name.

    The routers that read or write it are deleted: a router needs both of its topics. Of this node's trees for a group,
    the ends are kept. `of_records`: it is a topic of records, and the number of these topics decreases.
    """
    sql = "UPDATE topics SET name = ? || CAST(id AS TEXT), due_at = NULL WHERE name = ? RETURNING id"
    found = fetch(conn, sql, (DELETED, name))
    if not found:
        return None
    close_own(conn, found[0][0])
    return TopicRemoval(remove_routers_of(conn, found[0][0]), announce_topics(conn, deleted=int(of_records)))


def read_cleared(conn: Connection, after: str = "") -> list[str]:
    """Return the names of deleted topics of which only the row in `topics` is left: the next `PAGE` after `after`."""
    nothing = "".join(f" AND NOT EXISTS (SELECT 1 FROM {table} WHERE topic_id = topics.id)" for table in _TABLES)
    sql = f"SELECT name FROM topics WHERE name > ? AND name < ? AND evicted_seq = next_seq - 1{nothing}"
    rows = fetch(conn, f"{sql} ORDER BY name LIMIT ?", (after or DELETED, DELETED_END, PAGE))
    return [name for (name,) in rows]


def remove_cleared(conn: Connection, bare: Sequence[str]) -> None:
    """Delete from `topics`, in the open transaction, the rows of the deleted topics with the names `bare`."""
    execute_many(conn, f"DELETE FROM topics WHERE name = ? AND {IS_DELETED}", [(name,) for name in bare])


class ClearStep(NamedTuple):
    """`rows`: how many rows and records a step removed. The next step continues after the name `upto`."""

    upto: str
    rows: int


def clear_deleted(conn: Connection, after: str = "", *, now: int, chunk: int = STEP_ROWS) -> ClearStep | None:
    """Remove about `chunk` rows and records of deleted topics with names after `after`; None if none is left.

    Call it again with `upto` until it returns None. No step handles more than `TOPICS_AT_ONCE` topics, so its cost does
    not depend on their number. The row in `topics` stays for now: a reader that still has the id must find an empty
    topic.
    """
    lock_head(conn)  # before anything else, as everywhere; an append by its old id may be in progress
    sql = "SELECT name, id, form, next_seq - 1 - evicted_seq FROM topics WHERE name > ? AND name < ?"
    topics = fetch(conn, f"{sql} ORDER BY name LIMIT ?", (after or DELETED, DELETED_END, TOPICS_AT_ONCE))
    if not topics:
        return None
    room = chunk
    for _, topic_id, form, held in topics:
        while held and room > 0:
            went = (_clear_events if form == "event" else _clear_records)(conn, topic_id, room, now)
            held, room = held - went if went else 0, room - went
    ids = [topic_id for _, topic_id, *_ in topics]
    for table in _OF_TREES:
        if room > 0:
            room -= _delete_of_trees(conn, table, ids, room)
    room -= delete_runs(conn, ids, room) if room > 0 else 0
    for table in _TABLES:
        if room > 0:
            room -= _delete_rows(conn, table, ids, room)
    return ClearStep(topics[-1][0] if room > 0 else after, chunk - room)


def _clear_events(conn: Connection, topic_id: int, room: int, now: int) -> int:
    return evict(conn, topic_id, _KEEP_NOTHING, now=now, chunk=room, topic_deleted=True).records


def _clear_records(conn: Connection, topic_id: int, room: int, now: int) -> int:
    topic = read_topic_by_id(conn, topic_id)
    left = remove_records(conn, topic, topic.head_seq, now=now, records=room, size=STEP_BYTES)
    return left.evicted_seq - topic.evicted_seq


def _delete_of_trees(conn: Connection, table: str, topic_ids: Sequence[int], room: int) -> int:
    """Delete rows of one table that belong to trees of these topics, at most `room`; return their number.

    Then nothing is left of a tree but its row, which is deleted last.
    """
    key, trees = (
        ", ".join(_OF_TREES[table]),
        f"SELECT id FROM trees WHERE topic_id IN ({', '.join('?' * len(topic_ids))})",
    )
    some = f"SELECT {key} FROM {table} WHERE tree IN ({trees}) LIMIT ?"
    return execute(conn, f"DELETE FROM {table} WHERE ({key}) IN ({some})", (*topic_ids, room))


def _delete_rows(conn: Connection, table: str, topic_ids: Sequence[int], room: int) -> int:
    """Delete rows of one table that belong to these topics, at most `room`; return their number."""
    theirs = f"topic_id IN ({', '.join('?' * len(topic_ids))})"
    if table == "dead_letters":
        return delete_some_dead_letters(conn, theirs, topic_ids, room)
    key = ", ".join(_TABLES[table])
    some = f"SELECT {key} FROM {table} WHERE {theirs} LIMIT ?"
    return execute(conn, f"DELETE FROM {table} WHERE ({key}) IN ({some})", (*topic_ids, room))
