"""Takes the id of an event from a record: it is free for another event, or that of an earlier record again."""

from __future__ import annotations

from collections.abc import Iterable

from eventd.log.core.blocks import Block, unpack_readable
from eventd.log.core.head import lock_head
from eventd.log.core.scan import blocks_at, scan_back
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from eventd.store.ids.known import make_rows, read_ids_of
from federation.event import written


def free_id(conn: Connection, topic_id: int, event_id: str, position: int) -> bool:
    """Free an id whose latest record is at this position; return whether it was freed. The record is not changed.

    False: the id is unknown, or meanwhile that of another record. The next event with this id is stored as a new one.
    Locks the head, because an append in another process may just have read the id.
    """
    lock_head(conn)
    make_rows(conn, topic_id, [event_id])
    which, params = "topic_id = ? AND event_id = ? AND position = ?", (topic_id, event_id, position)
    stored = execute(conn, f"DELETE FROM event_ids WHERE {which} AND gone_at IS NULL", params)
    # The topic counts the ids that have a stored record: of an evicted one, retention has subtracted it already.
    execute(conn, "UPDATE topics SET ids = ids - ? WHERE id = ?", (stored, topic_id))
    return stored > 0 or execute(conn, f"DELETE FROM event_ids WHERE {which}", params) > 0


def find_records(
    conn: Connection, topic_id: int, event_id: str, position: int, *, most: int | None = None
) -> list[int]:
    """Return the positions of the stored records with the id of an event up to this position, the newest first.

    Only those from the first record on that the id leads to. Stops after reading `most` records; then it returns what
    it found, and the event's first record.
    """
    known = read_ids_of(conn, topic_id, [event_id]).get(event_id)
    places: list[int] = []
    if known is not None and known.position >= position and known.gone_at is None:
        first = known.position if known.first_position is None else known.first_position
        text = written(event_id)
        for block in scan_back(conn, topic_id, first - 1, position + 1):
            if most is not None and position - block.position > most:
                places += _find_in([one for one, _ in blocks_at(conn, [first])], event_id, first)
                break
            places += _find_in([block], event_id) if text in block.text else []
    return places


def give_back_id(conn: Connection, topic_id: int, event_id: str, position: int, earlier: int) -> bool:
    """Give an id whose latest record is at `position` to an earlier record of the event, as if none had refreshed that.

    False: the id is that of another record. The head must be locked.
    """
    make_rows(conn, topic_id, [event_id])
    sql = (
        "UPDATE event_ids SET position = ?, first_position = CASE WHEN first_position < ? THEN first_position END"
        " WHERE topic_id = ? AND event_id = ? AND position = ? AND gone_at IS NULL"
    )
    return execute(conn, sql, (earlier, earlier, topic_id, event_id, position)) > 0


def _find_in(blocks: Iterable[Block], event_id: str, position: int | None = None) -> list[int]:
    """Return the positions of readable records with this id, the newest first; only `position` if it is given."""
    found = (record for block in blocks for record in unpack_readable(block) if record.event_id == event_id)
    return [one.position for one in found if position in (None, one.position)][::-1]
