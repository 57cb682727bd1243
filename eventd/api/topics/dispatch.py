"""Nodes that stay connected and work: they are sent jobs as they come, as many as they want to hold at a time.

One desk serves all workers of a queue. It looks when something is written to the queue, when a job of it is settled,
and when a lease or a delay ends, and then deals what there is to all of them at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from eventd.api.topics.calls import V0
from eventd.api.topics.client_stream import Following, Outlet, Watching
from eventd.api.topics.jobs import show_job
from eventd.api.topics.shared_reads import Portion
from eventd.api.topics.watch import SseFollower
from eventd.errors import EventdError
from eventd.log.queues.units import Job, JobHandle, JobHolder, JobRequest, Nack, Refill, RefillResult
from eventd.log.topics.errors import NotAQueue, TopicNotFound
from eventd.runtime.clock import SECOND

HEARTBEAT_SECONDS = 15.0
BROKEN_SECONDS = 1.0
"""How soon a desk that could not look tries again."""
FULL_SECONDS = 0.2
"""How soon it looks again for a worker that did not take what it was sent."""
logger = logging.getLogger("eventd.api")


class Worker(SseFollower):
    """A client that works. `held`: the leases of the jobs it was sent and, as far as we know, still holds, by seq."""

    stays = True

    def __init__(self, watching: Watching, outlet: Outlet, queue: str, wish: JobRequest, *, chunked: bool) -> None:
        super().__init__(watching, outlet, HEARTBEAT_SECONDS, chunked=chunked)
        self.held: dict[int, str] = {}
        self._queue = queue
        self._wish = wish

    @property
    def node(self) -> str:
        """Who works."""
        return self._wish.node

    @property
    def holder(self) -> JobHolder:
        """What it may be given now: nothing while it does not take what it was sent, or when it has gone."""
        most = 0 if self.outlet.full or self.outlet.closed else self._wish.most
        return JobHolder(self._wish._replace(most=most), dict(self.held))

    def hand(self, kept: Iterable[int], jobs: Iterable[Job]) -> None:
        """Send it jobs. Of those it had it holds these still."""
        self.held = {seq: self.held[seq] for seq in kept}
        for job in jobs:
            self.held[job.seq] = job.lease_id
            text = show_job(job, self._queue).encode()
            self.say(b"id: %d\nevent: job\ndata: %b\n\n" % (job.seq, text))

    def dismiss(self) -> None:
        """The queue is no more."""
        told = {"code": 409, "error": f"the queue {self._queue!r} is no more", "topic": self._queue}
        self.say(b"event: error\ndata: %b\n\n" % msgspec.json.encode(told))
        self.end()

    def error(self, code: str, message: str) -> bytes:
        data = msgspec.json.encode({"code": code, "message": message})
        return self._chunk(b"event: error\ndata: %b\n\n" % data)

    def say(self, text: bytes) -> None:
        """Send it something."""
        self.outlet.write(self._chunk(text))

    def words(self, following: Following, portion: Portion) -> bytes:
        return b""  # it follows no topic


class Desk:
    """Where the workers of one queue get their jobs, as long as there are any."""

    def __init__(self, v0: V0, topic_id: int, name: str) -> None:
        self.topic_id = topic_id
        self.workers: list[Worker] = []
        self._v0 = v0
        self._name = name
        self._watch = v0.log.wakeups.watch((topic_id,))
        self._is_broken = self._is_closed = False
        v0.supervisor.keep(self._serve, f"jobs of {name}")  # it must live: no worker of the queue would get a job

    def look(self) -> None:
        """Something has happened to the queue."""
        self._watch.look()

    def close(self) -> None:
        """Nobody works any more. What is being dealt still is, and then given back."""
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
        """Deal what there is; in how many seconds to look again, if nothing happens before."""
        # Who holds least comes first, so that none of them gets everything.
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
                logger.warning("jobs cannot be handed out: %s", error, extra={"topic": self._name})
            self._is_broken = True
            return BROKEN_SECONDS
        self._is_broken = False
        self._hand_out(workers, refilled)
        return self._pause(refilled.look_at)

    def _pause(self, look_at: int | None) -> float:
        """Until a lease ends; what another process did to the queue is not told, but seen at the next look."""
        longest = FULL_SECONDS if any(worker.outlet.full for worker in self.workers) else HEARTBEAT_SECONDS
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
        """Have others get what a worker that has left held."""
        if held:
            handles = [JobHandle(seq, lease_id) for seq, lease_id in held.items()]
            unit = Nack(self.topic_id, node, handles)
            # Runs once: if it fails, the leases end by themselves.
            self._v0.supervisor.spawn(self._give_back(unit), f"jobs of {self._name} given back")

    async def _give_back(self, unit: Nack) -> None:
        try:
            await self._v0.log.submit(unit)
        except EventdError:
            return  # they come back when their leases end
        self._v0.part(Desks).look(self.topic_id)


class Desks:
    """The desks of the queues that somebody works on."""

    def __init__(self, v0: V0) -> None:
        self._v0 = v0
        self._desks: dict[int, Desk] = {}

    def look(self, topic_id: int) -> None:
        """Something has happened to a queue."""
        if desk := self._desks.get(topic_id):
            desk.look()

    def join(self, topic_id: int, name: str, worker: Worker) -> Desk:
        """A worker comes. End it with `leave`."""
        desk = self._desks.get(topic_id)
        if desk is None:
            desk = self._desks[topic_id] = Desk(self._v0, topic_id, name)
        desk.workers.append(worker)
        desk.look()
        return desk

    def leave(self, desk: Desk, worker: Worker) -> None:
        """It goes; what it held is for others."""
        desk.workers.remove(worker)
        desk.release(worker.node, worker.held)
        if not desk.workers:
            del self._desks[desk.topic_id]
            desk.close()
