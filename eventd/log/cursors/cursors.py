"""Cursors: the position and state of each consumer, and its dead letters.

A step is applied only if the cursor is still at the position the step began from; that check is the fence. Reads and
writes are part of the caller's transaction; if it locks the head, it does so before any cursor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from eventd.errors import FenceLost, Invalid, NotFound
from eventd.log.cursors.trimmed import note_forgotten
from eventd.store.engine.database import bulk_insert, execute, execute_many, fetch, for_update, insert
from eventd.store.schema.tables import batches, cursors, dead_letters, selectors


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

    `selection` is that of a repair or a backfill, which ends at `until`; a cursor of the lake has the lake's id there.
    The selection of a link or a subscription is stored under `selector_version` in the table `selectors`.
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
    created_at: int = 0

    @property
    def shown_state(self) -> LinkState:
        """Return `PAUSED` for a paused cursor, otherwise its stored state."""
        return LinkState.PAUSED if self.paused_at is not None else self.state

    @property
    def is_refused(self) -> bool:
        """Return whether the cursor is blocked or failed, and not paused: no delivery until the cause is fixed."""
        return self.shown_state in (LinkState.BLOCKED, LinkState.FAILED)


@dataclass(frozen=True, slots=True)
class DeliveredBatch:
    """The outcome of one batch: the evidence for the records in `(after, upto]`. Times in microseconds.

    `exceptions` are positions that were not delivered, each with the reason. `picked`: the only positions that the
    batch of a repair concerns; empty for one of the cursor itself. `status`: of the last answer; 0: nothing was sent.
    """

    cursor: str
    batch_id: str
    epoch: str
    incarnation: int
    after: int
    upto: int
    events: int
    bytes: int
    selector_version: int
    exceptions: Sequence[tuple[int, str]]
    picked: Sequence[int]
    attempts: int
    sent_at: int
    acked_at: int
    status: int
    protocol: str
    key_id: str
    receipt: str


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


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a cursor, from `position` to `upto`, with its batches and dead letters.

    `selector_version` is that of the selection by which the step was made; None: the step does not depend on it. Unless
    it `succeeded`, the step leaves the state and the failures of the cursor as they are.
    """

    name: str
    position: int
    upto: int
    sent_upto: int
    now: int
    batches: Sequence[DeliveredBatch] = field(default=())
    dead_letters: Sequence[DeadLetter] = field(default=())
    protocol: str = ""
    succeeded: bool = True
    selector_version: int | None = None


def read_cursors(conn: sa.Connection, *kinds: str, name: str | None = None) -> list[Cursor]:
    """Return the cursors of these `kinds` (none given: of all, also the very many of routers), ordered by name."""
    query = sa.select(cursors).order_by(cursors.c.name)
    if kinds:
        query = query.where(cursors.c.kind.in_(kinds))
    if name is not None:
        query = query.where(cursors.c.name == name)
    return [_cursor(row) for row in conn.execute(query)]


def read_cursor(conn: sa.Connection, name: str) -> Cursor:
    """Return the cursor of this name. Raises `NotFound`."""
    found = read_cursors(conn, name=name)
    if not found:
        raise NotFound(f"no cursor {name!r}")
    return found[0]


def _cursor(row: Any) -> Cursor:
    values = dict(row._mapping)
    values["selection"] = json.loads(values["selection"])
    values["state"] = LinkState(values["state"])
    return Cursor(**values)


def create_cursor(
    conn: sa.Connection,
    name: str,
    *,
    kind: str,
    topic_id: int,
    position: int,
    now: int,
    until: int | None = None,
    selection: Mapping[str, Any] | None = None,
    selector_version: int = 1,
) -> bool:
    """Create the cursor unless one of this name exists; return whether it was created."""
    statement = insert(conn, cursors).values(
        name=name,
        kind=kind,
        topic_id=topic_id,
        position=position,
        until=until,
        sent_upto=position,
        sent_epoch="",
        rewound_from=None,
        selector_version=selector_version,
        selection=json.dumps(selection or {}, separators=(",", ":")),
        protocol="",
        state=LinkState.RUNNING,
        reason="",
        since=now,
        paused_at=None,
        paused_by="",
        attempts=0,
        attempted_upto=0,
        attempted_at=None,
        retry_at=None,
        last_error="",
        succeeded_at=None,
        created_at=now,
    )
    made = conn.execute(statement.on_conflict_do_nothing(index_elements=[cursors.c.name]).returning(cursors.c.name))
    return made.first() is not None


def delete_cursors(conn: sa.Connection, names: Iterable[str]) -> None:
    """Delete cursors, with the selections, batches and dead letters under their names.

    Notes the highest id of these batches as deleted.
    """
    for name in names:
        last = sa.select(sa.func.max(batches.c.id)).where(batches.c.cursor == name)
        note_forgotten(conn, batches.name, conn.execute(last).scalar_one() or 0)
        conn.execute(cursors.delete().where(cursors.c.name == name))
        for table in (selectors, batches, dead_letters):
            conn.execute(table.delete().where(table.c.cursor == name))


def end_cursor(conn: sa.Connection, cursor: Cursor) -> None:
    """Delete the row of a cursor that has reached its end, unless another cursor has taken its name meanwhile."""
    its_own = (cursors.c.topic_id == cursor.topic_id, cursors.c.created_at == cursor.created_at)
    conn.execute(cursors.delete().where(cursors.c.name == cursor.name, *its_own))


def declare_selection(conn: sa.Connection, cursor: str, version: int, selection: Mapping[str, Any], now: int) -> None:
    """Store a selection under `version`, which must be new for this cursor; from now on, the cursor selects by it."""
    conn.execute(
        selectors.insert().values(
            cursor=cursor, version=version, selection=json.dumps(selection, separators=(",", ":")), declared_at=now
        )
    )
    conn.execute(cursors.update().where(cursors.c.name == cursor).values(selector_version=version))


def read_selection(conn: sa.Connection, cursor: str, version: int | None = None) -> tuple[int, dict[str, Any]]:
    """Return (version, selection) of a cursor from `selectors`: the newest, or `version`. Raises `NotFound`."""
    query = sa.select(selectors).where(selectors.c.cursor == cursor).order_by(selectors.c.version.desc()).limit(1)
    if version is not None:
        query = query.where(selectors.c.version == version)
    row = conn.execute(query).first()
    if row is None:
        raise NotFound(f"no selection of the cursor {cursor!r} is known")
    return row.version, json.loads(row.selection)


def read_selections(conn: sa.Connection, *kinds: str) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return the (version, selection) that each cursor of these kinds uses now, by name."""
    query = (
        sa.select(selectors.c.cursor, selectors.c.version, selectors.c.selection)
        .join(cursors, sa.and_(cursors.c.name == selectors.c.cursor, cursors.c.selector_version == selectors.c.version))
        .where(cursors.c.kind.in_(kinds))
    )
    return {cursor: (version, json.loads(selection)) for cursor, version, selection in conn.execute(query)}


def next_repair_name(conn: sa.Connection, group: str, node: str, *, kind: str = "repair") -> str:
    """Return a name for a new repair or backfill: `kind:group/node/` and the highest number in use plus 1."""
    prefix = f"{kind}:{group}/{node}/"
    taken = [c.name for c in read_cursors(conn, kind) if c.name.startswith(prefix)]
    return f"{prefix}{max([int(name.rpartition('/')[2]) for name in taken], default=0) + 1}"


def lock_positions(conn: sa.Connection, names: Sequence[str]) -> dict[str, int]:
    """Lock the rows of these cursors until the transaction ends; return the position of each that exists, by name."""
    ordered = sorted(set(names))  # one order for all, so that two writers never wait for each other
    marks = ", ".join("?" * len(ordered))
    sql = f"SELECT name, position FROM cursors WHERE name IN ({marks}) ORDER BY name{for_update(conn)}"
    return dict(fetch(conn, sql, ordered))


def check_fence(positions: Mapping[str, int], step: Step) -> None:
    """Raise `FenceLost` unless `positions` has the step's cursor at the position the step began from."""
    found = positions.get(step.name)
    if found != step.position:
        where = "was deleted" if found is None else f"is at {found}"
        raise FenceLost(f"cursor {step.name!r} {where}, this step began at {step.position}")


def apply_step(conn: sa.Connection, step: Step) -> None:
    """Move the cursor, clear its failures if the step succeeded, and store the step's batches and dead letters.

    The caller has called `check_fence` under the same lock.

    Raises `FenceLost` if the cursor's selection version differs from the step's: records that the step skipped may now
    be wanted, and the repair that sends what the old selection left out ends where the cursor stood at the declaration.
    """
    changes: dict[str, Any] = {"position = ?": step.upto, "sent_upto = ?": step.sent_upto}
    if step.succeeded:
        changes |= {
            "since = CASE WHEN state = 'running' THEN since ELSE ? END": step.now,
            "state = ?": LinkState.RUNNING.value,
            "reason = ?": "",
            "attempts = ?": 0,
            "retry_at = ?": None,
            "last_error = ?": "",
            "attempted_at = ?": step.now,
            "attempted_upto = ?": step.upto,
            "succeeded_at = ?": step.now,
        }
    if step.protocol:
        changes["protocol = ?"] = step.protocol
    ranges = [batch for batch in step.batches if batch.status and not batch.picked]
    if ranges:
        changes["sent_epoch = ?"] = ranges[-1].epoch
    where: dict[str, Any] = {"name = ?": step.name}
    if step.selector_version is not None:
        where["selector_version = ?"] = step.selector_version
    sql = f"UPDATE cursors SET {', '.join(changes)} WHERE {' AND '.join(where)}"
    if execute(conn, sql, (*changes.values(), *where.values())) == 0:
        raise FenceLost(f"cursor {step.name!r} selects by another version than {step.selector_version}")
    for batch in step.batches:
        insert_batch(conn, batch)
    for letter in step.dead_letters:
        insert_dead_letter(conn, letter)


def insert_batch(conn: sa.Connection, batch: DeliveredBatch) -> None:
    """Store the ledger row of one batch."""
    values = {name: getattr(batch, name) for name in DeliveredBatch.__slots__}
    values["exceptions"] = json.dumps(list(batch.exceptions), separators=(",", ":")) if batch.exceptions else ""
    values["picked"] = json.dumps(list(batch.picked), separators=(",", ":")) if batch.picked else ""
    bulk_insert(conn, batches, list(values), [list(values.values())])


def insert_dead_letter(conn: sa.Connection, letter: DeadLetter) -> None:
    """Store a dead letter; an earlier one of its cursor and position gets the new reason, detail, attempts and time."""
    values = {name: getattr(letter, name) for name in DeadLetter.__slots__}
    statement = insert(conn, dead_letters).values(**values)
    keep = {name: values[name] for name in ("reason", "detail", "attempts", "parked_at")}
    key = [dead_letters.c.cursor, dead_letters.c.position]
    conn.execute(statement.on_conflict_do_update(index_elements=key, set_=keep))


@dataclass(frozen=True, slots=True)
class Postponement:
    """A failed attempt: the cursor stays at `position`, and is tried again at `retry_at`. Times in microseconds."""

    name: str
    position: int
    state: LinkState
    reason: str
    error: str
    attempted_upto: int
    now: int
    retry_at: int | None


def postpone(conn: sa.Connection, failure: Postponement) -> None:
    """Record a failed attempt, unless the cursor has moved since."""
    where = sa.and_(cursors.c.name == failure.name, cursors.c.position == failure.position)
    conn.execute(
        cursors.update()
        .where(where)
        .values(
            state=failure.state,
            reason=failure.reason,
            since=sa.case((cursors.c.state == failure.state, cursors.c.since), else_=failure.now),
            attempts=cursors.c.attempts + 1,
            attempted_upto=failure.attempted_upto,
            attempted_at=failure.now,
            retry_at=failure.retry_at,
            last_error=failure.error,
        )
    )


def clear_failures(conn: sa.Connection, names: Iterable[str], now: int) -> None:
    """Set the state of these cursors to `running` and clear their failures, so that the next attempt is immediate."""
    rows = [(LinkState.RUNNING.value, now, name) for name in names]
    sql = (
        "UPDATE cursors SET state = ?, reason = '', since = CASE WHEN state = 'running' THEN since ELSE ? END,"
        " attempts = 0, retry_at = NULL, last_error = '' WHERE name = ? AND (state <> 'running' OR last_error <> '')"
    )
    execute_many(conn, sql, rows)


def set_paused(conn: sa.Connection, name: str, *, at: int | None, by: str) -> None:
    """Pause the cursor, with `at` (microseconds) as the time; None resumes it. Raises `NotFound`."""
    changed = conn.execute(cursors.update().where(cursors.c.name == name).values(paused_at=at, paused_by=by))
    if changed.rowcount == 0:
        raise NotFound(f"no cursor {name!r}")


def rewind(conn: sa.Connection, name: str, *, position: int, to: int, now: int, epoch: str = "") -> None:
    """Move a cursor back: the other side has less than the cursor says.

    `epoch` is the one in which the other side has proven to have everything up to `to`; empty without a proof. Raises
    `Invalid` unless `to` is before `position`: a forward move would skip records that were never delivered. Raises
    `FenceLost` if the cursor moved meanwhile.
    """
    if to >= position:
        raise Invalid(f"cursor {name!r} at {position} cannot be rewound to {to}")
    where = sa.and_(cursors.c.name == name, cursors.c.position == position)
    back = {"position": to, "sent_upto": to, "sent_epoch": epoch, "rewound_from": position, "since": now}
    if conn.execute(cursors.update().where(where).values(**back)).rowcount == 0:
        raise FenceLost(f"cursor {name!r} moved during the rewind")


def move_cursor(conn: sa.Connection, name: str, *, to: int, now: int) -> None:
    """Move a cursor forward or back, for an operator, and clear its failures. Raises `NotFound`.

    A step in progress fails with `FenceLost`, unless it began at `to`.
    """
    fresh = {"position": to, "sent_upto": to, "attempts": 0, "retry_at": None, "last_error": "", "reason": ""}
    fresh |= {"state": LinkState.RUNNING, "since": now}
    if conn.execute(cursors.update().where(cursors.c.name == name).values(**fresh)).rowcount == 0:
        raise NotFound(f"no cursor {name!r}")
