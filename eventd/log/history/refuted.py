"""Refuted events: records whose node's tree shows that the node never admitted them.

The record stays where it is, and is marked. Its id is free, so that the true event with this id can be stored; that of
a refresh is the id of the record that it refreshed again. The records of an event whose id was released, because a
proof has shown that another event has it by right, are marked as well: with the leaf of that event.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from eventd.log.core.freed_ids import find_records, free_id, give_back_id
from eventd.log.core.head import lock_head
from eventd.log.core.scan import stored_at
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, fetch_in, insert_row
from eventd.store.ids.known import read_ids_of

MOST_BACK: Final = 200_000
"""How many records of a log are read back for the one that a refuted record refreshed: many may be refuted."""
MOST_LOCKED: Final = 10_000
"""How many records are read back while the head is locked: writers wait."""
_COLUMNS: Final = "position, event_id, origin, leaf, refuted_at, kind"


class MarkKind(StrEnum):
    """Why a record does not have its id any more."""

    REFUTED = "refuted"
    """The tree of its node does not have it."""
    RELEASED = "released"
    """A proof has shown that another event has the id by right."""


class RefutedRecord(NamedTuple):
    """A record that the tree `origin` refutes: its sender said that it has the leaf `leaf` there.

    Or one whose id was released: then this is the leaf of the event that has the id by right.
    """

    position: int
    event_id: str
    origin: str
    leaf: int
    refuted_at: int
    kind: str = MarkKind.REFUTED


def find_refreshed(conn: Connection, topic_id: int, event_id: str, position: int) -> list[int] | None:
    """Return the positions of the records before this one that it refreshed, the newest first.

    If the one before is more than `MOST_BACK` records back, only the first one. They may all be evicted. None if the
    record refreshed none: then nothing was read.
    """
    known = read_ids_of(conn, topic_id, [event_id]).get(event_id)
    if known is None or known.first_position is None or known.first_position >= position:
        return None
    return find_records(conn, topic_id, event_id, position, most=MOST_BACK)[1:]


def keep_refuted(conn: Connection, topic_id: int, record: RefutedRecord, refreshed: Sequence[int] = ()) -> bool:
    """Mark a record as refuted, and take its id from it; return whether the id is free now. Locks the head.

    Otherwise it is that of another record of the event: of the latest one of `refreshed`, the positions of the records
    that this one refreshed, that is not refuted.
    """
    lock_head(conn)
    of = conn, topic_id, record.event_id, record.position
    genuine = stored_at(conn, topic_id, refreshed) - {
        one.position for one in read_refuted_at(conn, topic_id, refreshed)
    }
    is_free = not (genuine and give_back_id(*of, max(genuine))) and free_id(*of)
    insert_row(conn, "refuted_events", {"topic_id": topic_id} | record._asdict(), "ON CONFLICT DO NOTHING")
    if not is_free:
        _correct_first(conn, topic_id, record.event_id)
    return is_free


def _correct_first(conn: Connection, topic_id: int, event_id: str) -> None:
    """Make the oldest genuine record that is found the first one of an event whose first record is refuted."""
    sql = (
        "SELECT e.position FROM event_ids e JOIN refuted_events r ON r.topic_id = e.topic_id"
        " AND r.position = e.first_position WHERE e.topic_id = ? AND e.event_id = ? AND e.gone_at IS NULL"
    )
    for (latest,) in fetch(conn, sql, (topic_id, event_id)):
        records = find_records(conn, topic_id, event_id, latest, most=MOST_LOCKED)
        refuted = {one.position for one in read_refuted_at(conn, topic_id, records)}
        first = min({*records} - refuted, default=latest)
        update = "UPDATE event_ids SET first_position = ? WHERE topic_id = ? AND event_id = ?"
        execute(conn, update, (first if first < latest else None, topic_id, event_id))


def keep_released(conn: Connection, topic_id: int, record: RefutedRecord, positions: Sequence[int]) -> bool:
    """Free the id of a record, and mark all records of its event; return whether the id was freed.

    `positions`: those of the records, which were read before.
    """
    if not free_id(conn, topic_id, record.event_id, record.position):
        return False
    for position in stored_at(conn, topic_id, positions):
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
