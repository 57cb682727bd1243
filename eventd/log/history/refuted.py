"""Refuted events: records whose node's tree shows that the node never admitted them.

The record stays where it is, and is marked. Its id is free, so that the true event with this id can be stored; that of
a refresh is the id of the first record of the event again. A record whose id was released, because a proof has shown
that another event has it by right, is marked as well: with the leaf of that event.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from eventd.log.core.freed_ids import find_refreshed, free_id, give_back_id
from eventd.log.core.head import lock_head
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, fetch_in, insert_row

_COLUMNS: Final = "position, event_id, origin, leaf, refuted_at"


class RefutedRecord(NamedTuple):
    """A record that the tree `origin` refutes: its sender said that it has the leaf `leaf` there.

    Or, where the tree is of another node than the one that admitted the record, the leaf of the event that has its id
    by right.
    """

    position: int
    event_id: str
    origin: str
    leaf: int
    refuted_at: int

    @property
    def node(self) -> str:
        """Return the node of the tree."""
        return self.origin.split("/")[2]


def keep_refuted(conn: Connection, topic_id: int, record: RefutedRecord) -> bool:
    """Mark a record as refuted, and take its id from it; return whether the id is free now. Locks the head.

    Otherwise it is that of another record of the event: of the first one, if this is a forged refresh of it.
    """
    lock_head(conn)
    first = find_refreshed(conn, topic_id, record.event_id, record.position)
    if first is not None and not read_refuted_at(conn, topic_id, [first]):
        give_back_id(conn, topic_id, record.event_id, first)
        is_free = False
    else:
        is_free = free_id(conn, topic_id, record.event_id, record.position)
    insert_row(conn, "refuted_events", {"topic_id": topic_id} | record._asdict(), "ON CONFLICT DO NOTHING")
    return is_free


def keep_released(conn: Connection, topic_id: int, record: RefutedRecord, *, is_stored: bool) -> bool:
    """Free the id of a record, and mark it and the one that it refreshed; return whether the id was freed."""
    lock_head(conn)
    first = find_refreshed(conn, topic_id, record.event_id, record.position)
    if not free_id(conn, topic_id, record.event_id, record.position):
        return False
    for position in (record.position if is_stored else None, first):
        if position is None:
            continue
        row = {"topic_id": topic_id} | record._replace(position=position)._asdict()
        insert_row(conn, "refuted_events", row, "ON CONFLICT DO NOTHING")
    return True


def find_refuted(conn: Connection, topic_id: int, event_id: str) -> list[RefutedRecord]:
    """Return the refuted records with this event id, the newest first."""
    sql = f"SELECT {_COLUMNS} FROM refuted_events WHERE topic_id = ? AND event_id = ? ORDER BY position DESC LIMIT 100"
    return [*map(RefutedRecord._make, fetch(conn, sql, (topic_id, event_id)))]


def read_refuted_at(conn: Connection, topic_id: int, positions: Collection[int]) -> list[RefutedRecord]:
    """Return those records at these positions that are refuted."""
    sql = f"SELECT {_COLUMNS} FROM refuted_events WHERE topic_id = ? AND position {{in}}"
    return [*map(RefutedRecord._make, fetch_in(conn, sql, (topic_id,), list(positions)))] if positions else []


def delete_refuted(conn: Connection, topic_id: int, upto: int) -> None:
    """Delete the marks of evicted records: of those at positions up to `upto`."""
    execute(conn, "DELETE FROM refuted_events WHERE topic_id = ? AND position <= ?", (topic_id, upto))
