"""The door of a listener: how many connections are open at once, and which one goes when there are too many.

Whoever has not proven yet who he is holds a place only as long as nobody else wants it. So strangers who open many
connections, and keep them, displace each other and not the peers.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from aiohttp import web

from eventd.errors import Unavailable

HEAD_SECONDS = 10.0
"""The head of a connection's first request has to arrive within this time; after it, the keep-alive time bounds."""
BACKLOG = 512
_TURNS_TO_ENTER = 3
"""Turns of the loop from the moment a connection is accepted until it is at the door."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


async def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen for the API, which several processes may share. Raises `Unavailable`."""
    opened: list[socket.socket] = []
    try:
        places = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(places):
            opened.append(socket.socket(family, kind, protocol))
            opened[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                opened[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened[-1].bind(address)
            opened[-1].listen(BACKLOG)
            opened[-1].setblocking(False)
    except OSError as error:
        for each in opened:
            each.close()
        raise Unavailable(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            hint="stop what holds the address, or set EVENTD_API_LISTEN (port 0 picks a free one)",
        ) from None
    return opened


class Watcher(Protocol):
    """Who is told about connections, for metrics. `group` is empty for the API."""

    def connections(self, group: str, count: int | None) -> None: ...

    def turned_away(self, group: str, reason: str) -> None: ...


class Door:
    """Lets at most `most` connections in to one listener."""

    def __init__(self, group: str, most: int, watcher: Watcher) -> None:
        self._group = group
        self._most = most
        self._watcher = watcher
        self._guests: dict[asyncio.Transport, _Guest] = {}  # in the order in which they came
        self._shut = False
        self._closed = False
        self._show()

    async def open(self, runner: web.BaseRunner, host: str, port: int) -> None:
        """Listen. Raises OSError, in the system's words rather than in those of the loop."""
        try:
            await _Site(runner, self, host=host, port=port).start()
        except OSError as error:
            if (error.errno or 0) <= 0:  # no address at all: a name that is not known
                raise
            raise OSError(error.errno, os.strerror(error.errno or 0)) from None

    async def open_at(self, runner: web.BaseRunner, sockets: Iterable[socket.socket]) -> None:
        """Let those in who come to sockets that listen already, perhaps for other processes as well."""
        for listening in sockets:
            await _Site(runner, self, sock=listening).start()

    def shut(self) -> None:
        """Let nobody in any more: a connection that was accepted before and comes only now would never be ended."""
        self._shut = True

    def close(self) -> None:
        """The listener is no more, and neither are its figures."""
        self._closed = True
        self._watcher.connections(self._group, None)

    def heard(self, transport: asyncio.Transport | None) -> None:
        """The head of a request has come over this connection."""
        if transport is not None and transport in self._guests:
            self._guests[transport].clock_off()

    def trust(self, transport: asyncio.Transport | None) -> None:
        """Whoever speaks over this connection has proven who he is, in a way that no repetition of his words can."""
        if transport is not None and transport in self._guests:
            self._guests[transport].trusted = True

    def enter(self, transport: asyncio.Transport, guest: _Guest) -> bool:
        """Whether there is a place; the stranger who has had his for longest may lose it."""
        if self._shut:
            return False
        if len(self._guests) >= self._most:
            stranger = next((at for at, other in self._guests.items() if not other.trusted), None)
            if stranger is None:
                self._watcher.turned_away(self._group, "full")
                return False
            self.dismiss(stranger, "displaced")
        self._guests[transport] = guest
        self._show()
        return True

    def dismiss(self, transport: asyncio.Transport, reason: str) -> None:
        """End a connection at once."""
        self.leave(transport)
        self._watcher.turned_away(self._group, reason)
        transport.abort()

    def leave(self, transport: asyncio.Transport) -> None:
        """The connection has ended."""
        if self._guests.pop(transport, None) is not None:
            self._show()

    def _show(self) -> None:
        if not self._closed:
            self._watcher.connections(self._group, len(self._guests))


class _Guest(asyncio.Protocol):
    """One connection: what comes over it goes to the server's own protocol, made once it was let in."""

    def __init__(self, door: Door, serve: Callable[[], asyncio.Protocol]) -> None:
        self.trusted = False
        self._door = door
        self._serve = serve
        self._served: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        if not self._door.enter(transport, self):
            transport.write(_FULL)
            transport.close()
            return
        self._transport = transport
        self._clock = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._door.dismiss, transport, "slow_head")
        self._served = self._serve()
        self._served.connection_made(transport)

    def clock_off(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def data_received(self, data: bytes) -> None:
        if self._served is not None:
            self._served.data_received(data)

    def eof_received(self) -> bool | None:
        return self._served.eof_received() if self._served is not None else None

    def pause_writing(self) -> None:
        if self._served is not None:
            self._served.pause_writing()

    def resume_writing(self) -> None:
        if self._served is not None:
            self._served.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.clock_off()
        if self._served is not None and self._transport is not None:
            self._door.leave(self._transport)
            self._served.connection_lost(exc)


class _Site(web.BaseSite):
    """As aiohttp's own over TCP, with the door in front of its server."""

    def __init__(self, runner: web.BaseRunner, door: Door, **where: Any) -> None:
        super().__init__(runner, backlog=BACKLOG)
        self._door = door
        self._where = where

    @property
    def name(self) -> str:
        return f"http://{self._where}"

    async def start(self) -> None:
        await super().start()
        server = self._runner.server
        assert server is not None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Guest(self._door, server), backlog=self._backlog, **self._where
        )

    async def stop(self) -> None:
        """Danger: what a server has accepted when it closes, and not handed over yet, asyncio leaves open for ever."""
        self._door.shut()
        loop = asyncio.get_running_loop()
        for listening in getattr(self._server, "sockets", ()):
            loop.remove_reader(listening.fileno())
        for _ in range(_TURNS_TO_ENTER):
            turned = loop.create_future()
            loop.call_soon(turned.set_result, None)
            await turned
        await super().stop()
