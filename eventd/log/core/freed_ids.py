"""Frees the id of an event, so that another event can have it."""

from __future__ import annotations

from eventd.log.core.head import lock_head
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute


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
