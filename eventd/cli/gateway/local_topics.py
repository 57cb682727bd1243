"""Answers requests to /v0 on a local database in the process of one command, without a connection.

Streams need one: `local_api` serves them. Loading the server takes longer than most commands on topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

import msgspec

from eventd.api.direct import DirectCaller, find_topic_route, run_topic_route
from eventd.api.errors.codes import TOPICS_FORM
from eventd.api.framework.action_callers import command_caller
from eventd.api.framework.limits import Limits
from eventd.api.framework.operations import Services
from eventd.api.framework.recorder import ActionRecorder
from eventd.api.keys.api_key import OWNER
from eventd.api.topics.calls import V0
from eventd.egress.routers.pump import Routing
from eventd.errors import EventdError
from eventd.resources.group_configuration import effective
from eventd.runtime.supervisor import Supervisor
from eventd.settings.model import Settings
from eventd.store.rows.registry import read_resources

BROKEN_SECONDS: Final = 1.0


class LocalAnswer(NamedTuple):
    """The answer to a request: its HTTP status, and its body as JSON."""

    status: int
    body: bytes


class LocalTopics:
    """Answers requests to /v0 as a node does, for a user who can open the database and so may do everything."""

    def __init__(self, v0: V0) -> None:
        self._v0 = v0

    async def answer(self, method: str, target: str, content: bytes | None) -> LocalAnswer | None:
        """Return the answer to one request; None if only a server can answer it. `target`: path and query."""
        path, _, query = target.partition("?")
        found = find_topic_route(method, path)
        if found is None:
            return None
        by = DirectCaller(OWNER, command_caller(), self._v0.log.chance.token(8).hex())
        recorder = ActionRecorder(self._v0.database, self._v0.clock)
        try:
            answer = await run_topic_route(self._v0, recorder, by, found, query, content or b"")
        except EventdError as error:
            return LocalAnswer(TOPICS_FORM.status(error), msgspec.json.encode(TOPICS_FORM.body(error)))
        return LocalAnswer(200, msgspec.json.encode(answer))


@asynccontextmanager
async def topics_of(services: Services, settings: Settings) -> AsyncIterator[V0]:
    """Yield the dependencies of handlers under /v0 that need no connection, beside a running node or without one.

    Routers run here too, because reading a topic includes the copies that are due.
    """
    limits = Limits.of(settings)
    async with AsyncExitStack() as stack:
        supervisor = Supervisor(services.clock)
        stack.push_async_callback(supervisor.stop)
        groups = effective(await services.database.read(read_resources))
        routing = Routing(services.log, lambda: groups, supervisor.spawn, limits.max_total_bytes)
        stack.push_async_callback(routing.stop)
        await routing.load()
        # Without this task, waiting readers would not notice the writes of other processes.
        supervisor.keep(partial(_follow_changes, services, routing), "changes")
        yield V0(
            log=services.log,
            routing=routing,
            supervisor=supervisor,
            stopping=asyncio.get_running_loop().create_future(),
            limits=limits,
            started=services.clock.monotonic(),
        )


async def _follow_changes(services: Services, routing: Routing) -> None:
    """Follow the writes of the node and other commands, so that waiting readers get them at once."""
    source, versions = services.database.change_source(services.clock.sleep), services.log.topic_versions
    try:
        while True:
            await source.wait()
            try:
                head = await services.log.look_around()
            except EventdError:  # a request reports the error
                await services.clock.sleep(BROKEN_SECONDS)
                continue
            if not versions.knows(head.topics_version):
                routing.changed()
                services.log.wakeups.touch_all()
                versions.read(head.topics_version)
    finally:
        await source.close()
