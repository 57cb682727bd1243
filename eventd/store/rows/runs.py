"""Rows of plugin runs, with input and outcome: one for each start of a plugin, and for events lost before one.

A row is written before the plugin starts, so that a run that crashes the node is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, execute_many, fetch, insert_row, listed_texts, update_rows


class RunStatus(StrEnum):
    """The state of a run, and its outcome once it has ended."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # it is retried, in the end with single events
    BLOCKED = "blocked"  # the plugin cannot run at all: no event is to blame
    INTERRUPTED = "interrupted"  # the node was stopped, or the subscription changed
    PARKED = "parked"  # the last attempt with this one event, which is a dead letter now
    LOST = "lost"  # retention evicted the events before the plugin got them: nothing was run


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that begins. Times in microseconds.

    The plugin gets the events `event_ids` of the log positions `(after, upto]`; `coalesced` are the ids of events that
    later ones replaced. A run without events has no `subscription`; it has a `cursor` only if an interval started it.
    """

    plugin: str
    trigger: str
    started_at: int
    subscription: str = ""
    cursor: str = ""
    after: int = 0
    upto: int = 0
    group: str = ""
    event_ids: Sequence[str] = ()
    coalesced: Sequence[str] = ()
    attempt: int = 1
    status: RunStatus = RunStatus.RUNNING
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended. `source` and `generation` identify the part it produced; empty and None without one."""

    status: RunStatus
    completed_at: int
    exit_code: int | None = None
    stdout_digest: str = ""
    stderr: str = ""
    error: str = ""
    source: str = ""
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stored run; `events` counts its `event_ids`, and `completed_at` is None while it runs."""

    id: int
    plugin: str
    trigger: str
    subscription: str
    cursor: str
    after: int
    upto: int
    group: str
    event_ids: Sequence[str]
    coalesced: Sequence[str]
    events: int
    attempt: int
    status: RunStatus
    started_at: int
    completed_at: int | None
    exit_code: int | None
    stdout_digest: str
    stderr: str
    error: str
    source: str
    generation: int | None


def begin_run(conn: Connection, new: NewRun) -> int:
    """Store a run that begins, or one that ends at once (any other status than running). Returns its id."""
    values = {name: getattr(new, name) for name in NewRun.__slots__}
    values |= {
        "group_name": values.pop("group"),
        "event_ids": _listed(new.event_ids),
        "coalesced": _listed(new.coalesced),
        "events": len(new.event_ids),
        "status": new.status.value,
        "completed_at": None if new.status is RunStatus.RUNNING else new.started_at,
        "exit_code": None,
        "stdout_digest": "",
        "stderr": "",
        "source": "",
        "generation": None,
    }
    ((run_id,),) = insert_row(conn, "plugin_runs", values, "RETURNING id")
    return int(run_id)


def end_run(conn: Connection, run_id: int, ending: RunEnd) -> None:
    """Store the end of a run."""
    values = {name: getattr(ending, name) for name in RunEnd.__slots__}
    update_rows(conn, "plugin_runs", {**values, "status": ending.status.value}, {"id": run_id})


def last_run(conn: Connection, cursor: str) -> Run | None:
    """Return the run of a cursor that began last; None if it has none."""
    runs = _newest(conn, {"cursor = ?": (cursor,)}, 1)
    return runs[0] if runs else None


def read_runs(
    conn: Connection,
    *,
    plugin: str = "",
    subscription: str = "",
    group: str = "",
    event_id: str = "",
    statuses: Sequence[RunStatus] = (),
    before: int | None = None,
    above: int = 0,
    limit: int = 100,
) -> list[Run]:
    """Return up to `limit` runs with an id below `before` (None: all), newest first; an empty condition selects all.

    Only runs with an id over `above`.

    `event_id`: only runs that got this event, or for which a later event replaced it.
    """
    columns = {"plugin": plugin, "subscription": subscription, "group_name": group}
    conditions: dict[str, Sequence[Any]] = {f"{name} = ?": (value,) for name, value in columns.items() if value}
    if event_id:
        listed = re.sub("[%_/]", r"/\g<0>", json.dumps(event_id, ensure_ascii=False))
        conditions["(event_ids LIKE ? ESCAPE '/' OR coalesced LIKE ? ESCAPE '/')"] = (f"%{listed}%", f"%{listed}%")
    if statuses:
        conditions[f"status IN ({', '.join('?' * len(statuses))})"] = [str(status) for status in statuses]
    if before is not None:
        conditions["id < ?"] = (before,)
    if above:
        conditions["id > ?"] = (above,)
    return _newest(conn, conditions, limit)


MOST_SEARCHED = 50_000
"""How many of the newest runs are searched for one event: they have no index of their events."""


def search_runs(conn: Connection, group: str, event_id: str, *, limit: int) -> tuple[list[Run], bool]:
    """Return up to `limit` runs of a group that got an event, or for which a later event replaced it, newest first.

    Also returns whether all runs were searched; otherwise, only the newest `MOST_SEARCHED` were.
    """
    [(oldest, newest)] = fetch(conn, "SELECT min(id), max(id) FROM plugin_runs")
    above = (newest or 0) - MOST_SEARCHED
    runs = read_runs(conn, group=group, event_id=event_id, above=max(0, above), limit=limit)
    return runs, oldest is None or oldest > above


def read_newest(conn: Connection, subscriptions: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Run]:
    """Return the newest run of each of these subscriptions, by (group, name), without those that have no run."""
    return {
        (group, name): run
        for group, name in subscriptions
        for run in read_runs(conn, subscription=name, group=group, limit=1)
    }


def read_run(conn: Connection, run_id: int) -> Run | None:
    """Return the run with this id; None if there is none."""
    runs = _newest(conn, {"id = ?": (run_id,)}, 1)
    return runs[0] if runs else None


def count_events(conn: Connection, group: str, subscription: str, status: RunStatus, runs: int) -> tuple[int, bool]:
    """Return the number of different events of the runs with that status, and whether all runs were looked at.

    Only the newest `runs` of the subscription in that group are.
    """
    newest = (
        "SELECT id, status, event_ids FROM plugin_runs WHERE subscription = ? AND group_name = ?"
        " ORDER BY id DESC LIMIT ?"
    )
    ids = listed_texts(conn, "event_ids")
    sql = f"SELECT count(DISTINCT value) FROM ({newest}) AS newest, {ids} WHERE status = ?"
    events = fetch(conn, sql, (subscription, group, runs, str(status)))[0][0]
    looked_at = fetch(conn, f"SELECT count(*) FROM ({newest}) AS newest", (subscription, group, runs + 1))[0][0]
    return int(events), int(looked_at) <= runs


def interrupt_runs(conn: Connection, cursor: str, error: str, now: int) -> None:
    """Mark the unfinished runs of a cursor as interrupted. They do not count as attempts."""
    execute(
        conn,
        "UPDATE plugin_runs SET status = ?, completed_at = ?, error = ? WHERE cursor = ? AND status = ?",
        (RunStatus.INTERRUPTED.value, now, error, cursor, RunStatus.RUNNING.value),
    )


def detach_runs(conn: Connection, cursor: str, now: int) -> None:
    """Detach the runs of a cursor, so that they do not count as attempts at its next events.

    Running ones are marked as interrupted.
    """
    interrupt_runs(conn, cursor, "the subscription was reset or deleted meanwhile", now)
    execute(conn, "UPDATE plugin_runs SET cursor = '' WHERE cursor = ?", (cursor,))


def delete_old_runs(conn: Connection, before: int, limit: int) -> int:
    """Delete at most `limit` runs that ended before a time (microseconds). Returns their number.

    Runs that began before it and never ended are deleted too: their process was killed. The newest run of each cursor
    stays, because it has the number of attempts for the waiting events.
    """
    old = fetch(
        conn,
        "SELECT id FROM plugin_runs WHERE (completed_at < ? OR completed_at IS NULL AND started_at < ?)"
        " AND (cursor = '' OR id < (SELECT max(id) FROM plugin_runs AS newer WHERE newer.cursor = plugin_runs.cursor))"
        " ORDER BY id LIMIT ?",
        (before, before, limit),
    )
    execute_many(conn, "DELETE FROM plugin_runs WHERE id = ?", old)
    return len(old)


_COLUMNS = ", ".join("group_name" if name == "group" else name for name in Run.__slots__)


def _newest(conn: Connection, conditions: Mapping[str, Sequence[Any]], limit: int) -> list[Run]:
    """Return the newest runs, at most `limit`, that meet these conditions, given with their parameters."""
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    params = [value for values in conditions.values() for value in values]
    sql = f"SELECT {_COLUMNS} FROM plugin_runs{where} ORDER BY id DESC LIMIT ?"
    return [_run(row) for row in fetch(conn, sql, [*params, limit])]


def _run(row: Sequence[Any]) -> Run:
    values = dict(zip(Run.__slots__, row, strict=True))
    values["event_ids"], values["coalesced"] = json.loads(values["event_ids"]), json.loads(values["coalesced"])
    values["status"] = RunStatus(values["status"])
    return Run(**values)


def _listed(ids: Sequence[str]) -> str:
    return json.dumps([*ids], ensure_ascii=False, separators=(",", ":"))
