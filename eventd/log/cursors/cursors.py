"""Cursors: the position and state of each consumer.

Reads and writes are part of the caller's transaction; if it locks the head, it does so before any cursor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from eventd.errors import FenceLost, Invalid, NotFound
from eventd.log.cursors.dead_letters import delete_dead_letters_of
from eventd.log.cursors.trimmed import note_forgotten
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import (
    execute,
    execute_many,
    fetch,
    insert_row,
    update_rows,
)
from eventd.store.rows.callback_attempts import forget_attempts


class LinkState(StrEnum):
    """The states of a consumer, such as a link. `PAUSED` is not stored: it is shown for any cursor with `paused_at`."""

    RUNNING = "running"
    BACKING_OFF = "backing-off"  # the remote side does not answer: it is tried again
    BLOCKED = "blocked"  # the remote side answers, and refuses the link as a whole
    PAUSED = "paused"  # by an operator
    FAILED = "failed"  # this node itself cannot work: an unreadable secret, an internal error


@dataclass(frozen=True, slots=True)
class Cursor:
    """The row of a consumer. Positions are those of the node's log, for the lake also ids of ledger rows; times in µs.

    `selection` is that of a repair, a backfill or a resend, which ends at `until`; a cursor of the lake has the lake's
    id there. The selection of a link, a subscription or a callback is stored under `selector_version` in the table
    `selectors`. `failing_since` is the time of the first failure in a row, None after a success. `hold`: for how
    many microseconds after that, or after it was paused, retention keeps records for the cursor; None: not at all.
    `started_after` is the position at which it was created; None: an earlier release created it.
    """

    name: str
    kind: str
    topic_id: int
    position: int
    until: int | None = None
    sent_upto: int = 0
    sent_epoch: str = ""
    rewound_from: int | None = None
    selector_version: int = 1
    selection: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = ""
    state: LinkState = LinkState.RUNNING
    reason: str = ""
    since: int = 0
    paused_at: int | None = None
    paused_by: str = ""
    attempts: int = 0
    attempted_upto: int = 0
    attempted_at: int | None = None
    retry_at: int | None = None
    last_error: str = ""
    succeeded_at: int | None = None
    failing_since: int | None = None
    hold: int | None = None
    started_after: int | None = None
    created_at: int = 0

    @property
    def shown_state(self) -> LinkState:
        """Return `PAUSED` for a paused cursor, otherwise its stored state."""
        return LinkState.PAUSED if self.paused_at is not None else self.state

    @property
    def is_refused(self) -> bool:
        """Return whether the cursor is blocked or failed, and not paused: no delivery until the cause is fixed."""
        return self.shown_state in (LinkState.BLOCKED, LinkState.FAILED)


_COLUMNS = ", ".join(Cursor.__slots__)
_SELECTION: Final = Cursor.__slots__.index("selection")
_REST: Final = _SELECTION + len(("selection", "protocol", "state"))
_STATES: Final = {state.value: state for state in LinkState}


def read_cursors(conn: Connection, *kinds: str, name: str | None = None) -> list[Cursor]:
    """Return the cursors of these `kinds` (none given: of all, also the very many of routers), ordered by name."""
    conditions, params = [], list(kinds)
    if kinds:
        conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
    if name is not None:
        conditions.append("name = ?")
        params.append(name)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return [_cursor(row) for row in fetch(conn, f"SELECT {_COLUMNS} FROM cursors{where} ORDER BY name", params)]


def read_shown_states(conn: Connection, kind: str) -> dict[str, LinkState]:
    """Return the states of the cursors of one kind that operators see, by name, without reading the rest of them."""
    sql = "SELECT name, CASE WHEN paused_at IS NULL THEN state ELSE 'paused' END FROM cursors WHERE kind = ?"
    return {name: _STATES[state] for name, state in fetch(conn, sql, (kind,))}


def read_cursor(conn: Connection, name: str) -> Cursor:
    """Return the cursor of this name. Raises `NotFound`."""
    found = read_cursors(conn, name=name)
    if not found:
        raise NotFound(f"no cursor {name!r}")
    return found[0]


def _cursor(row: Sequence[Any]) -> Cursor:
    selection, protocol, state = row[_SELECTION:_REST]
    read = (json.loads(selection) if selection != "{}" else {}, protocol, _STATES[state])
    values = (*row[:_SELECTION], *read, *row[_REST:])  # in the order of the fields: by name takes twice as long
    return Cursor(*values)


def create_cursor(
    conn: Connection,
    name: str,
    *,
    kind: str,
    topic_id: int,
    position: int,
    now: int,
    until: int | None = None,
    selection: Mapping[str, Any] | None = None,
    selector_version: int = 1,
    hold: int | None = None,
) -> bool:
    """Create the cursor unless one of this name exists; return whether it was created."""
    cursor = Cursor(
        name,
        kind,
        topic_id,
        position,
        until=until,
        sent_upto=position,
        selector_version=selector_version,
        since=now,
        hold=hold,
        started_after=position,
        created_at=now,
    )
    values = {field: getattr(cursor, field) for field in Cursor.__slots__}
    values |= {"selection": json.dumps(selection or {}, separators=(",", ":")), "state": cursor.state.value}
    return bool(insert_row(conn, "cursors", values, "ON CONFLICT (name) DO NOTHING RETURNING name"))


def set_hold(conn: Connection, name: str, hold: int | None) -> None:
    """Set for how many microseconds retention keeps records for a cursor that fails or is paused; None: not at all."""
    update_rows(conn, "cursors", {"hold": hold}, {"name": name})


def change_cursor_selection(conn: Connection, name: str, selection: Mapping[str, Any]) -> None:
    """Replace the selection in the row of a cursor: that of a link or a callback is not there, see `Cursor`."""
    update_rows(conn, "cursors", {"selection": json.dumps(selection, separators=(",", ":"))}, {"name": name})


def delete_cursors(conn: Connection, names: Iterable[str]) -> None:
    """Delete cursors, with the selections, batches and dead letters under their names.

    Notes the highest id of these batches as deleted.
    """
    for name in names:
        ((last,),) = fetch(conn, "SELECT max(id) FROM batches WHERE cursor = ?", (name,))
        note_forgotten(conn, "batches", last or 0)
        execute(conn, "DELETE FROM cursors WHERE name = ?", (name,))
        for table in ("selectors", "batches"):
            execute(conn, f"DELETE FROM {table} WHERE cursor = ?", (name,))
        delete_dead_letters_of(conn, name)


def end_cursor(conn: Connection, cursor: Cursor) -> None:
    """Delete the row of a cursor that has reached its end, unless another cursor has taken its name meanwhile.

    Its attempts are deleted, too: the next cursor of its name does not take them for its own.
    """
    its_own = "DELETE FROM cursors WHERE name = ? AND topic_id = ? AND created_at = ?"
    if execute(conn, its_own, (cursor.name, cursor.topic_id, cursor.created_at)):
        forget_attempts(conn, cursor.name)


def next_repair_name(conn: Connection, group: str, node: str, *, kind: str = "repair") -> str:
    """Return a name for a new repair or backfill: `kind:group/node/` and the highest number in use plus 1."""
    prefix = f"{kind}:{group}/{node}/"
    taken = [c.name for c in read_cursors(conn, kind) if c.name.startswith(prefix)]
    return f"{prefix}{max([int(name.rpartition('/')[2]) for name in taken], default=0) + 1}"


def clear_failures(conn: Connection, names: Iterable[str], now: int) -> None:
    """Set the state of these cursors to `running` and clear their failures, so that the next attempt is immediate."""
    rows = [(LinkState.RUNNING.value, now, name) for name in names]
    sql = (
        "UPDATE cursors SET state = ?, reason = '', since = CASE WHEN state = 'running' THEN since ELSE ? END,"
        " attempts = 0, retry_at = NULL, last_error = '', failing_since = NULL"
        " WHERE name = ? AND (state <> 'running' OR last_error <> '')"
    )
    execute_many(conn, sql, rows)


def set_failing_since(conn: Connection, name: str, since: int) -> None:
    """Set the time of a failing cursor's first failure in a row (microseconds)."""
    update_rows(conn, "cursors", {"failing_since": since}, {"name": name})


def set_paused(conn: Connection, name: str, *, at: int | None, by: str) -> None:
    """Pause the cursor, with `at` (microseconds) as the time; None resumes it. Raises `NotFound`."""
    if not update_rows(conn, "cursors", {"paused_at": at, "paused_by": by}, {"name": name}):
        raise NotFound(f"no cursor {name!r}")


def rewind(conn: Connection, name: str, *, position: int, to: int, now: int, epoch: str = "") -> None:
    """Move a cursor back: the other side has less than the cursor says.

    `epoch` is the one in which the other side has proven to have everything up to `to`; empty without a proof. Raises
    `Invalid` unless `to` is before `position`: a forward move would skip records that were never delivered. Raises
    `FenceLost` if the cursor moved meanwhile.
    """
    if to >= position:
        raise Invalid(f"cursor {name!r} at {position} cannot be rewound to {to}")
    back = {"position": to, "sent_upto": to, "sent_epoch": epoch, "rewound_from": position, "since": now}
    if not update_rows(conn, "cursors", back, {"name": name, "position": position}):
        raise FenceLost(f"cursor {name!r} moved during the rewind")


def move_cursor(conn: Connection, name: str, *, to: int, now: int) -> None:
    """Move a cursor forward or back, for an operator, and clear its failures. Raises `NotFound`.

    A step in progress fails with `FenceLost`, unless it began at `to`.
    """
    fresh = {"position": to, "sent_upto": to, "attempts": 0, "retry_at": None, "last_error": "", "reason": ""}
    fresh |= {"state": LinkState.RUNNING.value, "since": now, "failing_since": None}
    if not update_rows(conn, "cursors", fresh, {"name": name}):
        raise NotFound(f"no cursor {name!r}")
