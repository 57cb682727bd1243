"""The context of the handlers under /v0, and the type of their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from eventd.api.framework import calls as framework
from eventd.api.framework.limits import ConcurrencyLimits, Limits
from eventd.api.topics.recency import Recency
from eventd.egress.routers.pump import Routing
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import find_topic
from eventd.log.topics.topics import count_topics
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import Supervisor
from eventd.store.engine.database import Database

if TYPE_CHECKING:  # commands handle calls without the server
    from eventd.api.framework.callers import Callers
    from eventd.api.framework.worker_peers import WorkerPeers
    from eventd.observe.metrics import Metrics

T = TypeVar("T")
Q = TypeVar("Q")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Serving:
    """The dependencies of handlers that only a process with connections has: for streams, watch sessions and metrics.

    `workers` knows the state of all processes of the node.
    """

    callers: Callers
    metrics: Metrics
    workers: WorkerPeers
    concurrency: ConcurrencyLimits


@dataclass(frozen=True, slots=True)
class V0:
    """The dependencies of the handlers under /v0.

    `stopping` is done when the node begins to stop; `started` is when this process built its API, on the monotonic
    clock. `listener`: None in a process that only calls handlers itself.
    """

    log: EventLog
    routing: Routing
    supervisor: Supervisor
    stopping: asyncio.Future[None]
    limits: Limits
    started: float
    listener: Serving | None = None
    recency: Recency = field(default_factory=Recency)
    _parts: dict[Any, Any] = field(default_factory=dict)

    def part(self, make: Callable[[V0], T]) -> T:
        """Return what `make` creates; it is called only the first time, so this process has one such object."""
        if make not in self._parts:
            self._parts[make] = make(self)
        part: T = self._parts[make]
        return part

    @property
    def serving(self) -> Serving:
        """Return the dependencies of handlers that need connections."""
        assert self.listener is not None
        return self.listener

    @property
    def database(self) -> Database:
        return self.log.database

    @property
    def clock(self) -> Clock:
        return self.log.clock

    @property
    def uptime_ms(self) -> int:
        """Return the milliseconds since this process built its API."""
        return round((self.clock.monotonic() - self.started) * 1000)

    async def count_topics(self) -> int:
        """Return the number of topics, without those of groups."""
        return await self.database.read(count_topics)

    def topic_changed(self, topic_id: int) -> None:
        """Wake the readers of a topic that was created or configured, and start to load changed routers."""
        self.log.wakeups.touch(topic_id)
        self.routing.changed()

    async def catch_up(self, topic: str) -> None:
        """Wait until the routers into a topic have copied what their sources hold now, over any number of hops.

        Waits only a few seconds, and not for a router whose destination is full.
        """
        if self.routing.feeds(topic):
            line = await self.database.read(find_topic, topic)
            if line is not None:
                await self.routing.drive(line.id)


class Call(framework.Call[V0, Q, B]):
    """One request to /v0."""

    __slots__ = ()

    @property
    def v0(self) -> V0:
        """Return the dependencies of the handlers."""
        return self.context
