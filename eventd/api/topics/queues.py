"""Queues: claim, acknowledge, return and extend jobs, or receive them over a stream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from aiohttp import web
from aiohttp.http import HttpVersion11
from msgspec import Raw, field

from eventd.api.framework.models import U32, U64, Body, NoQuery, Query, ResponseModel, require_u64
from eventd.api.topics.calls import Call
from eventd.api.topics.claim_cohorts import ClaimCohorts
from eventd.api.topics.client_stream import FollowerRegistry
from eventd.api.topics.dispatch import QueueDispatchers, Worker
from eventd.api.topics.jobs import ShownJobs, show_job
from eventd.api.topics.topics import require_possible_name
from eventd.api.topics.watch import begin_stream, require_stream
from eventd.errors import Invalid
from eventd.log.queues.transaction import read_queue
from eventd.log.queues.units import Ack, Extend, JobHandle, JobRequest, Nack, SettlementResult, require_node
from eventd.log.topics.errors import BatchTooLarge

MOST_JOBS = 1000
"""Maximum number of jobs in one request."""
MAX_DELAY_MS = 86_400_000
_LEASE_ID = re.compile(r"lease_[0-9a-f]{1,64}")


class ClaimBody(Body):
    """The claiming node, the most jobs to claim (0: one), and the lease in milliseconds; null: that of the queue."""

    node: str
    max: U32 = 0
    lease_ms: U64 | None = None

    def __post_init__(self) -> None:
        require_u64(lease_ms=self.lease_ms or 0)


class SettleBody(Body, kw_only=True):
    """Jobs of a node. `lease_ids` has one for each seq, or none at all; an empty one stands for the node's lease."""

    node: str
    seqs: list[U64]
    lease_ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        require_u64(seqs=max(self.seqs, default=0))


class NackBody(SettleBody):
    """Jobs to return, and the milliseconds until they may be claimed again."""

    delay_ms: U64 = 0

    def __post_init__(self) -> None:
        SettleBody.__post_init__(self)
        require_u64(delay_ms=self.delay_ms)


class ExtendBody(SettleBody, kw_only=True):
    """Jobs to keep, and for how many milliseconds from now."""

    lease_ms: U64

    def __post_init__(self) -> None:
        SettleBody.__post_init__(self)
        require_u64(lease_ms=self.lease_ms)


class Claimed(ResponseModel):
    """The claimed jobs, and how many more can be claimed. `deadline` and `$ts` of a job are in milliseconds."""

    topic: str
    claimed: ShownJobs
    count: int
    ready: int


class Acked(ResponseModel):
    """The number of acknowledged jobs, and the queue's counts. `skipped`: seqs repeated, or not held by the node."""

    topic: str
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int


class Nacked(ResponseModel):
    """The number of returned jobs, and the queue's counts. `skipped`: seqs repeated, or not held by the node."""

    topic: str
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int


class Extended(ResponseModel):
    """The number of leases with a new end, and these ends by seq in milliseconds. `skipped`: seqs repeated, or
    not held by the node."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[str, int]


class WorkQuery(Query, frozen=True):
    """The working node, the most jobs it holds by this stream, and the lease in milliseconds; 0: that of the queue."""

    node: str = ""
    max: int = 1
    lease_ms: int = 0


async def claim(call: Call[NoQuery, ClaimBody]) -> Claimed:
    """Claim jobs of a queue."""
    require_possible_name(call.name)
    v0, body = call.v0, call.body
    await v0.catch_up(call.name)
    wish = JobRequest(body.node, _bounded(body.max), body.lease_ms)
    claimed = await v0.part(ClaimCohorts).claim(call.name, wish)
    v0.part(QueueDispatchers).look(claimed.topic_id)
    jobs = claimed.jobs[0]
    return Claimed(
        topic=call.name,
        claimed=Raw(f"[{','.join(map(show_job, jobs))}]"),
        count=len(jobs),
        ready=claimed.standing.ready,
        performance=call.performance(),
    )


def _bounded(most: int) -> int:
    """Return the requested number of jobs, at least one and at most `MOST_JOBS`."""
    return max(1, min(MOST_JOBS, most))


async def ack(call: Call[NoQuery, SettleBody]) -> Acked:
    """Acknowledge jobs: their records are deleted."""
    unit = Ack(call.name, call.body.node, _handles(call.body), flushes=call.v0.log.flushes)
    settled = await _settle(call, unit)
    if settled.room:
        call.v0.log.wakeups.touch(settled.topic_id)
    return Acked(
        topic=call.name,
        acked=len(settled.done),
        skipped=list(settled.skipped),
        ready=settled.standing.ready,
        in_flight=settled.standing.in_flight,
        performance=call.performance(),
    )


async def nack(call: Call[NoQuery, NackBody]) -> Nacked:
    """Return jobs to their queue; they can be claimed again after `delay_ms`."""
    delay_ms = min(MAX_DELAY_MS, call.body.delay_ms)
    settled = await _settle(call, Nack(call.name, call.body.node, _handles(call.body), delay_ms=delay_ms))
    return Nacked(
        topic=call.name,
        nacked=len(settled.done),
        skipped=list(settled.skipped),
        ready=settled.standing.ready,
        in_flight=settled.standing.in_flight,
        performance=call.performance(),
    )


async def extend(call: Call[NoQuery, ExtendBody]) -> Extended:
    """Let the leases of jobs end `lease_ms` from now."""
    unit = Extend(call.name, call.body.node, _handles(call.body), lease_ms=call.body.lease_ms)
    settled = await _settle(call, unit)
    return Extended(
        topic=call.name,
        extended=len(settled.done),
        skipped=list(settled.skipped),
        deadlines={str(seq): settled.deadline // 1000 for seq in settled.done},
        performance=call.performance(),
    )


async def _settle(call: Call[Any, Any], unit: Ack | Nack | Extend) -> SettlementResult:
    require_possible_name(call.name)
    settled = await call.v0.log.submit(unit)
    if settled.done:
        call.v0.part(QueueDispatchers).look(settled.topic_id)
    return settled


def _handles(body: SettleBody) -> Sequence[JobHandle]:
    """Return the jobs that a body names. Raises `Invalid` and `BatchTooLarge`."""
    seqs, lease_ids = body.seqs, body.lease_ids
    if not body.node:
        raise Invalid("`node` is empty", hint="name the node that holds the jobs")
    if len(seqs) > MOST_JOBS:
        detail = {"seqs": len(seqs), "max": MOST_JOBS}
        raise BatchTooLarge(f"{len(seqs)} seqs in one request; at most {MOST_JOBS} are allowed", detail=detail)
    if not lease_ids:
        return [*map(JobHandle, seqs)]
    if len(lease_ids) != len(seqs):
        raise Invalid(f"there are {len(lease_ids)} `lease_ids` for {len(seqs)} `seqs`", hint="give one each, or none")
    for lease_id in lease_ids:
        if lease_id and not _LEASE_ID.fullmatch(lease_id):
            raise Invalid(f"{lease_id[:80]!r} is not a valid lease id", hint="send the `lease_id` of the job, or ''")
    return [*map(JobHandle, seqs, lease_ids)]


async def work(call: Call[WorkQuery, None]) -> web.StreamResponse:
    """Send jobs of a queue to a client over SSE, until it disconnects, the queue is deleted or the node stops."""
    request, v0, query = call.request, call.v0, call.query
    require_stream(request)
    require_node(query.node)
    require_possible_name(call.name)
    line = await v0.database.read(read_queue, call.name)
    await v0.catch_up(call.name)
    registry, dispatchers = v0.part(FollowerRegistry), v0.part(QueueDispatchers)
    await registry.end_disconnected()
    with v0.serving.concurrency.streams.take(call.key):
        response, client = await begin_stream(request)
        if client is None:
            return response
        wish = JobRequest(query.node, _bounded(query.max), query.lease_ms or None)
        worker = Worker(registry, client, call.name, wish, chunked=request.version >= HttpVersion11)
        worker.greet()
        dispatcher = dispatchers.join(line.id, call.name, worker)
        try:
            await worker.run()
        finally:
            dispatchers.leave(dispatcher, worker)
    return response
