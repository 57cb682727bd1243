"""Limits the number of connections of a listener, and chooses the one to close above the limit.

A connection is trusted once a request over it has proven its sender, or needed no API key. An untrusted connection is
closed when another one needs its slot, and the address with the most untrusted connections loses one first. So a client
that opens many connections displaces its own, not those of peers or of other clients.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar, cast

from aiohttp import web

from eventd.api.listener import vanished
from eventd.api.listener.parsing_time import READ_BYTES, ParsingTime
from eventd.api.listener.vanished import Acknowledgements
from eventd.errors import Unavailable
from eventd.runtime.clock import Clock

T = TypeVar("T")

HEAD_SECONDS = 10.0
"""The time in which the head of a connection's first request must arrive; later heads have the keep-alive time."""
BACKLOG = 512
SHARE = 2
"""A key, or an address, may have one in this number of a listener's slots for trusted connections."""
_SITE_BITS = 64
"""An IPv6 address counts as its network of this prefix length: one host can have any number of addresses."""
TAKEN_SECONDS = 3.0
"""How long a start waits for an address that is in use: workers of a node that was just killed may still hold it."""
_TAKEN_AGAIN_SECONDS = 0.05
_TURNS_TO_ENTER = 3
"""Maximum number of turns of the event loop between the accept of a connection and its arrival at the limiter."""
_READ_BYTES = 256 << 10
"""Bytes read at once from a trusted connection."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class AddressTaken(Unavailable):
    """The address to listen at is in use."""


def cannot_listen(message: str, error: OSError, hint: str) -> Unavailable:
    """Return the error for an address that cannot be listened on: `AddressTaken` if it is in use."""
    kind = AddressTaken if error.errno == errno.EADDRINUSE else Unavailable
    return kind(f"{message}: {error.strerror or error}", hint=hint)


async def patiently(listen: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Return the result of `listen`, which is called again for up to `TAKEN_SECONDS` while it raises `AddressTaken`."""
    until = clock.monotonic() + TAKEN_SECONDS
    while True:
        try:
            return await listen()
        except AddressTaken:
            if clock.monotonic() >= until:
                raise
        await clock.sleep(_TAKEN_AGAIN_SECONDS)


async def listen(host: str, port: int, clock: Clock) -> list[socket.socket]:
    """Return listening sockets for the API, which several processes may share.

    Waits up to `TAKEN_SECONDS` for an address that is in use. Raises `Unavailable`.
    """
    return await patiently(lambda: _listen(host, port), clock)


async def _listen(host: str, port: int) -> list[socket.socket]:
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
        hint = "choose another address with --api-listen (port 0: a free port), or stop the program that uses this one"
        raise cannot_listen(f"cannot listen on {host} port {port}", error, hint) from None
    return opened


class ConnectionMetrics(Protocol):
    """The methods of the metrics of connections. `group` is empty for the API; a `count` of None removes the gauge."""

    def connections(self, group: str, count: int | None) -> None: ...

    def turned_away(self, group: str, reason: str) -> None: ...


def address_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the IPv4 address or the IPv6 network of the remote end; empty without one, as for a Unix socket."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    if not isinstance(peer, tuple):
        return ""
    host = str(peer[0]).partition("%")[0]
    if ":" not in host:
        return host
    network = ipaddress.IPv6Network((host, _SITE_BITS), strict=False)
    mapped = ipaddress.IPv6Address(host).ipv4_mapped
    return str(mapped or network)


class ServerProtocol(Protocol):
    """The methods of aiohttp's connection protocol, as `runner` extends it, that are used here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def hold_reading(self) -> None:
        """Stop reading from the connection until `release_reading`, even if aiohttp resumes it."""

    def release_reading(self) -> None: ...


class ConnectionLimiter:
    """Admits at most `most` connections to one listener. All listeners of a process share one `parsing`."""

    def __init__(self, group: str, most: int, watcher: ConnectionMetrics, parsing: ParsingTime | None = None) -> None:
        self._group = group
        self._most = most
        self._watcher = watcher
        self.parsing = parsing or ParsingTime()
        self.buffer = memoryview(bytearray(_READ_BYTES))
        """Read buffer of all connections: its content is copied before the event loop does anything else."""
        self._connections: dict[asyncio.Transport, Connection] = {}
        self._strangers: _Holders = defaultdict(dict)  # by address, in the order of their arrival
        self._trusted: _Holders = defaultdict(dict)  # by key, and by address, in the order in which they became trusted
        self._shut = False
        self._closed = False
        self._show()

    async def open(self, runner: web.BaseRunner, host: str, port: int) -> None:
        """Listen at an address. Raises OSError with the message of the system instead of that of the event loop."""
        try:
            await _Site(runner, self, host=host, port=port).start()
        except OSError as error:
            if (error.errno or 0) <= 0:  # an unknown host name
                raise
            raise OSError(error.errno, os.strerror(error.errno or 0)) from None

    async def open_at(self, runner: web.BaseRunner, sockets: Iterable[socket.socket]) -> None:
        """Accept connections at listening sockets, which other processes may share."""
        for listening in sockets:
            await _Site(runner, self, sock=listening).start()

    def shut(self) -> None:
        """Admit no more connections, not even one that was accepted before and arrives now: nothing would close it."""
        self._shut = True

    def close(self) -> None:
        """Remove the gauge of connections of the stopped listener."""
        self._closed = True
        self._watcher.connections(self._group, None)

    def holds(self, transport: asyncio.Transport | None) -> bool:
        """Return whether this is an admitted connection of the listener."""
        return transport in self._connections

    def heard(self, transport: asyncio.Transport | None) -> None:
        """Note that the head of a request has arrived on this connection: it is no longer closed as too slow."""
        if transport is not None and transport in self._connections:
            self._connections[transport].clock_off()

    def trust(self, transport: asyncio.Transport | None, key: str = "", *, by_address: bool = True) -> None:
        """Trust a connection: a request over it has proven its sender, without being a replay, or needed no API key.

        With a `key`, the connection counts towards that key's share and, `by_address`, its address's; above a share,
        the oldest trusted connection of that key or address becomes untrusted again.
        """
        connection = self._connections.get(transport) if transport is not None else None
        if transport is None or connection is None or connection.trusted:
            return
        connection.trusted = (f"key {key}",) if key else ("",)
        if key and by_address:
            connection.trusted += (f"address {connection.address}",)
        _remove(self._strangers, connection.address, transport)
        for holder in connection.trusted:
            self._trusted[holder][transport] = None
            if holder and len(self._trusted[holder]) > self._most // SHARE:
                self._distrust(next(iter(self._trusted[holder])))

    def _distrust(self, transport: asyncio.Transport) -> None:
        connection = self._connections[transport]
        for holder in connection.trusted:
            _remove(self._trusted, holder, transport)
        connection.trusted = ()
        self._strangers[connection.address][transport] = None

    def enter(self, transport: asyncio.Transport, connection: Connection) -> bool:
        """Admit a connection, and return whether it was admitted; none is after `shut`.

        If no slot is free, the address with the most untrusted connections loses its oldest one; without untrusted
        connections the new one is not admitted.
        """
        if self._shut:
            return False
        if len(self._connections) >= self._most:
            if not self._strangers:
                self._watcher.turned_away(self._group, "full")
                return False
            most = max(self._strangers, key=lambda address: len(self._strangers[address]))
            self.dismiss(next(iter(self._strangers[most])), "displaced")
        self._connections[transport] = connection
        self._strangers[connection.address][transport] = None
        self._show()
        return True

    def dismiss(self, transport: asyncio.Transport, reason: str) -> None:
        """Close an admitted connection at once, for a reason that the metrics count."""
        self.leave(transport)
        self._watcher.turned_away(self._group, reason)
        transport.abort()

    def leave(self, transport: asyncio.Transport) -> None:
        """Remove a closed connection, which frees its slot."""
        connection = self._connections.pop(transport, None)
        if connection is not None:
            _remove(self._strangers, connection.address, transport)
            for holder in connection.trusted:
                _remove(self._trusted, holder, transport)
            self._show()

    def _show(self) -> None:
        if not self._closed:
            self._watcher.connections(self._group, len(self._connections))


_Holders = dict[str, dict[asyncio.Transport, None]]
"""Connections by key or address."""


def _remove(holders: _Holders, holder: str, transport: asyncio.Transport) -> None:
    if holder in holders:
        holders[holder].pop(transport, None)
        if not holders[holder]:
            del holders[holder]


class Connection(asyncio.BufferedProtocol):
    """One connection: its data goes to aiohttp's protocol, which is created once the connection is admitted.

    `trusted` is empty while the connection is untrusted. Of a trusted one, it holds the shares towards which it counts,
    `key K` and `address A`, or one empty text if it counts towards none.
    """

    def __init__(self, limiter: ConnectionLimiter, serve: Callable[[], ServerProtocol]) -> None:
        self.trusted: tuple[str, ...] = ()
        self.address = ""
        self._limiter = limiter
        self._serve = serve
        self._served: ServerProtocol | None = None
        self._transport: asyncio.Transport | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self.address = address_of(transport)
        if not self._limiter.enter(transport, self):
            transport.write(_FULL)
            transport.close()
            return
        self._transport = transport
        self._clock = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._limiter.dismiss, transport, "slow_head")
        self._served = self._serve()
        self._served.connection_made(transport)
        self._look(transport, Acknowledgements(transport))

    def _look(self, transport: asyncio.Transport, acknowledgements: Acknowledgements) -> None:
        """Close the connection if its remote end has vanished; repeated while it is open."""
        loop = asyncio.get_running_loop()
        if acknowledgements.have_ended(loop.time()):
            self._limiter.dismiss(transport, "vanished")
        else:
            self._next_look = loop.call_later(vanished.LOOK_SECONDS, self._look, transport, acknowledgements)

    def clock_off(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._limiter.buffer if self.trusted else self._limiter.buffer[:READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._limiter.buffer[:nbytes])
        if self.trusted:
            self.parse(data)
        else:
            self._limiter.parsing.parse(self, data)

    def parse(self, data: bytes) -> None:
        if self._served is not None:
            self._served.data_received(data)

    def hold_reading(self) -> None:
        if self._served is not None:
            self._served.hold_reading()

    def release_reading(self) -> None:
        if self._served is not None:
            self._served.release_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

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
        self._limiter.parsing.leave(self)
        if self._next_look is not None:
            self._next_look.cancel()
        if self._served is not None and self._transport is not None:
            self._limiter.leave(self._transport)
            self._served.connection_lost(exc)


class _Site(web.BaseSite):
    """aiohttp's TCP site, with the limiter in front of its server."""

    def __init__(self, runner: web.BaseRunner, limiter: ConnectionLimiter, **where: Any) -> None:
        super().__init__(runner, backlog=BACKLOG)
        self._limiter = limiter
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
            lambda: Connection(self._limiter, cast(Callable[[], ServerProtocol], server)),
            backlog=self._backlog,
            **self._where,
        )

    async def stop(self) -> None:
        """Stop, after every connection that was already accepted has arrived at the limiter, which refuses it.

        A server of asyncio that closes would leave such connections open for ever.
        """
        self._limiter.shut()
        loop = asyncio.get_running_loop()
        for listening in getattr(self._server, "sockets", ()):
            loop.remove_reader(listening.fileno())
        for _ in range(_TURNS_TO_ENTER):
            turned = loop.create_future()
            loop.call_soon(turned.set_result, None)
            await turned
        await super().stop()
