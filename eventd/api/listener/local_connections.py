"""Connections over the node's local socket: only those of trusted users, with a limit of their own."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from aiohttp import web
from multidict import MultiMapping

from eventd.api.errors.codes import WrongNode
from eventd.api.listener.connection_limiter import ConnectionLimiter, ConnectionMetrics
from eventd.api.listener.connections import Connection, ListeningSite, ServerProtocol
from eventd.api.listener.local_socket import LocalSocket
from eventd.api.listener.parsing_time import ParsingTime
from eventd.net.local_socket import SocketUnusable, peer_of
from eventd.runtime.log_pause import LogPause

REASONS = "local_"
"""Prefix of the reasons for which a connection over the local socket is turned away."""
OTHER_USER = f"{REASONS}other_user"

logger = logging.getLogger("eventd.local_socket")


class LocalMetrics(ConnectionMetrics, Protocol):
    """The methods of the metrics that the local socket uses."""

    def local_connections(self, count: int) -> None: ...


class _OwnCounts:
    """Counts the connections over the local socket separately from those over TCP."""

    def __init__(self, metrics: LocalMetrics) -> None:
        self._metrics = metrics

    def connections(self, _group: str, count: int | None) -> None:
        self._metrics.local_connections(count or 0)

    def turned_away(self, group: str, reason: str) -> None:
        self._metrics.turned_away(group, f"{REASONS}{reason}")


class LocalListener:
    """Admits at most `most` connections over the local socket, so neither it nor TCP can use up the other's slots.

    `intended`: the values of request headers with which a command names the node that it means.
    """

    def __init__(
        self, local: LocalSocket, most: int, metrics: LocalMetrics, parsing: ParsingTime, intended: Mapping[str, str]
    ) -> None:
        self.local = local
        self._metrics = metrics
        self._intended = intended
        self._limiter = ConnectionLimiter("", most, _OwnCounts(metrics), parsing)
        self._pause = LogPause(lambda: asyncio.get_running_loop().time())

    async def open(self, runner: web.BaseRunner) -> None:
        """Accept connections at the socket; none if it could not be bound."""
        if self.local.descriptor >= 0:
            await self.open_at(runner, socket.fromfd(self.local.descriptor, socket.AF_UNIX, socket.SOCK_STREAM))

    async def open_at(self, runner: web.BaseRunner, listening: socket.socket) -> None:
        """Accept connections at another listening socket as at the local one."""
        await _LocalSite(runner, self._limiter, self._admits, listening).start()

    def holds(self, transport: asyncio.Transport | None) -> bool:
        """Return whether this is an admitted connection over the local socket."""
        return self._limiter.holds(transport)

    def heard(self, transport: asyncio.Transport | None, headers: MultiMapping[str]) -> None:
        """Note that the head of a request has arrived. Raises `WrongNode` if a header of it names another node."""
        self._limiter.heard(transport)
        for name, value in self._intended.items():
            if any(given != value for given in headers.getall(name, ())):
                raise WrongNode("this node is not the one that the request is meant for", hint="name it with --server")

    def _admits(self, transport: asyncio.Transport) -> bool:
        """Return whether the process at the other end may connect; a refusal is counted, and logged once a minute."""
        try:
            peer = peer_of(transport.get_extra_info("socket"))
        except SocketUnusable as error:
            refusal = {"reason": str(error)}
        else:
            if peer.user in self.local.users:
                return True
            refusal = {"reason": f"process {peer.process} belongs to the user with the id {peer.user}"}
        self._metrics.turned_away("", OTHER_USER)
        if self._pause.is_over():
            logger.warning("local connection refused", extra=refusal)
        return False


class _LocalConnection(Connection):
    """A connection over the local socket: trusted from the start, or closed before a byte is read."""

    def __init__(
        self,
        limiter: ConnectionLimiter,
        serve: Callable[[], ServerProtocol],
        admits: Callable[[asyncio.Transport], bool],
    ) -> None:
        super().__init__(limiter, serve)
        self._admits = admits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        if not self._admits(transport):
            transport.abort()
            return
        super().connection_made(transport)
        self._limiter.trust(transport)


class _LocalSite(ListeningSite):
    """Accepts connections at a Unix socket, which other processes may share."""

    def __init__(
        self,
        runner: web.BaseRunner,
        limiter: ConnectionLimiter,
        admits: Callable[[asyncio.Transport], bool],
        listening: socket.socket,
    ) -> None:
        super().__init__(runner, limiter, None)
        self._admits = admits
        self._listening = listening

    @property
    def name(self) -> str:
        return "local socket"

    async def start(self) -> None:
        await web.BaseSite.start(self)
        serve = cast(Callable[[], ServerProtocol], self._runner.server)
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: _LocalConnection(self._limiter, serve, self._admits), sock=self._listening, backlog=self._backlog
        )
