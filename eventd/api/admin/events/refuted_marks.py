"""Shows the marks of events that the tree of their node refutes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from eventd.api.framework.moments import show_time
from eventd.log.core.scan import read_at
from eventd.log.core.values import Record
from eventd.log.history.refuted import find_refuted, read_refuted_at
from eventd.store.engine.database import Connection


def read_refuted_marks(conn: Connection, topic_id: int, records: Collection[Record]) -> dict[int, dict[str, Any]]:
    """Return the marks, as JSON, of those of the records that are refuted, by position."""
    found = read_refuted_at(conn, topic_id, [record.position for record in records])
    return {
        one.position: {"tree": one.origin, "leaf": one.leaf, "refutedAt": show_time(one.refuted_at)} for one in found
    }


def find_refuted_record(conn: Connection, topic_id: int, event_id: str) -> Record | None:
    """Return the newest stored record with this id that is refuted: its id leads to it no more."""
    for mark in find_refuted(conn, topic_id, event_id):
        for record in read_at(conn, [mark.position]):
            if (record.topic_id, record.event_id) == (topic_id, event_id):
                return record
    return None
