"""Bulk jobs: actions on all dead letters that match a filter, which the node does step by step.

A row begins as a plan, which a token starts before it expires. The head is locked before a row is changed, so that a
job is cancelled between two of its steps, and two processes never do the same step: each step is part of the
transaction that writes how far its job is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row, update_rows

MOST_RUNNING: Final = 2
"""Maximum number of jobs that run at a time; the others wait."""
MOST_UNFINISHED: Final = 100
"""Maximum number of jobs that are not finished."""
MOST_FINISHED: Final = 900
"""Maximum number of finished jobs; with a new one, the oldest is deleted."""
MOST_PLANS: Final = 100
"""Maximum number of plans that are not started; with a new one, the oldest is deleted."""
MOST_RESULTS: Final = 40
"""Maximum number of different results of a job."""
OTHER: Final = "other reasons"
LONGEST_WAIT: Final = 60_000_000
"""The longest time that a job waits before its next step, in microseconds."""


class JobState(StrEnum):
    """The states of a bulk job."""

    PLANNED = "planned"
    WAITING = "waiting"  # for a process, for other jobs, for the end of a back-off, or for deliveries
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Return whether the job has finished."""
        return self in (JobState.DONE, JobState.CANCELLED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class BulkJob:
    """The row of a job; times in microseconds. `number` is 0 until it is stored.

    `target` says whose dead letters it concerns, and which. `bound` is the newest dead letter that existed when the job
    was planned, `after` the last one that a step looked at. `results` counts by outcome and reason. `total` is how many
    the plan found, an estimate unless `exact`. `key_digest` is that of the key that started it; empty: none is needed.
    """

    token: str
    action: str
    group_name: str
    target: Mapping[str, Any]
    bound: int
    planned_at: int
    expires_at: int
    total: int
    exact: bool
    state: JobState = JobState.PLANNED
    key_digest: str = ""
    started_by: str = ""
    started_at: int | None = None
    finished_at: int | None = None
    after: int = 0
    done: int = 0
    results: Mapping[tuple[str, str], int] = field(default_factory=dict)
    attempts: int = 0
    retry_at: int = 0
    detail: str = ""
    runner: str = ""
    leased_until: int = 0
    number: int = 0

    def counted(self, results: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        """Return the results with those of a step added; reasons beyond `MOST_RESULTS` become one."""
        found = dict(self.results)
        for (outcome, reason), count in results.items():
            key = (outcome, reason)
            if key not in found and len(found) >= MOST_RESULTS:
                key = (outcome, OTHER)
            found[key] = found.get(key, 0) + count
        return found


_FIELDS: Final = tuple(name for name in BulkJob.__slots__ if name != "number")
_QUOTED: Final = ", ".join(f'"{name}"' for name in _FIELDS)
_SELECT: Final = f"SELECT {_QUOTED}, id FROM bulk_jobs"


def _job(row: Sequence[Any]) -> BulkJob:
    values = dict(zip((*_FIELDS, "number"), row, strict=True))
    results = {(outcome, reason): count for outcome, reason, count in json.loads(values["results"])}
    return BulkJob(
        **{
            **values,
            "target": json.loads(values["target"]),
            "exact": bool(values["exact"]),
            "state": JobState(values["state"]),
            "results": results,
        }
    )


def _values(job: BulkJob) -> dict[str, Any]:
    values = {name: getattr(job, name) for name in _FIELDS}
    results = [[outcome, reason, count] for (outcome, reason), count in job.results.items()]
    return values | {
        "target": json.dumps(job.target, ensure_ascii=False),
        "exact": int(job.exact),
        "state": str(job.state),
        "results": json.dumps(results, ensure_ascii=False),
    }


def add_plan(conn: Connection, job: BulkJob) -> int:
    """Store a plan and return its number; expired plans, and the oldest beyond `MOST_PLANS`, are deleted."""
    execute(conn, "DELETE FROM bulk_jobs WHERE state = 'planned' AND expires_at <= ?", (job.planned_at,))
    _keep_newest(conn, "state = 'planned'", MOST_PLANS - 1)
    ((number,),) = insert_row(conn, "bulk_jobs", _values(job), "RETURNING id")
    return int(number)


def _keep_newest(conn: Connection, where: str, most: int) -> None:
    """Delete all but the newest rows that satisfy the condition."""
    rows = fetch(conn, f"SELECT id FROM bulk_jobs WHERE {where} ORDER BY id DESC LIMIT 1 OFFSET ?", (most,))
    if rows:
        execute(conn, f"DELETE FROM bulk_jobs WHERE {where} AND id <= ?", rows[0])


def delete_old_jobs(conn: Connection, before: int, most: int) -> int:
    """Delete at most `most` jobs that finished before a time, and plans that expired before it; return their number."""
    old = "finished_at < ? OR (state = 'planned' AND expires_at < ?)"
    sql = f"DELETE FROM bulk_jobs WHERE id IN (SELECT id FROM bulk_jobs WHERE {old} ORDER BY id LIMIT ?)"
    return execute(conn, sql, (before, before, most))


def find_job(conn: Connection, number: int) -> BulkJob | None:
    """Return a job by its number, if it was started."""
    rows = fetch(conn, f"{_SELECT} WHERE id = ? AND state <> 'planned'", (number,))
    return _job(rows[0]) if rows else None


def find_by_token(conn: Connection, token: str) -> BulkJob | None:
    """Return the plan, or the job, of a token, by the token's digest."""
    rows = fetch(conn, f"{_SELECT} WHERE token = ?", (token,))
    return _job(rows[0]) if rows else None


def read_jobs(conn: Connection, *, state: str = "", group: str = "", before: int = 0, limit: int) -> list[BulkJob]:
    """Return started jobs, newest first: below the number `before`, unless that is 0."""
    sql, params = f"{_SELECT} WHERE state <> 'planned'", list[object]()
    for condition, value in ((" AND state = ?", state), (" AND group_name = ?", group), (" AND id < ?", before)):
        if value:
            sql += condition
            params.append(value)
    return [_job(row) for row in fetch(conn, f"{sql} ORDER BY id DESC LIMIT ?", (*params, limit))]


def read_unfinished(conn: Connection) -> list[BulkJob]:
    """Return the jobs that are not finished, oldest first."""
    return [_job(r) for r in fetch(conn, f"{_SELECT} WHERE finished_at IS NULL AND state <> 'planned' ORDER BY id")]


def count_jobs_by_state(conn: Connection) -> dict[str, int]:
    """Return the number of jobs by state, without plans."""
    return dict(fetch(conn, "SELECT state, count(*) FROM bulk_jobs WHERE state <> 'planned' GROUP BY state"))


def start_job(conn: Connection, plan: BulkJob, *, key_digest: str, started_by: str, now: int) -> BulkJob:
    """Make a job of a plan. The oldest finished jobs beyond `MOST_FINISHED` are deleted."""
    _keep_newest(conn, "finished_at IS NOT NULL", MOST_FINISHED)
    job = replace(plan, state=JobState.WAITING, key_digest=key_digest, started_by=started_by, started_at=now)
    save_job(conn, job)
    return job


def save_job(conn: Connection, job: BulkJob) -> None:
    """Write the row of a job."""
    update_rows(conn, "bulk_jobs", _values(job), {"id": job.number})


def end_job(conn: Connection, job: BulkJob, state: JobState, detail: str, now: int) -> BulkJob:
    """Finish a job in this state; return its row."""
    ended = replace(job, state=state, detail=detail, finished_at=now, runner="", leased_until=0)
    save_job(conn, ended)
    return ended


def claim_jobs(conn: Connection, runner: str, now: int, leased_until: int) -> list[BulkJob]:
    """Lease jobs to the process `runner` and return all that it may run: at most `MOST_RUNNING` run at a time.

    A lease or a wait that ends much later than any that begins now was stored with a clock that was ahead, and has
    ended. Not one that ends a little later: another process may have read its clock, or this lock, a moment later.
    """
    unfinished, latest = read_unfinished(conn), now + 2 * LONGEST_WAIT
    running = [job for job in unfinished if job.state is JobState.RUNNING]
    free = [job for job in running if job.runner == runner or not now < job.leased_until <= latest]
    due = [job for job in unfinished if job.state is JobState.WAITING and not now < job.retry_at <= latest]
    due.sort(key=lambda job: (job.retry_at, job.number))
    mine = [*free, *due][: MOST_RUNNING - (len(running) - len(free))]
    claimed = [
        replace(job, state=JobState.RUNNING, runner=runner, leased_until=leased_until, detail="") for job in mine
    ]
    for job in claimed:
        save_job(conn, job)
    return claimed


def release_jobs(conn: Connection) -> None:
    """End all leases, for a node that is alone on its database: the processes that held them have ended."""
    execute(conn, "UPDATE bulk_jobs SET runner = '', leased_until = 0 WHERE state = 'running'")


def holds_job(conn: Connection, job: BulkJob) -> bool:
    """Return whether a claimed job is still the runner's, and where the runner left it."""
    found = find_job(conn, job.number)
    if found is None or found.state is not JobState.RUNNING:
        return False
    return (found.runner, found.after) == (job.runner, job.after)


def unfinished_count(conn: Connection) -> int:
    """Return the number of jobs that are not finished."""
    sql = "SELECT count(*) FROM bulk_jobs WHERE finished_at IS NULL AND state <> 'planned'"
    return int(fetch(conn, sql)[0][0])


def all_states(counts: Mapping[str, int], states: Collection[JobState] = tuple(JobState)) -> dict[str, int]:
    """Return the number of jobs in each state but `PLANNED`, 0 included."""
    return {str(state): counts.get(state, 0) for state in states if state is not JobState.PLANNED}
