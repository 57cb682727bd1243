"""Shows the marks of events that this node got back from a peer."""

from __future__ import annotations

from typing import Any

from eventd.api.framework.moments import show_time
from eventd.log.core.values import Record
from eventd.store.engine.database import Connection
from eventd.store.rows.returned_events import ReturnedMark, read_returned_marks


def show_returned(mark: ReturnedMark) -> dict[str, Any]:
    """Return a mark as JSON."""
    return {
        "from": mark.peer,
        "at": show_time(mark.at),
        "byReceipt": not mark.unproven,
        "confirmed": bool(mark.confirmed),
        "batchId": mark.batch_id,
        "reason": mark.unproven,
    }


def read_shown_marks(conn: Connection, topic_id: int, records: list[Record]) -> dict[str, dict[str, Any]]:
    """Return the marks, as JSON, of those of the records that came back from a peer, by event id."""
    marks = read_returned_marks(conn, topic_id, [record.event_id for record in records])
    return {event_id: show_returned(mark) for event_id, mark in marks.items()}
