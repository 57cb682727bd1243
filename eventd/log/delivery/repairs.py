"""Repairs: the range of records to send again, the cursor that sends them, and the dead letters to retry.

A repair is a cursor beside the peer's own, over a range of positions with an end. The node sends the selected records
(by v2, marked as a repair), and then deletes the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from eventd.log.core.head import read_head
from eventd.log.core.scan import blocks_at, pick_readable, read_at, stored_at
from eventd.log.core.topic_row import find_topic_by_id
from eventd.log.core.values import Record
from eventd.log.cursors.cursors import create_cursor, next_repair_name
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, fetch_in
from eventd.store.ids.known import read_ids_of
from eventd.store.rows.registry import announce

MOST_POSITIONS = 10_000
"""Maximum number of positions that one repair lists. A repair of more is a range."""


def read_placed(conn: Connection, topic_id: int, ids: Sequence[str]) -> dict[str, int | None]:
    """Return by id the position of the latest record of each known id; None if retention removed that record.

    An id alone proves nothing: one whose record is lost, because the database was damaged, counts as unknown. So does
    an id at whose position another event is stored, or a line that cannot be read.
    """
    known = read_ids_of(conn, topic_id, ids)
    is_stored = _lookup(conn, topic_id, [row.position for row in known.values() if row.gone_at is None])
    return {
        event_id: row.position if row.gone_at is None else None
        for event_id, row in known.items()
        if row.gone_at is not None or is_stored(event_id, row.position)
    }


def _lookup(conn: Connection, topic_id: int, positions: Sequence[int]) -> Callable[[str, int], bool]:
    """Return a function that returns whether one of these positions holds the record with a given id.

    The records of a topic that is not a group's contain no ids: there, any record at the position counts.
    """
    topic = find_topic_by_id(conn, topic_id)
    if topic is None or not topic.of_group:
        stored = stored_at(conn, topic_id, positions)
        return lambda _id, position: position in stored
    held = {
        (record.event_id, record.position)
        for block, places in blocks_at(conn, positions)
        if block.topic_id == topic_id
        for record in pick_readable(block, places)
    }
    return lambda event_id, position: (event_id, position) in held


def read_refreshed(conn: Connection, topic_id: int, ids: Sequence[str]) -> set[str]:
    """Return those of the ids whose event was refreshed: more than one record of it was stored."""
    sql = "SELECT event_id FROM event_ids WHERE topic_id = ? AND first_position IS NOT NULL AND event_id {in}"
    return {event_id for (event_id,) in fetch_in(conn, sql, (topic_id,), list(ids))}


def recorded_between(conn: Connection, topic_id: int, since: int | None, until: int | None) -> tuple[int, int]:
    """Return the positions `(after, upto]` of a topic's records recorded from `since` to `until`; (0, 0) without any.

    Times in microseconds, both inclusive; None: no bound.
    """
    conditions = (
        ["topic_id = ?"] + ["recorded_at >= ?"] * (since is not None) + ["recorded_at <= ?"] * (until is not None)
    )
    params = [topic_id, *[time for time in (since, until) if time is not None]]
    sql = f"SELECT min(position), max(position + records - 1) FROM blocks WHERE {' AND '.join(conditions)}"
    first, last = fetch(conn, sql, params)[0]
    return (0, 0) if first is None else (int(first) - 1, int(last))


_LAST_SEQ = (1 << 63) - 1
"""The largest number that the databases hold; no topic has so many records."""


def numbered_between(conn: Connection, topic_id: int, first: int, last: int) -> tuple[int, int]:
    """Return the positions `(after, upto]` of a topic's stored seqs from `first` to `last`; (0, 0) without any."""
    begin, end = _place_of(conn, topic_id, first), _place_of(conn, topic_id, min(last + 1, _LAST_SEQ))
    if begin is None or begin == end:
        return (0, 0)
    return (begin - 1, read_head(conn).last if end is None else end - 1)


def _place_of(conn: Connection, topic_id: int, seq: int) -> int | None:
    """Return the position of the first stored record from the seq `seq` on; None if there is none."""
    held = fetch(
        conn,
        "SELECT position, seq, records FROM blocks WHERE topic_id = ? AND seq <= ? ORDER BY seq DESC LIMIT 1",
        (topic_id, seq),
    )
    if held and held[0][1] + held[0][2] > seq:
        return int(held[0][0] + seq - held[0][1])
    next_one = fetch(
        conn, "SELECT position FROM blocks WHERE topic_id = ? AND seq > ? ORDER BY seq LIMIT 1", (topic_id, seq)
    )
    return int(next_one[0][0]) if next_one else None


def start_repair(
    conn: Connection,
    *,
    group: str,
    node: str,
    topic_id: int,
    after: int,
    upto: int,
    selection: Mapping[str, Any],
    now: int,
    kind: str = "repair",
) -> str:
    """Create the cursor of a repair, or of a subscription's backfill, over `(after, upto]`; return its name.

    The processes of the node are notified at commit. Locks the head.
    """
    announce(conn)  # locks the head, which is always locked before cursors
    name = next_repair_name(conn, group, node, kind=kind)
    create_cursor(conn, name, kind=kind, topic_id=topic_id, position=after, until=upto, selection=selection, now=now)
    return name


_PAGE = 1000
"""Number of dead letters that are read at a time."""


class StoredDeadLetter(NamedTuple):
    """A dead letter with parts of its event. Times in microseconds.

    `tag`, `subject` and `expires_at` are None if the event is not stored any more, and for a record of a topic;
    `expires_at` also without expiry.
    """

    id: int
    cursor: str
    position: int
    event_id: str
    reason: str
    detail: str
    attempts: int
    parked_at: int
    tag: str | None
    subject: str | None
    expires_at: int | None


def read_dead_letters(
    conn: Connection,
    topic_id: int,
    *,
    cursor: str = "",
    kind: str = "",
    event_id: str = "",
    ids: Sequence[int] = (),
    after: int = 0,
    limit: int,
    newest: bool = False,
) -> list[StoredDeadLetter]:
    """Return a topic's dead letters with row ids above `after`, oldest first; `newest`: below `after`, newest first.

    `after` 0: no bound. `kind` is that of their cursors. `ids`: only these, oldest first, without regard to `limit`.
    """
    sql = (
        "SELECT id, cursor, position, event_id, reason, detail, attempts, parked_at FROM dead_letters"
        " WHERE topic_id = ?"
    )
    params: list[object] = [topic_id]
    if after:
        sql += " AND id < ?" if newest else " AND id > ?"
        params.append(after)
    for condition, value in ((" AND cursor = ?", cursor), (" AND event_id = ?", event_id)):
        if value:
            sql += condition
            params.append(value)
    if kind:
        sql += " AND cursor LIKE ?"
        params.append(f"{kind}:%")
    if ids:
        rows = sorted(fetch_in(conn, f"{sql} AND id {{in}}", params, list(ids)))  # by id: it reads many ids in parts
    else:
        rows = fetch(conn, f"{sql} ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?", (*params, limit))
    topic = find_topic_by_id(conn, topic_id)
    # Only blocks of a group hold events.
    events = read_at(conn, [row[2] for row in rows]) if topic is not None and topic.of_group else []
    stored = {event.position: event for event in events}
    return [_letter(row, stored.get(row[2])) for row in rows]


def read_all_dead_letters(
    conn: Connection, topic_id: int, *, cursor: str = "", kind: str = ""
) -> list[StoredDeadLetter]:
    """Return all dead letters of a topic, only those of one cursor or of cursors of one kind, ordered by row id."""
    found: list[StoredDeadLetter] = []
    while page := read_dead_letters(
        conn, topic_id, cursor=cursor, kind=kind, after=found[-1].id if found else 0, limit=_PAGE
    ):
        found += page
    return found


def _letter(row: Sequence[Any], record: Record | None) -> StoredDeadLetter:
    left = (record.tag, record.subject, record.expires_at) if record else (None, None, None)
    return StoredDeadLetter(*row, *left)


def count_dead_letters_after(conn: Connection, topic_id: int, cursor: str, position: int) -> int:
    """Return the number of dead letters of a cursor after a position."""
    sql = "SELECT count(*) FROM dead_letters WHERE topic_id = ? AND cursor = ? AND position > ?"
    return int(fetch(conn, sql, (topic_id, cursor, position))[0][0])
