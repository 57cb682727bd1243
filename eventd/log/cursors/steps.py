"""Steps of cursors: forward with batches and dead letters, or a failed attempt that is postponed.

A step is applied only if the cursor is still at the position the step began from; that check is the fence. Reads and
writes are part of the caller's transaction; if it locks the head, it does so before any cursor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from eventd.errors import FenceLost
from eventd.log.cursors.cursors import LinkState
from eventd.log.cursors.dead_letters import DeadLetter, insert_dead_letters
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert, execute, fetch, for_update

CALLBACK_PROTOCOL: Final = "callback"
GAP_PROTOCOL: Final = "gap"
"""Stands in the column `protocol` of ledger rows that report lost records and no batch. An index finds these rows."""


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
class Step:
    """One step of a cursor, from `position` to `upto`, with its batches and dead letters.

    `selector_version` is that of the selection by which the step was made; None: the step does not depend on it. A
    step that has not `succeeded` leaves the state and the failures of the cursor as they are. A successful step also
    sets the cursor's `reason`: why its destination gets no more at present, although it works; empty if nothing holds
    it back.
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
    reason: str = ""


def lock_positions(conn: Connection, names: Sequence[str]) -> dict[str, int]:
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


def apply_step(conn: Connection, step: Step) -> None:
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
            "reason = ?": step.reason,
            "attempts = ?": 0,
            "retry_at = ?": None,
            "last_error = ?": "",
            "failing_since = ?": None,
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
    insert_dead_letters(conn, step.dead_letters)


def insert_batch(conn: Connection, batch: DeliveredBatch) -> None:
    """Store the ledger row of one batch."""
    values = {name: getattr(batch, name) for name in DeliveredBatch.__slots__}
    values["exceptions"] = json.dumps(list(batch.exceptions), separators=(",", ":")) if batch.exceptions else ""
    values["picked"] = json.dumps(list(batch.picked), separators=(",", ":")) if batch.picked else ""
    bulk_insert(conn, "batches", list(values), [list(values.values())])


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


def postpone(conn: Connection, failure: Postponement) -> None:
    """Record a failed attempt, unless the cursor has moved since."""
    state = failure.state.value
    execute(
        conn,
        "UPDATE cursors SET state = ?, reason = ?, since = CASE WHEN state = ? THEN since ELSE ? END,"
        " attempts = attempts + 1, attempted_upto = ?, attempted_at = ?, retry_at = ?, last_error = ?,"
        " failing_since = coalesce(failing_since, ?) WHERE name = ? AND position = ?",
        (
            *(state, failure.reason, state, failure.now),
            *(failure.attempted_upto, failure.now, failure.retry_at, failure.error),
            *(failure.now, failure.name, failure.position),
        ),
    )
