"""Bulk jobs: retry or drop all dead letters that match a filter.

A plan counts them and returns a token, which starts the job; the running node carries it out step by step.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from eventd.api.admin.bulk.bulk_actions import BulkAction, BulkTarget, OwnerKind, find_owner
from eventd.api.framework.action_callers import command_caller, key_caller
from eventd.api.framework.moments import read_span, show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import PAGE_SIZE, Limit, cut_page
from eventd.api.framework.recorder import name_target
from eventd.api.keys.api_key import ANYONE, OWNER, ApiKey
from eventd.api.keys.scopes import Scope
from eventd.errors import Conflict, NotFound
from eventd.log.core.head import lock_head
from eventd.log.delivery.dead_letter_scan import (
    COUNTED,
    DeadLetterCount,
    DeadLetterFilter,
    count_matching,
    estimate,
    newest_dead_letter,
    search_dead_letters,
)
from eventd.log.delivery.repairs import StoredDeadLetter
from eventd.runtime.clock import SECOND, Clock
from eventd.store.engine.database import Connection
from eventd.store.rows.bulk_jobs import (
    MOST_UNFINISHED,
    BulkJob,
    JobState,
    add_plan,
    end_job,
    find_by_token,
    find_job,
    read_jobs,
    start_job,
    unfinished_count,
)

PLAN_SECONDS: Final = 300
"""Seconds for which a plan can be started."""
EXAMPLES: Final = 20
"""Maximum number of dead letters that a plan shows."""
COUNT_SECONDS: Final = 0.2
"""Seconds for which a plan counts by event type, which requires reading the events; the rest is estimated."""
MOST_WORDS: Final = 50
"""Maximum number of reasons, and of event types, of a plan."""
SCOPES: Final[dict[str, Scope]] = {"retry": "admin", "drop": "delete"}
"""The scope that each action needs."""


class PlanJob(Params):
    """Which dead letters to retry or drop: of the peers of a group, of a subscription, or of a callback."""

    by_caller: ClassVar[bool] = True

    action: BulkAction = Field(description="`retry` (scope `admin`) or `drop` (scope `delete`).")
    group: str = Field(default="", description="The group of the peers, or of the subscription.")
    peer: str = Field(default="", description="Only dead letters of this peer of the group, by its node name.")
    subscription: str = Field(default="", description="The dead letters of this subscription.")
    callback: str = Field(default="", description="The dead letters of this callback.")
    reasons: list[str] = Field(
        default=[], max_length=MOST_WORDS, description="Only dead letters with one of these reasons."
    )
    types: list[str] = Field(
        default=[],
        max_length=MOST_WORDS,
        description="Only events of one of these types; one that ends with `*` is a prefix.",
    )
    since: str = Field(default="", description="Only those that became dead letters at this time or later, or an age.")
    until: str = Field(default="", description="Only those that became dead letters at this time or earlier.")

    @model_validator(mode="after")
    def _one_owner(self) -> Self:
        if self.callback and (self.group or self.peer or self.subscription):
            raise ValueError("a callback has no group, peer or subscription: leave these out")
        if self.subscription and self.peer:
            raise ValueError("choose the dead letters of a subscription or of a peer, not of both")
        if not (self.callback or self.subscription or self.group):
            raise ValueError("choose dead letters: by group, subscription or callback")
        return self

    @property
    def owner(self) -> OwnerKind:
        """Return whose dead letters they are."""
        return "callback" if self.callback else "subscription" if self.subscription else "peers"


async def plan(services: Services, params: PlanJob) -> dict[str, Any]:
    key = _caller(services)
    key.require_scope(SCOPES[params.action])
    key.require_group(params.group or None)
    now = services.clock.now()
    found = await services.database.read(_survey, params, now, services.clock)
    token = services.database.chance.token(16).hex()
    job = BulkJob(
        token=_digest(token),
        action=params.action,
        group_name=found.target.group,
        target=found.target.to_json(),
        bound=found.bound,
        planned_at=now,
        expires_at=now + PLAN_SECONDS * SECOND,
        total=found.counted.number,
        exact=found.counted.exact,
    )
    await services.database.write(_add_plan, job)
    return {
        "token": token,
        "expiresAt": show_time(job.expires_at),
        **_describe(job),
        "count": job.total,
        "exact": job.exact,
        "examples": [_example(letter) for letter in found.examples],
    }


def _caller(services: Services) -> ApiKey:
    """Return the caller's key; a command on the database may do everything."""
    return services.key or OWNER


def _caller_name(services: Services) -> str:
    """Return the caller's name, as the record of actions shows it."""
    return command_caller().who if services.key is None else key_caller(services.key, "").who


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class _Survey(NamedTuple):
    target: BulkTarget
    bound: int
    counted: DeadLetterCount
    examples: list[StoredDeadLetter]


def _survey(conn: Connection, params: PlanJob, now: int, clock: Clock) -> _Survey:
    owner = find_owner(conn, params.group, params.peer, params.subscription, params.callback, now)
    since, until = read_span(params.since, params.until, now)
    wanted = DeadLetterFilter(
        owner.topic_id,
        owner.cursor,
        owner.kind,
        tuple(params.reasons),
        tuple(params.types),
        since,
        now if until is None else min(until, now),
    )
    target = BulkTarget(params.owner, owner.group, params.peer, params.subscription, params.callback, wanted)
    bound = newest_dead_letter(conn, owner.topic_id)
    if wanted.types:
        count, examples = _count_by_type(conn, wanted, bound, clock)
    else:
        count = count_matching(conn, wanted, bound)
        examples = list(search_dead_letters(conn, wanted, 0, bound, EXAMPLES).letters)
    return _Survey(target, bound, count, examples)


def _count_by_type(
    conn: Connection, wanted: DeadLetterFilter, bound: int, clock: Clock
) -> tuple[DeadLetterCount, list[StoredDeadLetter]]:
    """Count dead letters by event type, for which their events are read, and return the first ones.

    Beyond the limits, the number is estimated.
    """
    after, looked, found, first = 0, 0, 0, 0
    examples: list[StoredDeadLetter] = []
    ends = clock.monotonic() + COUNT_SECONDS
    while True:
        page = search_dead_letters(conn, wanted, after, bound, EXAMPLES * 25)
        first = first or (page.letters[0].id if page.letters else 0)
        examples += page.letters[: EXAMPLES - len(examples)]
        found, looked, after = found + len(page.letters), looked + EXAMPLES * 25, page.after
        if page.ended:
            return DeadLetterCount(found, True), examples
        if looked >= COUNTED or clock.monotonic() >= ends:
            return estimate(found, first or 1, after, bound), examples


def _add_plan(conn: Connection, job: BulkJob) -> None:
    lock_head(conn)
    add_plan(conn, job)


def _example(letter: StoredDeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "eventId": letter.event_id,
        "type": letter.tag,
        "reason": letter.reason,
        "parkedAt": show_time(letter.parked_at),
    }


class StartJob(Params):
    """The plan to start."""

    by_caller: ClassVar[bool] = True

    token: str = Field(min_length=1, max_length=100, description="The token of the plan. It starts one job only.")


async def start(services: Services, params: StartJob) -> dict[str, Any]:
    who, now = _caller_name(services), services.clock.now()
    planned = await services.database.read(find_by_token, _digest(params.token))
    if planned is not None:
        _name_job(planned)
    job = await services.database.write(_start_now, params.token, _caller(services), who, now)
    return {"job": _show(job)}


def _name_job(job: BulkJob) -> None:
    """Name the owner and the filter of a job in the record of actions: stored jobs are deleted at last."""
    target = BulkTarget.of(job)
    match target.owner:
        case "callback":
            owner = f"callback {target.callback}"
        case "subscription":
            owner = f"subscription {target.subscription}"
        case "peers":
            owner = f"peer {target.group}/{target.peer}" if target.peer else f"group {target.group}"
    count = job.total if job.exact else f"about {job.total}"
    said = {name: value for name, value in _describe(job).items() if name in _FILTERS and value}
    name_target(owner, action=job.action, job=job.number, letters=count, **said)


_FILTERS: Final = ("reasons", "types", "since", "until")


def _start_now(conn: Connection, token: str, key: ApiKey, who: str, now: int) -> BulkJob:
    """Start the plan of a token; return the job that it has started already, if there is one."""
    lock_head(conn)
    found = find_by_token(conn, _digest(token))
    if found is None:
        raise NotFound("there is no plan with this token", hint="plan again: a plan can be started for 5 minutes")
    _require_access(key, found)
    key.require_scope(SCOPES[found.action])
    if found.state is not JobState.PLANNED:
        return found
    if found.expires_at <= now:
        raise Conflict("this plan has expired", hint="plan again: a plan can be started for 5 minutes")
    if unfinished_count(conn) >= MOST_UNFINISHED:
        raise Conflict(f"{MOST_UNFINISHED} jobs are not finished, which is the most", hint="wait, or cancel some")
    needs_key = key not in (ANYONE, OWNER)
    digest = key.digest.hex() if needs_key else ""
    return start_job(conn, found, key_digest=digest, started_by=who, now=now)


def _require_access(key: ApiKey, job: BulkJob) -> None:
    key.require_group(job.group_name or None)


class ListJobs(Params):
    """Which jobs to list, newest first."""

    by_caller: ClassVar[bool] = True
    narrows: ClassVar[bool] = True

    group: str = Field(default="", description="Only jobs of this group.")
    state: Literal["", "waiting", "running", "done", "cancelled", "failed"] = Field(
        default="", description="Only jobs in this state."
    )
    after: int = Field(default=0, ge=0, description="Continue with jobs older than the one with this number.")
    limit: Limit = PAGE_SIZE


async def list_jobs(services: Services, params: ListJobs) -> dict[str, Any]:
    key = _caller(services)
    if params.group:
        key.require_group(params.group)
    found = await services.database.read(_read_visible, params, key)
    shown, following = cut_page(found, params.limit, lambda job: job.number)
    return {"jobs": [_show(job) for job in shown], "next": following}


def _read_visible(conn: Connection, params: ListJobs, key: ApiKey) -> list[BulkJob]:
    """Return the jobs that the key may see: at most 1,000 are stored."""
    before, found = params.after, list[BulkJob]()
    while len(found) <= params.limit:
        page = read_jobs(conn, state=params.state, group=params.group, before=before, limit=params.limit + 1)
        found += [job for job in page if _sees(key, job)]
        if len(page) <= params.limit:
            break
        before = page[-1].number
    return found[: params.limit + 1]


def _sees(key: ApiKey, job: BulkJob) -> bool:
    return not key.prefixes or (bool(job.group_name) and key.sees(job.group_name))


class OneJob(Params):
    """One job."""

    by_caller: ClassVar[bool] = True

    number: int = Field(ge=1, description="The number of the job.")


async def get(services: Services, params: OneJob) -> dict[str, Any]:
    return {"job": _show(await services.database.read(_find, params.number, _caller(services)))}


def _find(conn: Connection, number: int, key: ApiKey) -> BulkJob:
    """Return a job. Raises NotFound, also for one that the key may not see."""
    job = find_job(conn, number)
    if job is None or not _sees(key, job):
        raise NotFound(f"there is no job {number}", hint="`routerctl job list` shows the jobs")
    return job


async def cancel(services: Services, params: OneJob) -> dict[str, Any]:
    who, now = _caller_name(services), services.clock.now()
    job = await services.database.write(_cancel_now, params.number, _caller(services), who, now)
    return {"job": _show(job)}


def _cancel_now(conn: Connection, number: int, key: ApiKey, who: str, now: int) -> BulkJob:
    lock_head(conn)  # a step that is under way ends first
    job = _find(conn, number, key)
    key.require_scope(SCOPES[job.action])
    if job.state is JobState.CANCELLED:
        return job
    if job.state.is_final:
        raise Conflict(f"job {number} is {job.state} already")
    return end_job(conn, job, JobState.CANCELLED, f"cancelled by {who}", now)


def _describe(job: BulkJob) -> dict[str, Any]:
    target = BulkTarget.of(job)
    letters = target.letters
    return {
        "action": job.action,
        "owner": target.owner,
        "group": target.group,
        "peer": target.peer,
        "subscription": target.subscription,
        "callback": target.callback,
        "reasons": list(letters.reasons),
        "types": list(letters.types),
        "since": show_time(letters.since),
        "until": show_time(letters.until),
    }


def _show(job: BulkJob) -> dict[str, Any]:
    return {
        "number": job.number,
        "state": str(job.state),
        **_describe(job),
        "total": job.total,
        "exact": job.exact,
        "done": job.done,
        "results": [
            {"outcome": outcome, "reason": reason, "count": count}
            for (outcome, reason), count in sorted(job.results.items())
        ],
        "detail": job.detail,
        "attempts": job.attempts,
        "retryAt": show_time(job.retry_at) if job.state is JobState.WAITING and job.retry_at else None,
        "startedBy": job.started_by,
        "startedAt": show_time(job.started_at),
        "finishedAt": show_time(job.finished_at),
    }
