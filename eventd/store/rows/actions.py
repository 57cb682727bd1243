"""Rows of the record of actions, and the answers to requests that may be repeated.

The head is locked before a row is added, so that the numbers rise in the order of the commits. Writes are part of the
caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row, update_rows

OK: Final = "ok"
STARTED: Final = "started"
"""The result of an action that has not ended, or whose process ended first."""
KEY_SECONDS: Final = 120
"""How long a request may be repeated."""
MOST_SCANNED: Final = 50_000
"""Maximum number of rows that one page looks at."""


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One action, or `count` equal ones: of refused or failed ones the last was `at` (microseconds), else the first.

    `kind` and `who` name the caller, `address` its network address. `object` and `arguments` (JSON) hold no payload and
    no secret. `result`: `OK`, `STARTED` or the code of an error. `number` is 0 until the row is stored.
    """

    at: int
    kind: str
    who: str
    address: str
    operation: str
    object: str
    arguments: str
    result: str
    request: str
    count: int = 1
    number: int = 0


_FIELDS: Final = tuple(ActionRow.__slots__[:-1])
_COLUMNS: Final = ", ".join((*_FIELDS, "id"))


def add_action(conn: Connection, row: ActionRow) -> int:
    """Store a row and return its number. The head must be locked."""
    values = {name: getattr(row, name) for name in _FIELDS}
    ((number,),) = insert_row(conn, "actions", values, "RETURNING id")
    return int(number)


def set_result(conn: Connection, number: int, result: str) -> None:
    """Set the result of an action, unless its row was deleted meanwhile."""
    update_rows(conn, "actions", {"result": result}, {"id": number})


def find_similar(conn: Connection, row: ActionRow, after: int) -> int | None:
    """Return the number of an action later than `after` with the same caller, operation, object and result.

    None if there is none.
    """
    same = ("kind", "who", "operation", "object", "result")
    where = " AND ".join(f"{name} = ?" for name in same)
    values = [getattr(row, name) for name in same]
    found = fetch(conn, f"SELECT id FROM actions WHERE at > ? AND {where} LIMIT 1", (after, *values))
    return found[0][0] if found else None


def count_action(conn: Connection, number: int, row: ActionRow) -> None:
    """Count an action in the row of an equal one, which gets its arguments and the id of its request."""
    sql = "UPDATE actions SET count = count + ?, arguments = ?, request = ? WHERE id = ?"
    execute(conn, sql, (row.count, row.arguments, row.request, number))


class ActionFilter(NamedTuple):
    """Which actions to list. Empty texts and None mean any.

    `object`: the beginning of the object. Times are microseconds: from `since` on, and before `until`.
    """

    who: str = ""
    operation: str = ""
    object: str = ""
    result: str = ""
    since: int | None = None
    until: int | None = None


class ActionPage(NamedTuple):
    """A page of actions, newest first. `before`: the number before which the next page begins; None: this is the last.

    `searched_to`: if older actions were not searched, the time of the oldest one that was; else None.
    """

    rows: Sequence[ActionRow]
    before: int | None
    searched_to: int | None = None


def read_actions(conn: Connection, wanted: ActionFilter, before: int | None, limit: int) -> ActionPage:
    """Return a page of the actions with numbers below `before` (None: all). Looks at `MOST_SCANNED` rows at most."""
    if before is None:
        before = 1 + (fetch(conn, "SELECT max(id) FROM actions")[0][0] or 0)
    floor = max(0, before - 1 - MOST_SCANNED)
    where, values = _conditions(wanted)
    sql = f"SELECT {_COLUMNS} FROM actions WHERE id < ? AND id > ?{where} ORDER BY id DESC LIMIT ?"
    rows = [ActionRow(*row) for row in fetch(conn, sql, (before, floor, *values, limit + 1))]
    if len(rows) > limit:
        return ActionPage(rows[:limit], rows[limit - 1].number)
    older = fetch(conn, "SELECT at FROM actions WHERE id <= ? ORDER BY id DESC LIMIT 1", (floor,))
    if not older or (wanted.since is not None and older[0][0] < wanted.since - _DISORDER):
        return ActionPage(rows, None)
    return ActionPage(rows, floor + 1, older[0][0])


_DISORDER: Final = 3600 * 1_000_000
"""How far the times of rows may differ from their order by number: the time of a row is when the action began, the
number follows its commit."""


def _conditions(wanted: ActionFilter) -> tuple[str, list[Any]]:
    equal = {"who": wanted.who, "operation": wanted.operation, "result": wanted.result}
    conditions: list[tuple[str, tuple[Any, ...]]] = [(f"{name} = ?", (text,)) for name, text in equal.items() if text]
    if wanted.object:
        conditions.append(("substr(object, 1, ?) = ?", (len(wanted.object), wanted.object)))
    if wanted.since is not None:
        conditions.append(("at >= ?", (wanted.since,)))
    if wanted.until is not None:
        conditions.append(("at < ?", (wanted.until,)))
    return "".join(f" AND {text}" for text, _ in conditions), [value for _, values in conditions for value in values]


def delete_old_actions(conn: Connection, before: int, portion: int) -> int:
    """Delete at most `portion` rows older than `before` (microseconds); return their number."""
    old = "SELECT id FROM actions WHERE at < ? ORDER BY at LIMIT ?"
    return execute(conn, f"DELETE FROM actions WHERE id IN ({old})", (before, portion))


class RepeatedRequest(NamedTuple):
    """A request that may be repeated: a mark of its `caller`, the caller's `key` for it, and a hash of its content."""

    caller: str
    key: str
    fingerprint: str


class FirstAnswer(NamedTuple):
    """What is stored of the first request: its content's hash, and its answer. Status 0: there is no answer yet.

    `answer` is None if it was not kept.
    """

    fingerprint: str
    status: int
    answer: bytes | None


def read_first(conn: Connection, request: RepeatedRequest, after: int) -> FirstAnswer | None:
    """Return what is stored of the request with the same caller and key, if it came later than `after`; else None.

    The times of keys are those of the steady clock.
    """
    sql = "SELECT fingerprint, status, answer FROM action_answers WHERE caller = ? AND key = ? AND at > ?"
    rows = fetch(conn, sql, (request.caller, request.key, after))
    return FirstAnswer(rows[0][0], rows[0][1], None if rows[0][2] is None else bytes(rows[0][2])) if rows else None


def claim_key(conn: Connection, request: RepeatedRequest, steady: int) -> None:
    """Store that the request takes effect in this transaction, instead of an expired one with the same key."""
    execute(conn, "DELETE FROM action_answers WHERE caller = ? AND key = ?", (request.caller, request.key))
    insert_row(conn, "action_answers", {**request._asdict(), "at": steady, "status": 0})


def shorten_keys(conn: Connection, steady: int) -> None:
    """Keep no key longer than one that is stored now; for when a node starts, perhaps with a clock that is behind."""
    execute(conn, "UPDATE action_answers SET at = ? WHERE at > ?", (steady, steady))


def keep_answer(conn: Connection, request: RepeatedRequest, status: int, answer: bytes | None) -> None:
    """Store the answer to a request whose key is claimed; None: it is not kept."""
    update_rows(
        conn,
        "action_answers",
        {"status": status, "answer": answer},
        {"caller": request.caller, "key": request.key, "fingerprint": request.fingerprint},
    )


def delete_old_answers(conn: Connection, before: int, portion: int) -> int:
    """Delete at most `portion` answers older than `before` (microseconds); return their number."""
    old = "SELECT caller, key FROM action_answers WHERE at < ? LIMIT ?"
    return execute(conn, f"DELETE FROM action_answers WHERE (caller, key) IN ({old})", (before, portion))
