"""Queues: claim jobs for a limited time, and settle them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

from msgspec import Struct

from eventd.client.connection import Connection, Query, path_of
from eventd.client.values import Claimed, Extended, Job, Settled
from eventd.errors import Conflict, NotFound, Unavailable

SILENCE_SECONDS = 45.0
"""Seconds after which a silent stream of jobs counts as broken: a node sends something every 15 s."""


class _Claim(Struct, kw_only=True, omit_defaults=True):
    node: str
    max: int = 0
    lease_ms: int | None = None


class _Settle(Struct, kw_only=True, omit_defaults=True):
    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[str] = ()
    delay_ms: int = 0
    lease_ms: int | None = None


class Queues:
    """The queues of a node.

    `node` is the name under which this client holds a job, until the job is settled or its lease expires.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def claim(self, queue: str, node: str, *, most: int = 1, lease_ms: int | None = None) -> Claimed:
        """Claim up to `most` jobs. If the answer is lost, its jobs return to the queue when their leases expire.

        A lease lasts `lease_ms`; None: the `lease_ms` of the queue.
        """
        body = _Claim(node=node, max=most, lease_ms=lease_ms)
        return await self._connection.ask("POST", path_of("topics", queue, "claim"), Claimed, body)

    async def ack(self, queue: str, node: str, jobs: Iterable[Job | int]) -> Settled:
        """Acknowledge jobs as done: the node removes them, and skips those that `node` does not hold.

        A `Job` is acknowledged only under the lease it was claimed with, a bare seq under any lease of `node`.
        """
        return await self._connection.ask("POST", path_of("topics", queue, "ack"), Settled, _settle(node, jobs))

    async def nack(self, queue: str, node: str, jobs: Iterable[Job | int], *, delay_ms: int = 0) -> Settled:
        """Return jobs to the queue unfinished, to be claimed again after `delay_ms`, or to become dead letters."""
        body = _settle(node, jobs)
        body.delay_ms = delay_ms
        return await self._connection.ask("POST", path_of("topics", queue, "nack"), Settled, body)

    async def extend(self, queue: str, node: str, jobs: Iterable[Job | int], *, lease_ms: int) -> Extended:
        """Let the leases of jobs end `lease_ms` milliseconds from now."""
        body = _settle(node, jobs)
        body.lease_ms = lease_ms
        return await self._connection.ask("POST", path_of("topics", queue, "extend"), Extended, body)

    async def work(
        self, queue: str, node: str, *, most: int = 1, lease_ms: int | None = None
    ) -> AsyncGenerator[Job, None]:
        """Yield jobs as they arrive, at most `most` unsettled ones at a time; settle each with `ack` or `nack`.

        When the connection breaks, unsettled jobs return to the queue, and a new connection is opened. Raises
        `Unavailable` after as many failures in a row as a request has tries, `NotFound` or `Conflict` when the queue is
        deleted. Close the generator, as `aclosing` does, to return unsettled jobs.
        """
        failures = 0
        while True:
            try:
                async with aclosing(self._jobs(queue, node, most, lease_ms)) as jobs:
                    async for job in jobs:
                        failures = 0
                        yield job
            except Unavailable:
                if failures + 1 >= self._connection.retry.tries:
                    raise
            failures += 1
            await self._connection.pause(self._connection.delay(failures))

    async def _jobs(self, queue: str, node: str, most: int, lease_ms: int | None) -> AsyncGenerator[Job, None]:
        query: Query = {"node": node, "max": most, "lease_ms": lease_ms}
        path = path_of("topics", queue, "work")
        async with self._connection.stream(path, query=query, silence=SILENCE_SECONDS) as frames:
            async for frame in frames:
                if frame.event == "job":
                    yield self._connection.decode(frame.data, Job)
                elif frame.event == "error":
                    _raise_end(queue, self._connection.decode(frame.data, _End))


class _End(Struct):
    code: int | str
    error: str = ""
    message: str = ""


def _raise_end(queue: str, end: _End) -> None:
    """Raise why the node ended the stream: `Unavailable` if it stops, so that `work` continues, else another error."""
    words = end.error or end.message or str(end.code)
    if end.code == "server_shutting_down":
        raise Unavailable(f"the node stops: {words}")
    kind = NotFound if end.code in (404, "topic_not_found") else Conflict
    raise kind(f"{queue} is no longer a queue: {words}")


def _settle(node: str, jobs: Iterable[Job | int]) -> _Settle:
    seqs: list[int] = []
    leases: list[str] = []
    for job in jobs:
        seqs.append(job if isinstance(job, int) else job.seq)
        leases.append("" if isinstance(job, int) else job.lease_id)
    return _Settle(node=node, seqs=seqs, lease_ids=leases if any(leases) else ())
