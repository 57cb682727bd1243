"""Rows of returned events, which this node got back from a peer, and the evidence that it had sent them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute_many, fetch, fetch_in
from eventd.store.ids.known import read_ids_of


class ReturnedMark(NamedTuple):
    """The mark of an event that came back from `peer`, at a time in microseconds.

    `batch_id` is the batch whose receipt names the event. This is only a claim of the peer unless `confirmed` is 1:
    then this node's own ledger has the batch with the same digest. `unproven` is the reason why an event has no
    receipt; empty if it has one.
    """

    peer: str
    at: int
    batch_id: str
    unproven: str
    confirmed: int = 0


_COLUMNS: Final = ", ".join(ReturnedMark._fields)


def mark_returned(conn: Connection, topic_id: int, marks: Iterable[tuple[str, ReturnedMark]]) -> None:
    """Set the marks of events, given with their ids."""
    sql = (
        f"INSERT INTO returned_events (topic_id, event_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (topic_id, event_id) DO UPDATE SET peer = excluded.peer, at = excluded.at,"
        " batch_id = excluded.batch_id, unproven = excluded.unproven,"
        " confirmed = excluded.confirmed"
    )
    execute_many(conn, sql, [(topic_id, event_id, *mark) for event_id, mark in marks])


def read_returned_marks(conn: Connection, topic_id: int, ids: Sequence[str]) -> dict[str, ReturnedMark]:
    """Return, by id, the marks of the events that came back from a peer; other events are left out."""
    sql = f"SELECT event_id, {_COLUMNS} FROM returned_events WHERE topic_id = ? AND event_id {{in}}"
    return {row[0]: ReturnedMark(*row[1:]) for row in fetch_in(conn, sql, (topic_id,), list(ids))} if ids else {}


def read_unused_marks(conn: Connection, limit: int) -> list[tuple[int, str]]:
    """Return up to `limit` marks, as (topic id, event id), of events whose ids are not known any more."""
    sql = (
        "SELECT topic_id, event_id FROM returned_events AS mark WHERE NOT EXISTS (SELECT 1 FROM event_ids"
        " WHERE event_ids.topic_id = mark.topic_id AND event_ids.event_id = mark.event_id)"
        " AND (topic_id, event_id) > (?, ?) ORDER BY topic_id, event_id LIMIT ?"
    )
    unused: list[tuple[int, str]] = []
    after: tuple[object, ...] = (0, "")
    while len(unused) < limit and (rows := fetch(conn, sql, (*after, limit))):
        by_topic: dict[int, list[str]] = {}
        for topic_id, event_id in rows:
            by_topic.setdefault(topic_id, []).append(event_id)
        for topic_id, ids in by_topic.items():
            known = read_ids_of(conn, topic_id, ids)
            unused += [(topic_id, event_id) for event_id in ids if event_id not in known]
        after = rows[-1]
    return unused[:limit]


def delete_marks(conn: Connection, marks: Sequence[tuple[int, str]]) -> int:
    """Delete marks, given as (topic id, event id); return their number."""
    return execute_many(conn, "DELETE FROM returned_events WHERE topic_id = ? AND event_id = ?", marks)
