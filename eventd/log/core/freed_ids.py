"""Takes the id of an event from a record: it is free for another event, or that of an earlier record again."""

from __future__ import annotations

from eventd.log.core.head import lock_head
from eventd.log.core.scan import blocks_at, pick_readable
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch


def free_id(conn: Connection, topic_id: int, event_id: str, position: int) -> bool:
    """Free an id whose latest record is at this position; return whether it was freed. The record is not changed.

    False: the id is unknown, or meanwhile that of another record. The next event with this id is stored as a new one.
    Locks the head, because an append in another process may just have read the id.
    """
    lock_head(conn)
    which, params = "topic_id = ? AND event_id = ? AND position = ?", (topic_id, event_id, position)
    stored = execute(conn, f"DELETE FROM event_ids WHERE {which} AND gone_at IS NULL", params)
    # The topic counts the ids that have a stored record: of an evicted one, retention has subtracted it already.
    execute(conn, "UPDATE topics SET ids = ids - ? WHERE id = ?", (stored, topic_id))
    return stored > 0 or execute(conn, f"DELETE FROM event_ids WHERE {which}", params) > 0


def find_refreshed(conn: Connection, topic_id: int, event_id: str, position: int) -> int | None:
    """Return the position of the first record of an event, if the one at `position` is its latest refresh.

    None if it is not, or if the first record is not stored any more.
    """
    which = "topic_id = ? AND event_id = ? AND position = ? AND gone_at IS NULL AND first_position IS NOT NULL"
    rows = fetch(conn, f"SELECT first_position FROM event_ids WHERE {which}", (topic_id, event_id, position))
    blocks = blocks_at(conn, [first for (first,) in rows])
    found = (record for block, places in blocks for record in pick_readable(block, places))
    return next((one.position for one in found if (one.topic_id, one.event_id) == (topic_id, event_id)), None)


def give_back_id(conn: Connection, topic_id: int, event_id: str, first: int) -> None:
    """Make the first record of an event the one with its id again, as if the event had never been refreshed.

    The head must be locked.
    """
    sql = "UPDATE event_ids SET position = ?, first_position = NULL WHERE topic_id = ? AND event_id = ?"
    execute(conn, sql, (first, topic_id, event_id))
