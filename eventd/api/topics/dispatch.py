"""Sends jobs of queues to workers over SSE, up to the number that each worker wants to hold.

One dispatcher serves all workers of a queue that are connected to this process. It claims jobs when a worker joins,
the queue is written to, a job is settled in this process, or a lease or a delay ends; and at least every 15 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from eventd.api.listener.sending import ClientStream
from eventd.api.topics.calls import V0
from eventd.api.topics.client_stream import FollowedTopic, FollowerRegistry
from eventd.api.topics.jobs import show_job
from eventd.api.topics.shared_reads import Page
from eventd.api.topics.watch import SseFollower
from eventd.errors import EventdError
from eventd.log.queues.units import Job, JobHandle, JobHolder, JobRequest, Nack, Refill, RefillResult
from eventd.log.topics.errors import NotAQueue, TopicNotFound
from eventd.runtime.clock import SECOND

HEARTBEAT_SECONDS = 15.0
BROKEN_SECONDS = 1.0
"""Seconds until a dispatcher that failed to claim jobs tries again."""
FULL_SECONDS = 0.2
"""Seconds until a dispatcher checks again on a worker that does not read its stream."""
logger = logging.getLogger("eventd.api")


class Worker(SseFollower):
    """A client that works on a queue. `held`: by seq, the lease ids of the jobs that it was sent and probably holds."""

    stays = True

    def __init__(
        self, registry: FollowerRegistry, client: ClientStream, queue: str, wish: JobRequest, *, chunked: bool
    ) -> None:
        super().__init__(registry, client, HEARTBEAT_SECONDS, chunked=chunked)
        self.held: dict[int, str] = {}
        self._queue = queue
        self._wish = wish

    @property
    def node(self) -> str:
        """Return the node name that holds the client's jobs."""
        return self._wish.node

    @property
    def holder(self) -> JobHolder:
        """Return the jobs that the client probably holds, and how many it may hold now: 0 while it does not read its
        stream, or after it disconnected."""
        most = 0 if self.stream.full or self.stream.closed else self._wish.most
        return JobHolder(self._wish._replace(most=most), dict(self.held))

    def hand(self, kept: Iterable[int], jobs: Iterable[Job]) -> None:
        """Send jobs to the client. `kept`: seqs of the earlier jobs that it still holds; others are forgotten."""
        self.held = {seq: self.held[seq] for seq in kept}
        for job in jobs:
            self.held[job.seq] = job.lease_id
            text = show_job(job, self._queue).encode()
            self.write(b"id: %d\nevent: job\ndata: %b\n\n" % (job.seq, text))

    def dismiss(self) -> None:
        """Notify the client that the queue was deleted, and end its stream."""
        error = {"code": 409, "error": f"the queue {self._queue!r} was deleted", "topic": self._queue}
        self.write(b"event: error\ndata: %b\n\n" % msgspec.json.encode(error))
        self.end()

    def error(self, code: str, message: str) -> bytes:
        data = msgspec.json.encode({"code": code, "message": message})
        return self._chunk(b"event: error\ndata: %b\n\n" % data)

    def write(self, text: bytes) -> None:
        """Write to the client's stream."""
        self.stream.write(self._chunk(text))

    def words(self, following: FollowedTopic, page: Page) -> bytes:
        return b""  # it follows no topic


class QueueDispatcher:
    """Distributes the jobs of one queue over its workers in this process, until the last one leaves."""

    def __init__(self, v0: V0, topic_id: int, name: str) -> None:
        self.topic_id = topic_id
        self.workers: list[Worker] = []
        self._v0 = v0
        self._name = name
        self._watch = v0.log.wakeups.watch((topic_id,))
        self._is_broken = self._is_closed = False
        v0.supervisor.keep(self._serve, f"jobs of {name}")  # it must live: otherwise no worker of the queue gets a job

    def look(self) -> None:
        """Have the queue checked again after a change."""
        self._watch.look()

    def close(self) -> None:
        """Stop: the last worker has left. Jobs that are being claimed are returned."""
        self._is_closed = True
        self.look()

    async def _serve(self) -> None:
        while not self._is_closed:
            turn = self._watch.turn
            timer = self._v0.clock.timer(await self._refill())
            try:
                await asyncio.wait({self._watch.after(turn), timer}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
        self._v0.log.wakeups.unwatch(self._watch)

    async def _refill(self) -> float:
        """Claim jobs and distribute them; return the seconds until the next check, if nothing happens before."""
        # Workers that hold least come first, so that none of them gets all jobs.
        workers = sorted(self.workers, key=lambda worker: len(worker.held))
        holders, ceilings = [worker.holder for worker in workers], self._v0.limits.ceilings
        unit = Refill(self.topic_id, holders, self._v0.log.chance.token, ceilings=ceilings)
        try:
            refilled = await self._v0.log.submit(unit)
        except (TopicNotFound, NotAQueue):
            for worker in workers:
                worker.dismiss()
            return HEARTBEAT_SECONDS
        except EventdError as error:
            if not self._is_broken:
                logger.warning("claiming jobs failed", extra={"topic": self._name, "error": str(error)})
            self._is_broken = True
            return BROKEN_SECONDS
        self._is_broken = False
        self._hand_out(workers, refilled)
        return self._pause(refilled.look_at)

    def _pause(self, look_at: int | None) -> float:
        """Return the seconds until `look_at` (when a lease or a delay ends), but at most those until the next regular
        check, which notices changes by other processes."""
        longest = FULL_SECONDS if any(worker.stream.full for worker in self.workers) else HEARTBEAT_SECONDS
        if look_at is None:
            return longest
        return max(0.0, min(longest, (look_at - self._v0.clock.steady()) / SECOND))

    def _hand_out(self, workers: list[Worker], refilled: RefillResult) -> None:
        for worker, kept, jobs in zip(workers, refilled.kept, refilled.jobs, strict=True):
            if worker in self.workers:
                worker.hand(kept, jobs)
            elif jobs:
                self.release(worker.node, {job.seq: job.lease_id for job in jobs})  # it left meanwhile

    def release(self, node: str, held: dict[int, str]) -> None:
        """Start a task that returns to the queue the jobs that a worker held when it left."""
        if held:
            handles = [JobHandle(seq, lease_id) for seq, lease_id in held.items()]
            unit = Nack(self.topic_id, node, handles)
            # Runs once: if it fails, the leases expire.
            self._v0.supervisor.spawn(self._give_back(unit), f"jobs of {self._name} given back")

    async def _give_back(self, unit: Nack) -> None:
        try:
            await self._v0.log.submit(unit)
        except EventdError:
            return  # the jobs return when their leases expire
        self._v0.part(QueueDispatchers).look(self.topic_id)


class QueueDispatchers:
    """The dispatchers of the queues that have workers connected to this process."""

    def __init__(self, v0: V0) -> None:
        self._v0 = v0
        self._dispatchers: dict[int, QueueDispatcher] = {}

    def look(self, topic_id: int) -> None:
        """Have the dispatcher of a changed queue, if there is one, check the queue again."""
        if dispatcher := self._dispatchers.get(topic_id):
            dispatcher.look()

    def join(self, topic_id: int, name: str, worker: Worker) -> QueueDispatcher:
        """Add a worker, and return the dispatcher of its queue, created for the first one; undone by `leave`."""
        dispatcher = self._dispatchers.get(topic_id)
        if dispatcher is None:
            dispatcher = self._dispatchers[topic_id] = QueueDispatcher(self._v0, topic_id, name)
        dispatcher.workers.append(worker)
        dispatcher.look()
        return dispatcher

    def leave(self, dispatcher: QueueDispatcher, worker: Worker) -> None:
        """Remove a worker, whose jobs return to the queue; the dispatcher ends after the last one."""
        dispatcher.workers.remove(worker)
        dispatcher.release(worker.node, worker.held)
        if not dispatcher.workers:
            del self._dispatchers[dispatcher.topic_id]
            dispatcher.close()
