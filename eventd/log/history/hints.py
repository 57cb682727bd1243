"""Hints of peers: the leaves that events of other nodes have in the trees of those nodes, as their senders state.

Nothing of it is proven. A row has the places of a received batch, or of several that follow each other,
by the positions of this log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row
from federation.history.leaf_hints import LeafPlace, find_place, move_places, read_places, write_places


def keep_hints(
    conn: Connection,
    topic_id: int,
    places: Sequence[LeafPlace],
    sent: Sequence[int],
    stored: Sequence[int],
    due: int | None = None,
) -> None:
    """Store the places of new events, with the position of each one at its sender and in this log.

    `due`: when they are to be checked; None: not at all. Events without a place then also get a row, which is
    deleted after the check.
    """
    found = move_places(places, sent, stored)
    if not any(place.leaf for place in found):
        if due is not None:
            row = {"topic_id": topic_id, "position": stored[0], "upto": stored[-1], "places": "", "due": due}
            insert_row(conn, "leaf_hints", row)
        return
    before = _find_row(conn, topic_id, stored[0] - 1)
    if before is not None and len(found) == 1 and before.hint == (found[0].tree, found[0].leaf - 1):
        # As with one event after another: the last row continues, and no other one is needed.
        of = topic_id, before.position
        if due is None:
            execute(conn, "UPDATE leaf_hints SET upto = ? WHERE topic_id = ? AND position = ?", (stored[-1], *of))
            return
        # Where nothing of the row is to be checked, its events arrived before the mode was declared, or are checked.
        sql = (
            "UPDATE leaf_hints SET upto = ?, checked = CASE WHEN due IS NULL THEN ? ELSE checked END,"
            " due = coalesce(due, ?) WHERE topic_id = ? AND position = ?"
        )
        execute(conn, sql, (stored[-1], stored[0] - 1, due, *of))
        return
    row = {"topic_id": topic_id, "position": stored[0], "upto": stored[-1], "places": write_places(found), "due": due}
    insert_row(conn, "leaf_hints", row)


class _Row(NamedTuple):
    """A row by its first position, and what it says of the position that was looked for."""

    position: int
    hint: tuple[str, int]


def _find_row(conn: Connection, topic_id: int, position: int) -> _Row | None:
    sql = (
        "SELECT position, upto, places FROM leaf_hints WHERE topic_id = ? AND position <= ?"
        " ORDER BY position DESC LIMIT 1"
    )
    rows = [row for row in fetch(conn, sql, (topic_id, position)) if row[1] >= position]
    return _Row(rows[0][0], find_place(read_places(rows[0][2]), position)) if rows else None


def find_hint(conn: Connection, topic_id: int, position: int) -> tuple[str, int]:
    """Return the tree and the leaf that a record of another node has, as its sender states; leaf 0: it does not."""
    row = _find_row(conn, topic_id, position)
    return ("", 0) if row is None else row.hint


def read_hints(conn: Connection, topic_id: int, after: int, upto: int) -> list[LeafPlace]:
    """Return the stored places of the positions in `(after, upto]`, each row with a place at which it ends."""
    sql = (
        "SELECT position, upto, places FROM leaf_hints WHERE topic_id = ? AND position > ? AND position <= ?"
        " ORDER BY position"
    )
    # A row that begins before the page may reach into it.
    first = fetch(conn, "SELECT max(position) FROM leaf_hints WHERE topic_id = ? AND position <= ?", (topic_id, after))[
        0
    ][0]
    found: list[LeafPlace] = []
    for begin, end, places in fetch(conn, sql, (topic_id, after if first is None else first - 1, upto)):
        if end > after and begin <= upto:
            found += [*read_places(places), LeafPlace(end + 1, 0, "")]
    return found


def delete_hints(conn: Connection, topic_id: int, upto: int) -> None:
    """Delete what is stored of evicted records: of those at positions up to `upto`."""
    execute(conn, "DELETE FROM leaf_hints WHERE topic_id = ? AND position <= ? AND upto <= ?", (topic_id, upto, upto))
