"""Shows the marks of events that the tree of their node refutes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from eventd.api.framework.moments import show_time
from eventd.errors import NotFound
from eventd.log.core.listing import read_id_places
from eventd.log.core.scan import read_at
from eventd.log.core.values import Record
from eventd.log.history.refuted import find_refuted, read_refuted_at
from eventd.store.engine.database import Connection


def read_refuted_marks(conn: Connection, topic_id: int, records: Collection[Record]) -> dict[int, dict[str, Any]]:
    """Return the marks, as JSON, of those of the records that do not have their id any more, by position."""
    return {
        one.position: {"kind": one.kind, "tree": one.origin, "leaf": one.leaf, "at": show_time(one.refuted_at)}
        for one in read_refuted_at(conn, topic_id, [record.position for record in records])
    }


def find_refuted_records(conn: Connection, topic_id: int, event_id: str) -> list[Record]:
    """Return the stored records with this id that are refuted, the newest first: their id leads to them no more."""
    places = sorted(mark.position for mark in find_refuted(conn, topic_id, event_id))
    return [one for one in read_at(conn, places) if (one.topic_id, one.event_id) == (topic_id, event_id)][::-1]


def find_refuted_record(conn: Connection, topic_id: int, event_id: str) -> Record | None:
    """Return the newest of these records; None if there is none."""
    return next(iter(find_refuted_records(conn, topic_id, event_id)), None)


def find_at(conn: Connection, topic_id: int, group: str, event_id: str, position: int) -> Record:
    """Return the record of an event at a position. Raises NotFound, which names the positions of others."""
    for record in read_at(conn, [position]):
        if (record.topic_id, record.event_id) == (topic_id, event_id):
            return record
    known = [place.position for place in read_id_places(conn, event_id, [topic_id]) if place.gone_at is None]
    known += [record.position for record in find_refuted_records(conn, topic_id, event_id)]
    raise NotFound(
        f"group {group} has no record of event {event_id[:200]} at position {position}",
        hint=f"its records are at {list_positions(known)}" if known else "",
    )


def list_positions(positions: Collection[int]) -> str:
    """Return the words `position 4`, or `positions 4, 7`."""
    word = "position" if len(positions) == 1 else "positions"
    return f"{word} {', '.join(map(str, sorted(positions)))}"
