"""Operations on the jobs of a queue that cannot be claimed now: leased and delayed jobs, and dead letters."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import Field

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.errors import Conflict, EventdError, Forbidden, Invalid
from eventd.log.core.topic_row import read_topic
from eventd.log.queues.letters import ReturnLetters
from eventd.log.queues.units import Release
from eventd.runtime.clock import Moment
from eventd.store.engine.database import Connection
from eventd.store.rows.leases import Lease, read_unfinished_leases

MOST_RETURNED: Final = 5000
"""Maximum number of dead letters that a request returns to their queue."""
MOST_STEPS: Final = 50
"""Maximum number of transactions for one request: many records of other queues may precede the dead letters."""
_PLACE = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")


class ListLeases(Params):
    """The leases and delays of a queue, those that end first first."""

    narrows = True  # the key must be allowed to access the topic, which the path names

    topic: str = Field(description="The queue.")
    after: str = Field(default="", max_length=60, description="Continue after this token, the `next` of a page.")
    limit: int = Field(default=50, ge=1, le=200, description="Maximum number of entries of the page.")


async def list_leases(services: Services, params: ListLeases) -> dict[str, Any]:
    """Return a page of the jobs that cannot be claimed now, without the ids of their leases."""
    return await services.database.read(_read, params, Moment.of(services.clock))


class ReleaseJobs(Params):
    """Which delayed jobs are made ready."""

    narrows = True

    topic: str = Field(description="The queue.")
    seqs: list[int] = Field(min_length=1, max_length=1000, description="The seqs of the delayed jobs.")


async def release(services: Services, params: ReleaseJobs) -> dict[str, Any]:
    """End the delays of jobs. Jobs that a client holds, and others that are not delayed, are skipped."""
    done = await services.log.submit(Release(params.topic, params.seqs))
    if done.done:
        services.log.wakeups.touch(done.topic_id)  # clients that wait for jobs get them at once
    return {
        "released": list(done.done),
        "skipped": list(done.skipped),
        "ready": done.standing.ready,
        "leased": done.standing.in_flight,
    }


class RetryLetters(Params):
    """How many dead letters of a queue are returned to it."""

    narrows = True

    topic: str = Field(description="The queue.")
    limit: int = Field(
        default=1000, ge=1, le=MOST_RETURNED, description="Maximum number of dead letters, the oldest first."
    )


async def retry(services: Services, params: RetryLetters) -> dict[str, Any]:
    """Write dead letters of a queue to it as new jobs, and delete them from their topic."""
    line = await services.database.read(read_topic, params.topic)
    if line.config.dead_letter and not services.sees(line.config.dead_letter):
        raise Forbidden(f"your key may not access the topic {line.config.dead_letter}, which holds the dead letters")
    returned, after, upto = 0, 0, None
    for _ in range(MOST_STEPS):
        left = params.limit - returned
        try:
            step = await services.log.submit(ReturnLetters(params.topic, after=after, upto=upto, most=left))
        except EventdError:
            if not returned:
                raise
            return {"retried": returned, "complete": False}  # the queue is full now
        returned, after, upto = returned + step.returned, step.searched, step.upto
        if step.complete or returned >= params.limit:
            break
    return {"retried": returned, "complete": step.complete}


def _read(conn: Connection, params: ListLeases, at: Moment) -> dict[str, Any]:
    topic = read_topic(conn, params.topic)
    if not topic.is_queue:
        raise Conflict(
            f"the topic {params.topic!r} is a log, not a queue", hint="routerctl queue list shows the queues"
        )
    after = _read_place(params.after) if params.after else (at.steady, 1 << 62)
    found = read_unfinished_leases(conn, topic.id, after=after, limit=params.limit + 1)
    shown = found[: params.limit]
    following = f"{shown[-1].free_at}:{shown[-1].seq}" if len(found) > params.limit else None
    return {"leases": [_show(lease, at) for lease in shown], "next": following}


def _read_place(token: str) -> tuple[int, int]:
    found = _PLACE.fullmatch(token)
    if found is None:
        raise Invalid(f"{token!r} is not a token of this list", hint="send the `next` of the last page unchanged")
    return int(found[1]), int(found[2])


def _show(lease: Lease, at: Moment) -> dict[str, Any]:
    assert lease.free_at is not None
    return {
        "seq": lease.seq,
        "state": "leased" if lease.node else "delayed",
        "client": lease.node,
        "endsAt": show_time(at.wall + lease.free_at - at.steady),
        "deliveries": lease.deliveries,
        "bytes": lease.size,
    }
