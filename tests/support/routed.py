"""Topics with routers between them over an open log, with short methods to declare, run, kill and read them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

from eventd.egress.routers.graph import NewRouterRules
from eventd.egress.routers.projection import Options, Router
from eventd.egress.routers.pump import Routing
from eventd.errors import Unavailable
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import find_topic
from eventd.log.routers.commit import CommitSteps
from eventd.log.routers.declare import DeleteRouter, PutRouter, RouterLimits, RouterSpec
from eventd.log.topics.router_rows import RouterRow, read_router
from eventd.log.topics.topics import PutTopic
from eventd.resources.group_configuration import GroupConfig
from tests.support.topics import ALL, RecordFields, Topics


class FailingLog:
    """A log, as the pump sees it, that fails: from a given step on, commits are not written.

    With `heard=False` the failing step is written, and the pump does not learn of it.
    """

    def __init__(self, log: EventLog, *, steps: int | None = None, heard: bool = True) -> None:
        self._log = log
        self._steps = steps
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def submit(self, unit: Any) -> asyncio.Future[Any]:
        if self._steps is None or not isinstance(unit, CommitSteps):
            return self._log.submit(unit)
        self._steps -= 1
        if self._steps >= 0:
            return self._log.submit(unit)
        dead: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._steps == -1 and not self._heard:
            self._log.submit(unit).add_done_callback(lambda _: dead.set_exception(Unavailable("killed")))
        else:
            dead.set_exception(Unavailable("killed"))
        return dead


class RoutedTopics(Topics):
    """The topics of one log, and the routers between them."""

    def __init__(self, log: EventLog, groups: Mapping[str, GroupConfig] | None = None) -> None:
        super().__init__(log)
        self.groups = groups or {}
        self.routing: Routing | None = None

    async def make(self, name: str, **config: Any) -> int:
        """Create a topic as a node does: with random bytes, so that a topic made anew under its name is another one."""
        unit = PutTopic(name, TopicConfig(**config), max_topics=0, random=os.urandom(16))
        return (await self.log.submit(unit)).line.id

    async def route(self, *names: str, **options: Any) -> None:
        """Apply routers `source->dest` as a node does."""
        for name in names:
            source, _, dest = name.partition("->")
            await self.declare(Router(name, source, dest, Options(**options)))

    async def declare(self, router: Router) -> RouterRow:
        """Apply one router."""
        wanted = RouterSpec(router.name, router.source, router.dest, router.options.encode())
        unit = PutRouter(wanted, NewRouterRules(router), RouterLimits(), create_dest=True, random=os.urandom(16))
        done = await self.log.submit(unit)
        if self.routing is not None:
            self.routing.put(done.line, done.version)
        return done.line

    async def remove(self, name: str) -> bool:
        """Remove a router."""
        version = await self.log.submit(DeleteRouter(name))
        if self.routing is not None and version is not None:
            self.routing.removed([name], version)
        return version is not None

    async def start(self, *, steps: int | None = None, heard: bool = True) -> Routing:
        """Start the routers; `steps` and `heard` say when they fail: see `FailingLog`."""
        log: Any = FailingLog(self.log, steps=steps, heard=heard)
        loop = asyncio.get_running_loop()
        self.routing = Routing(log, lambda: self.groups, lambda work, name: loop.create_task(work, name=name))
        await self.routing.load()
        return self.routing

    async def stop(self) -> None:
        """Stop all routers."""
        if self.routing is not None:
            await self.routing.stop()
            self.routing = None

    async def settled(self, *names: str) -> None:
        """Wait until the routers that write to these topics have caught up."""
        assert self.routing is not None
        for name in names:
            line = await self.log.database.read(find_topic, name)
            if line is not None:
                await self.routing.drive(line.id)

    async def records(self, name: str) -> list[RecordFields]:
        """Return all records of a topic, once its routers have caught up."""
        if self.routing is not None:
            await self.settled(name)
        found: list[RecordFields] = []
        at = 0
        while True:
            page = await self.slice(name, at, view=ALL, limit=1000)
            found += map(json.loads, page.records)
            at = page.next_from_seq
            if page.caught_up:
                return found

    async def data(self, name: str) -> list[Any]:
        """Return the data of all records of a topic."""
        return [record["data"] for record in await self.records(name)]

    async def line(self, name: str) -> RouterRow:
        """Return the stored row of a router."""
        line = await self.log.database.read(read_router, name)
        assert line is not None, name
        return line
