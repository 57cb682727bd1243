"""Rows of dead letters, and how many each cursor has: the only writer of both tables.

The numbers are stored, because counting a million rows takes a page of the console longer than all else. The head must
be locked before any of these changes; so two transactions never wait for each other's numbers. A node of an older
version changes only the rows: on Postgres it may run beside a newer one, so each start of a node counts the rows again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, execute_many, fetch, fetch_in, replacing


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that one consumer gave up delivering, and the reason. Times in microseconds."""

    cursor: str
    position: int
    topic_id: int
    event_id: str
    reason: str
    detail: str
    attempts: int
    parked_at: int


_Owner = tuple[int, str]
"""A topic's id and the name of a cursor."""
_COLUMNS = DeadLetter.__slots__
_STORE = (
    f"INSERT INTO dead_letters ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
    f" ON CONFLICT (cursor, position) DO UPDATE SET {replacing(('reason', 'detail', 'attempts', 'parked_at'))}"
)
_ADD = (
    "INSERT INTO dead_letter_counts (topic_id, cursor, letters) VALUES (?, ?, ?)"
    " ON CONFLICT (topic_id, cursor) DO UPDATE SET letters = dead_letter_counts.letters + excluded.letters"
)


def insert_dead_letters(conn: Connection, letters: Sequence[DeadLetter]) -> None:
    """Store dead letters; an earlier one of its cursor and position gets the new reason, detail, attempts and time."""
    if not letters:
        return
    owners = {(letter.cursor, letter.position): (letter.topic_id, letter.cursor) for letter in letters}
    for cursor in sorted({letter.cursor for letter in letters}):
        positions = [position for name, position in owners if name == cursor]
        known = "SELECT position FROM dead_letters WHERE cursor = ? AND position {in}"
        for (position,) in fetch_in(conn, known, (cursor,), positions):
            del owners[cursor, position]
    execute_many(conn, _STORE, [[getattr(letter, name) for name in _COLUMNS] for letter in letters])
    execute_many(conn, _ADD, [(*owner, number) for owner, number in Counter(owners.values()).items()])


def delete_dead_letters(conn: Connection, ids: Sequence[int]) -> int:
    """Delete the dead letters with these row ids; return how many were deleted."""
    owners = fetch_in(conn, "DELETE FROM dead_letters WHERE id {in} RETURNING topic_id, cursor", (), ids)
    _subtract(conn, Counter(owners))
    return len(owners)


def delete_some_dead_letters(conn: Connection, condition: str, params: Sequence[object], most: int) -> int:
    """Delete at most `most` dead letters for which an SQL condition holds; return how many were deleted."""
    some = f"SELECT id FROM dead_letters WHERE {condition} LIMIT ?"
    owners = fetch(conn, f"DELETE FROM dead_letters WHERE id IN ({some}) RETURNING topic_id, cursor", (*params, most))
    _subtract(conn, Counter(owners))
    return len(owners)


def delete_dead_letters_after(conn: Connection, topic_id: int, cursor: str, position: int) -> None:
    """Delete the dead letters of a cursor after a position."""
    sql = "DELETE FROM dead_letters WHERE topic_id = ? AND cursor = ? AND position > ?"
    _subtract(conn, {(topic_id, cursor): execute(conn, sql, (topic_id, cursor, position))})


def delete_dead_letters_of(conn: Connection, cursor: str) -> None:
    """Delete all dead letters under the name of a cursor."""
    if execute(conn, "DELETE FROM dead_letters WHERE cursor = ?", (cursor,)):
        execute(conn, "DELETE FROM dead_letter_counts WHERE cursor = ?", (cursor,))


def count_dead_letters(conn: Connection, topic_id: int, cursor: str = "") -> dict[str, int]:
    """Return the number of dead letters of a topic by cursor, without cursors that have none; or only of one cursor."""
    one, params = (" AND cursor = ?", (topic_id, cursor)) if cursor else ("", (topic_id,))
    sql = f"SELECT cursor, letters FROM dead_letter_counts WHERE topic_id = ?{one} AND letters > 0"
    return dict(fetch(conn, sql, params))


def recount_dead_letters(conn: Connection) -> None:
    """Store the numbers of the rows that there are, in place of all stored ones. The head must be locked."""
    execute(conn, "DELETE FROM dead_letter_counts")
    rows = "SELECT topic_id, cursor, count(*) FROM dead_letters GROUP BY topic_id, cursor"
    execute(conn, f"INSERT INTO dead_letter_counts (topic_id, cursor, letters) {rows}")


def _subtract(conn: Connection, deleted: Mapping[_Owner, int]) -> None:
    less = "UPDATE dead_letter_counts SET letters = letters - ? WHERE topic_id = ? AND cursor = ?"
    execute_many(conn, less, [(number, *owner) for owner, number in deleted.items()])
    none = "DELETE FROM dead_letter_counts WHERE topic_id = ? AND cursor = ? AND letters <= 0"
    execute_many(conn, none, [*deleted])
