"""The door of a listener: how many connections are open at once, and which one goes when there are too many.

A connection that has proven nothing keeps its place only while no other connection needs it, and the address with the
most of such connections gives one up first. So a stranger who opens many connections, and keeps them, displaces its
own, and neither the peers nor other strangers.
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
"""The head of a connection's first request has to arrive within this time; after it, the keep-alive time bounds."""
BACKLOG = 512
SHARE = 2
"""One key, or one address, holds at most this fraction (1/SHARE) of a listener's places as trusted connections."""
_SITE_BITS = 64
"""An IPv6 address stands for its network: one host has as many addresses as it likes."""
TAKEN_SECONDS = 3.0
"""How long a start waits for an address: the workers of a node that was killed a moment ago still hold it."""
_TAKEN_AGAIN_SECONDS = 0.05
_TURNS_TO_ENTER = 3
"""Turns of the loop from the moment a connection is accepted until it is at the door."""
_READ_BYTES = 256 << 10
"""Read at once from a connection that is trusted."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class AddressTaken(Unavailable):
    """Another process listens at the address."""


def cannot_listen(message: str, error: OSError, hint: str) -> Unavailable:
    """What to raise where an address cannot be had."""
    kind = AddressTaken if error.errno == errno.EADDRINUSE else Unavailable
    return kind(f"{message}: {error.strerror or error}", hint=hint)


async def patiently(listen: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Listen, and wait a while for an address that is taken. Raises what `listen` does."""
    until = clock.monotonic() + TAKEN_SECONDS
    while True:
        try:
            return await listen()
        except AddressTaken:
            if clock.monotonic() >= until:
                raise
        await clock.sleep(_TAKEN_AGAIN_SECONDS)


async def listen(host: str, port: int, clock: Clock) -> list[socket.socket]:
    """Sockets that listen for the API, which several processes may share. Raises `Unavailable`."""
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
        hint = "stop what holds the address, or set EVENTD_API_LISTEN (port 0 picks a free one)"
        raise cannot_listen(f"cannot listen on {host} port {port}", error, hint) from None
    return opened


class Watcher(Protocol):
    """Who is told about connections, for metrics. `group` is empty for the API."""

    def connections(self, group: str, count: int | None) -> None: ...

    def turned_away(self, group: str, reason: str) -> None: ...


def address_of(transport: asyncio.BaseTransport | None) -> str:
    """The address of the other end, of IPv6 its network; blank where there is none, as with a socket in a folder."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    if not isinstance(peer, tuple):
        return ""
    host = str(peer[0]).partition("%")[0]
    if ":" not in host:
        return host
    network = ipaddress.IPv6Network((host, _SITE_BITS), strict=False)
    mapped = ipaddress.IPv6Address(host).ipv4_mapped
    return str(mapped or network)


class Served(Protocol):
    """The server's own protocol for one connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def hold_reading(self) -> None:
        """Read nothing from the connection, whatever flow control says."""

    def release_reading(self) -> None: ...


class Door:
    """Lets at most `most` connections in to one listener. `parsing` is that of its process."""

    def __init__(self, group: str, most: int, watcher: Watcher, parsing: ParsingTime | None = None) -> None:
        self._group = group
        self._most = most
        self._watcher = watcher
        self.parsing = parsing or ParsingTime()
        self.buffer = memoryview(bytearray(_READ_BYTES))
        """What is read from any connection: it is copied before the loop does anything else."""
        self._guests: dict[asyncio.Transport, _Guest] = {}
        self._strangers: _Holders = defaultdict(dict)  # by address, in the order in which they came
        self._trusted: _Holders = defaultdict(dict)  # by key, and by address, in the order in which they were trusted
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

    def trust(self, transport: asyncio.Transport | None, key: str = "", *, by_address: bool = True) -> None:
        """A request over this connection has proven who sent it, and cannot be a repetition of an earlier one.

        With a `key`, the connection counts towards that key's share and, `by_address`, its address's; above the share,
        the connection that was trusted first is a stranger again.
        """
        guest = self._guests.get(transport) if transport is not None else None
        if transport is None or guest is None or guest.trusted:
            return
        guest.trusted = (f"key {key}",) if key else ("",)
        if key and by_address:
            guest.trusted += (f"address {guest.address}",)
        _remove(self._strangers, guest.address, transport)
        for holder in guest.trusted:
            self._trusted[holder][transport] = None
            if holder and len(self._trusted[holder]) > self._most // SHARE:
                self._distrust(next(iter(self._trusted[holder])))

    def _distrust(self, transport: asyncio.Transport) -> None:
        guest = self._guests[transport]
        for holder in guest.trusted:
            _remove(self._trusted, holder, transport)
        guest.trusted = ()
        self._strangers[guest.address][transport] = None

    def enter(self, transport: asyncio.Transport, guest: _Guest) -> bool:
        """Whether there is a place. Where there is none, a stranger of the address that has most loses its own."""
        if self._shut:
            return False
        if len(self._guests) >= self._most:
            if not self._strangers:
                self._watcher.turned_away(self._group, "full")
                return False
            most = max(self._strangers, key=lambda address: len(self._strangers[address]))
            self.dismiss(next(iter(self._strangers[most])), "displaced")
        self._guests[transport] = guest
        self._strangers[guest.address][transport] = None
        self._show()
        return True

    def dismiss(self, transport: asyncio.Transport, reason: str) -> None:
        """End a connection at once."""
        self.leave(transport)
        self._watcher.turned_away(self._group, reason)
        transport.abort()

    def leave(self, transport: asyncio.Transport) -> None:
        """The connection has ended."""
        guest = self._guests.pop(transport, None)
        if guest is not None:
            _remove(self._strangers, guest.address, transport)
            for holder in guest.trusted:
                _remove(self._trusted, holder, transport)
            self._show()

    def _show(self) -> None:
        if not self._closed:
            self._watcher.connections(self._group, len(self._guests))


_Holders = dict[str, dict[asyncio.Transport, None]]
"""Connections by who holds them."""


def _remove(holders: _Holders, holder: str, transport: asyncio.Transport) -> None:
    if holder in holders:
        holders[holder].pop(transport, None)
        if not holders[holder]:
            del holders[holder]


class _Guest(asyncio.BufferedProtocol):
    """One connection: what comes over it goes to the server's own protocol, made once it was let in.

    `trusted` names whose share the connection counts towards; empty while it has proven nothing.
    """

    def __init__(self, door: Door, serve: Callable[[], Served]) -> None:
        self.trusted: tuple[str, ...] = ()
        self.address = ""
        self._door = door
        self._serve = serve
        self._served: Served | None = None
        self._transport: asyncio.Transport | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self.address = address_of(transport)
        if not self._door.enter(transport, self):
            transport.write(_FULL)
            transport.close()
            return
        self._transport = transport
        self._clock = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._door.dismiss, transport, "slow_head")
        self._served = self._serve()
        self._served.connection_made(transport)
        self._look(transport, Acknowledgements(transport))

    def _look(self, transport: asyncio.Transport, acknowledgements: Acknowledgements) -> None:
        """Now and then: a connection whose other end has vanished is ended."""
        loop = asyncio.get_running_loop()
        if acknowledgements.have_ended(loop.time()):
            self._door.dismiss(transport, "vanished")
        else:
            self._next_look = loop.call_later(vanished.LOOK_SECONDS, self._look, transport, acknowledgements)

    def clock_off(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._door.buffer if self.trusted else self._door.buffer[:READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._door.buffer[:nbytes])
        if self.trusted:
            self.parse(data)
        else:
            self._door.parsing.parse(self, data)

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
        self._door.parsing.leave(self)
        if self._next_look is not None:
            self._next_look.cancel()
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
            lambda: _Guest(self._door, cast(Callable[[], Served], server)), backlog=self._backlog, **self._where
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
