"""Carries out bulk jobs, which last longer than a request, step by step in the node's first process.

A step is one transaction, which also stores the progress of the job: after a kill, the job continues with the next
step. Nodes for one group each may share a database; a lease gives each job to one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple, Protocol, cast

from eventd.api.admin.bulk.bulk_actions import (
    STEP_LETTERS,
    BulkAction,
    BulkTarget,
    MustWait,
    carry_out,
    find_obstacles,
)
from eventd.api.admin.bulk.bulk_jobs import SCOPES
from eventd.api.keys.valid_keys import Keys
from eventd.errors import DatabaseUnavailable, EventdError, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.delivery.dead_letter_scan import FoundDeadLetters, search_dead_letters
from eventd.runtime.backoff import Backoff
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.rows.bulk_jobs import (
    LONGEST_WAIT,
    BulkJob,
    JobState,
    all_states,
    claim_jobs,
    count_jobs_by_state,
    end_job,
    holds_job,
    release_jobs,
    save_job,
)

POLL_SECONDS: Final = 1.0
"""Seconds between two checks for jobs while none runs."""
LEASE_SECONDS: Final = 30
"""Seconds after which a job may be taken over by another process if no further step was done."""
WAIT_SECONDS: Final = 5
"""Seconds before a step is tried again that waits for earlier deliveries."""
MOST_ATTEMPTS: Final = 10
"""Number of failures of a step in a row after which the job fails."""
BACKOFF: Final = Backoff(base=1.0, cap=LONGEST_WAIT / SECOND)
REST: Final = 1.0
"""The rest after a step, as a multiple of its duration: most writers then find the database free."""

logger = logging.getLogger("eventd.jobs")


class JobMetrics(Protocol):
    """The methods of the metrics that bulk jobs use."""

    def jobs(self, states: Mapping[str, int]) -> None: ...

    def job_step(self, result: str) -> None: ...


class _PreparedStep(NamedTuple):
    """A step of a job, as it was read before its transaction."""

    found: FoundDeadLetters
    obstacles: Mapping[int, str]


class BulkJobRunner:
    """Runs the bulk jobs of a database. `alone`: no other node uses it, so no other process has leases.

    `keys` are the valid keys: a job is cancelled if its key is no longer valid or no longer has the scope.
    """

    def __init__(self, log: EventLog, keys: Keys, metrics: JobMetrics, *, alone: bool) -> None:
        self._database = log.database
        self._clock = log.clock
        self._chance = log.database.chance
        self._keys = keys
        self._metrics = metrics
        self._alone = alone
        self._name = self._chance.token(8).hex()

    async def run_for_ever(self) -> None:
        """Run the jobs, until cancelled. A failure is logged, and the next round tries again."""
        if self._alone:
            await self._database.write(_release)
        while True:
            try:
                await self.run_all()
            except EventdError as error:
                logger.warning("jobs stopped", extra={"error": str(error)})
            await self._clock.sleep(POLL_SECONDS)

    async def run_all(self) -> None:
        """Run all jobs that can run now, a step of each in turn, until none is left."""
        counts: dict[str, int] = {}
        while True:
            counts = all_states(await self._database.read(count_jobs_by_state))
            self._metrics.jobs(counts)
            if not (counts[JobState.WAITING] or counts[JobState.RUNNING]):
                return
            now = self._clock.now()
            claimed = await self._database.write(_claim, self._name, now, now + LEASE_SECONDS * SECOND)
            if not claimed:
                return
            for job in claimed:
                begun = self._clock.monotonic()
                await self._try_step(job)
                await self._clock.sleep(REST * (self._clock.monotonic() - begun))

    async def _try_step(self, job: BulkJob) -> None:
        try:
            await self._step(job)
        except MustWait as error:
            await self._postpone(job, error.message, WAIT_SECONDS, attempts=job.attempts)
        except NotFound as error:  # the group, subscription or callback was deleted
            await self._end(job, JobState.FAILED, error.message)
        except DatabaseUnavailable:  # nothing could be written about it
            raise
        except Exception as error:  # a defect in one job must not end the others
            text = str(error) if isinstance(error, EventdError) else "an internal error: see the log of the node"
            logger.warning(
                "job step failed",
                extra={"job": job.number, "attempts": job.attempts + 1, "error": text},
                exc_info=not isinstance(error, EventdError),
            )
            self._metrics.job_step("failed")
            attempts = job.attempts + 1
            if attempts >= MOST_ATTEMPTS:
                await self._end(job, JobState.FAILED, text)
            else:
                await self._postpone(job, text, BACKOFF.delay(attempts, self._chance.fraction()), attempts=attempts)

    async def _step(self, job: BulkJob) -> None:
        if reason := self._forbidden(job):
            await self._end(job, JobState.CANCELLED, reason)
            return
        now = self._clock.now()
        step = await self._database.read(_prepare, job, now)
        left = await self._database.write(_carry_out, job, step, now, now + LEASE_SECONDS * SECOND)
        if left is None:
            return
        self._metrics.job_step("done")
        if left.state is JobState.DONE:
            logger.info("job finished", extra={"job": job.number, "state": str(left.state), "done": left.done})

    def _forbidden(self, job: BulkJob) -> str:
        """Return why the key that started the job no longer allows it; empty if it does."""
        if not job.key_digest:
            return ""
        key = self._keys.with_digest(bytes.fromhex(job.key_digest))
        if key is None:
            return "the key that started the job was revoked or has expired"
        if SCOPES[job.action] not in key.scopes:
            return f"the key that started the job no longer has the scope {SCOPES[job.action]}"
        if key.prefixes and not (job.group_name and key.sees(job.group_name)):
            return "the key that started the job is no longer for its group"
        return ""

    async def _end(self, job: BulkJob, state: JobState, detail: str) -> None:
        if await self._database.write(_finish, job, state, detail, self._clock.now()):
            logger.warning("job ended early", extra={"job": job.number, "state": str(state), "reason": detail})

    async def _postpone(self, job: BulkJob, detail: str, seconds: float, *, attempts: int) -> None:
        at = self._clock.now() + round(seconds * SECOND)
        await self._database.write(_put_off, replace(job, attempts=attempts, retry_at=at, detail=detail))


def _release(conn: Connection) -> None:
    lock_head(conn)
    release_jobs(conn)


def _claim(conn: Connection, runner: str, now: int, leased_until: int) -> list[BulkJob]:
    lock_head(conn)
    return claim_jobs(conn, runner, now, leased_until)


def _prepare(conn: Connection, job: BulkJob, now: int) -> _PreparedStep:
    target = BulkTarget.of(job)
    found = search_dead_letters(conn, target.letters, job.after, job.bound, STEP_LETTERS)
    return _PreparedStep(found, find_obstacles(conn, cast(BulkAction, job.action), target, found.letters, now))


def _carry_out(conn: Connection, job: BulkJob, step: _PreparedStep, now: int, leased_until: int) -> BulkJob | None:
    """Do a step of a job, and write how far it is now; None, without a change, if it is no longer this process's."""
    lock_head(conn)
    if not holds_job(conn, job):
        return None
    found = step.found
    results = carry_out(conn, cast(BulkAction, job.action), BulkTarget.of(job), found.letters, step.obstacles, now)
    left = replace(
        job,
        after=found.after,
        done=job.done + sum(results.values()),
        results=job.counted(results),
        attempts=0,
        detail="",
        leased_until=leased_until,
    )
    if found.ended:
        return end_job(conn, left, JobState.DONE, "", now)
    save_job(conn, left)
    return left


def _finish(conn: Connection, job: BulkJob, state: JobState, detail: str, now: int) -> bool:
    lock_head(conn)
    if not holds_job(conn, job):
        return False
    end_job(conn, job, state, detail, now)
    return True


def _put_off(conn: Connection, job: BulkJob) -> None:
    """Let a job wait until its `retry_at`; other jobs may run in the meantime."""
    lock_head(conn)
    if holds_job(conn, job):
        save_job(conn, replace(job, state=JobState.WAITING, runner="", leased_until=0))
