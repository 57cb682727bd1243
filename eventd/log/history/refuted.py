"""Refuted events: records whose node's tree shows that the node never admitted them.

The record stays where it is, and is marked. Its id is free, so that the true event with this id can be stored.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from eventd.log.core.freed_ids import free_id
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, fetch_in, insert_row


class RefutedRecord(NamedTuple):
    """A record that the tree `origin` refutes: its sender said that it has the leaf `leaf` there."""

    position: int
    event_id: str
    origin: str
    leaf: int
    refuted_at: int


def keep_refuted(conn: Connection, topic_id: int, record: RefutedRecord) -> None:
    """Mark a record as refuted, and free its id. Locks the head."""
    free_id(conn, topic_id, record.event_id, record.position)
    insert_row(conn, "refuted_events", {"topic_id": topic_id} | record._asdict(), "ON CONFLICT DO NOTHING")


def find_refuted(conn: Connection, topic_id: int, event_id: str) -> list[RefutedRecord]:
    """Return the refuted records with this event id, the newest first."""
    sql = (
        "SELECT position, event_id, origin, leaf, refuted_at FROM refuted_events WHERE topic_id = ? AND event_id = ?"
        " ORDER BY position DESC LIMIT 100"
    )
    return [*map(RefutedRecord._make, fetch(conn, sql, (topic_id, event_id)))]


def refuted_among(conn: Connection, topic_id: int, positions: Collection[int]) -> set[int]:
    """Return those of these positions whose records are refuted."""
    sql = "SELECT position FROM refuted_events WHERE topic_id = ? AND position {in}"
    return {position for (position,) in fetch_in(conn, sql, (topic_id,), list(positions))}


def delete_refuted(conn: Connection, topic_id: int, upto: int) -> None:
    """Delete the marks of evicted records: of those at positions up to `upto`."""
    execute(conn, "DELETE FROM refuted_events WHERE topic_id = ? AND position <= ?", (topic_id, upto))
