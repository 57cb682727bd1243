"""Dead letters of all cursors: grouped by cursor and reason with bounded counts, and page by page, the newest first.

An index holds them by cursor, reason and id, so neither the groups nor a page read the dead letters in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, fetch_in

MOST_GROUPS = 200
"""Maximum number of groups that are read."""
COUNTED = 10_000
"""Maximum number of dead letters that are counted for one group."""
MOST_COUNTED = 50_000
"""Maximum number of dead letters that are counted for all groups together."""


class LetterGroup(NamedTuple):
    """The dead letters of one cursor with one reason."""

    cursor: str
    reason: str
    topic_id: int


class DeadLetterRow(NamedTuple):
    """A dead letter as it is stored. `parked_at` in microseconds."""

    id: int
    cursor: str
    topic_id: int
    position: int
    event_id: str
    reason: str
    detail: str
    attempts: int
    parked_at: int


_COLUMNS = ", ".join(DeadLetterRow._fields)


def read_letter_groups(conn: Connection) -> tuple[list[LetterGroup], bool]:
    """Return the groups of all dead letters, at most `MOST_GROUPS`, and whether these are all."""
    found: list[LetterGroup] = []
    group = _next_group(conn, None)
    while group is not None and len(found) < MOST_GROUPS:
        found.append(group)
        group = _next_group(conn, group)
    return found, group is None


def _next_group(conn: Connection, last: LetterGroup | None) -> LetterGroup | None:
    """Return the group after the last one, or the first; None at the end. Either is one step in the index."""
    sql = "SELECT cursor, reason, topic_id FROM dead_letters{} ORDER BY cursor, reason LIMIT 1"
    rows = fetch(conn, sql.format(" WHERE cursor = ? AND reason > ?"), last[:2]) if last is not None else []
    if not rows:
        rows = fetch(conn, sql.format("" if last is None else " WHERE cursor > ?"), () if last is None else last[:1])
    return LetterGroup(*rows[0]) if rows else None


def count_letter_groups(conn: Connection, groups: Iterable[LetterGroup]) -> list[tuple[int, bool]]:
    """Return for each group the number of its dead letters, and whether it is exact: otherwise there are more."""
    left, found = MOST_COUNTED, list[tuple[int, bool]]()
    sql = "SELECT count(*) FROM (SELECT 1 FROM dead_letters WHERE cursor = ? AND reason = ? LIMIT ?) AS counted"
    for group in groups:
        most = max(1, min(COUNTED, left))
        [(count,)] = fetch(conn, sql, (*group[:2], most + 1))
        found.append((min(count, most), count <= most))
        left -= count
    return found


def read_letters_of(
    conn: Connection, groups: Sequence[LetterGroup], *, before: int | None, limit: int
) -> list[DeadLetterRow]:
    """Return up to `limit` dead letters of these groups with ids below `before` (None: all), newest first."""
    bound, params = ("", ()) if before is None else (" AND id < ?", (before,))
    sql = f"SELECT id FROM dead_letters WHERE cursor = ? AND reason = ?{bound} ORDER BY id DESC LIMIT ?"
    found = [number for group in groups for (number,) in fetch(conn, sql, (*group[:2], *params, limit))]
    newest = sorted(found, reverse=True)[:limit]  # of all groups, so that only their rows are read
    return sorted(read_letters_by_id(conn, newest), reverse=True)


def read_newest_letters(conn: Connection, *, before: int | None, limit: int) -> list[DeadLetterRow]:
    """Return up to `limit` dead letters with ids below `before` (None: all), newest first."""
    bound, params = ("", ()) if before is None else (" WHERE id < ?", (before,))
    sql = f"SELECT {_COLUMNS} FROM dead_letters{bound} ORDER BY id DESC LIMIT ?"
    return [DeadLetterRow(*row) for row in fetch(conn, sql, (*params, limit))]


def read_letters_by_id(conn: Connection, ids: Sequence[int]) -> list[DeadLetterRow]:
    """Return the dead letters with these ids, in order, without those that do not exist."""
    rows = fetch_in(conn, f"SELECT {_COLUMNS} FROM dead_letters WHERE id {{in}}", (), sorted(set(ids)))
    return sorted(DeadLetterRow(*row) for row in rows)
