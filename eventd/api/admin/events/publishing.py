"""Publishing to a group over a connection that stays open: the route, and all its connections of this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final

from aiohttp import WSCloseCode, web

from eventd.api.admin.events.message_memory import MessageMemory
from eventd.api.admin.events.publish_connection import PublishConnection, stopping
from eventd.api.admin.events.writer_shares import WriterShares
from eventd.api.admin.resources.groups import find_target
from eventd.api.framework.callers import Callers
from eventd.api.framework.calls import Call
from eventd.api.framework.limits import ConcurrencyLimits
from eventd.api.framework.models import NoQuery
from eventd.api.framework.operations import Services
from eventd.api.listener.sending import ClientStream
from eventd.api.listener.unread_answers import UnreadAnswers
from eventd.api.listener.web_sockets import MAX_MESSAGE_BYTES, open_socket
from eventd.errors import EventdError, NotFound
from eventd.store.rows.registry import read_version

BEAT_SECONDS: Final = 1.0
"""Seconds between checks for silent clients, and for groups that are not declared any more."""

logger = logging.getLogger("eventd.api")


class PublishConnections:
    """The open connections of this process, which end when the node stops or their group is deleted.

    `begin` is called before any of them opens, `end` when the node stops.
    """

    def __init__(self, services: Services, callers: Callers, limits: ConcurrencyLimits, most_bytes: int) -> None:
        self.services = services
        self.callers = callers
        self.limits = limits
        self.most_bytes = min(most_bytes, MAX_MESSAGE_BYTES)
        self.shares = WriterShares()
        self.unread = UnreadAnswers()
        self._open: dict[PublishConnection, None] = {}
        self._beating: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def end(self, _: web.Application) -> None:
        """End every connection, once the messages that the writer has are answered."""
        self._is_stopping = True
        for connection in [*self._open]:
            connection.end(stopping(), WSCloseCode.GOING_AWAY)

    @contextmanager
    def holding(self, connection: PublishConnection) -> Iterator[None]:
        """Watch over a connection while the block runs."""
        self._open[connection] = None
        self._count_open()
        if self._is_stopping:
            connection.end(stopping(), WSCloseCode.GOING_AWAY)
        if self._beating is None or self._beating.done():
            assert self.services.spawn is not None
            self._beating = self.services.spawn(self._beat_for_ever(), "checks of publishing connections")
        try:
            yield
        finally:
            self._open.pop(connection, None)
            self._count_open()
            if not self._open and self._beating is not None:
                self._beating.cancel()
                self._beating = None

    def count(self, results: Mapping[str, int]) -> None:
        """Count the events of an answer, by result."""
        if self.services.metrics is not None:
            self.services.metrics.published(results)

    def _count_open(self) -> None:
        if self.services.metrics is not None:
            self.services.metrics.publish_connections(len(self._open))

    async def _beat_for_ever(self) -> None:
        version = -1
        while True:
            await self.services.clock.sleep(BEAT_SECONDS)
            try:
                now = self.services.clock.monotonic()
                for connection in [*self._open]:
                    connection.ping_if_silent(now)
                present = await self.services.database.read(read_version)
                if present != version:
                    await self._end_undeclared()
                    version = present
            except EventdError:
                continue  # tried again with the next beat
            except Exception:  # without it, no client would be pinged, or learn that its group is deleted
                logger.exception("checking publishing connections failed")

    async def _end_undeclared(self) -> None:
        """End the connections of groups that are not declared any more."""
        for group in dict.fromkeys(connection.group for connection in self._open):
            try:
                await find_target(self.services.database, group, self.services.clock.now())
            except NotFound as error:
                for connection in [each for each in self._open if each.group == group]:
                    connection.end(error, WSCloseCode.POLICY_VIOLATION)


class PublishCall(Call[PublishConnections, NoQuery, None]):
    """One request to publish over a connection."""

    __slots__ = ()


async def publish(call: PublishCall) -> web.StreamResponse:
    """Serve a client that publishes to a group over a WebSocket (GET /api/v1/groups/{group}/publish)."""
    request, open_ones, key = call.request, call.context, call.key
    services, bodies = open_ones.services, open_ones.limits.bodies
    place = await find_target(services.database, request.match_info["group"], services.clock.now())
    socket, messages = open_socket(request, bodies, key.digest, open_ones.most_bytes)
    with open_ones.limits.streams.take(key), open_ones.callers.using(request, key), closing(messages):
        writer = await socket.prepare(request)
        if (transport := request.transport) is None:
            return socket  # the client disconnected
        stream, memory = ClientStream(transport, writer, socket), MessageMemory(bodies, key.digest)
        connection = PublishConnection(
            services, place, socket, messages, stream, memory, open_ones.shares, open_ones.unread, open_ones.count
        )
        with open_ones.holding(connection):
            await connection.run()
        messages.close()
        await socket.linger()
    return socket
