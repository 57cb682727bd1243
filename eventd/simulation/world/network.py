"""The network of a run: machines with an address each, listeners, and connections between their processes."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import itertools
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from eventd.simulation.world.connection import ConnectionEnd
from eventd.simulation.world.life import Life
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.path import Path, Wall
from eventd.simulation.world.proxy import ProxyConnection
from eventd.simulation.world.streams import ChanceStreams

MEAN_SECONDS: Final = 0.004
"""The mean delay of a path without faults."""
CONNECT_SECONDS: Final = 127.0
"""Seconds after which a system gives up a connection without an answer."""
NETWORK: Final = "10.0.0.0/24"
"""The addresses of all machines."""
FIRST_PORT: Final = 40_000
"""The first port of the ends that connect."""


class SimulatedSocket:
    """Stands for a socket that is handed to a node, or opened by it: it has an address and no descriptor."""

    def __init__(self, host: str, port: int) -> None:
        self._place = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._place

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Do nothing: nothing is open."""


async def open_address(
    addresses: Sequence[str], port: int, _end: float, trying: Callable[[str], None]
) -> tuple[Any, str]:
    """Return a socket that is connected to the first of these addresses when the loop makes a connection of it."""
    trying(addresses[0])
    return SimulatedSocket(addresses[0], port), addresses[0]


class SimulatedServer:
    """A listener of one process, in the form of asyncio's servers."""

    def __init__(
        self, network: Network, life: Life, make: Callable[[], asyncio.BaseProtocol], place: tuple[str, int]
    ) -> None:
        self.life = life
        self.make = make
        self.sockets = (SimulatedSocket(*place),)
        self._network = network
        self._place = place

    async def start_serving(self) -> None:
        """Accept connections."""
        self._network.open(self._place, self)

    def close(self) -> None:
        """Accept no further connections."""
        self._network.shut(self._place, self)

    def is_serving(self) -> bool:
        return True

    async def wait_closed(self) -> None:
        """Return at once: nothing is to be waited for."""


class Network:
    """The network of one run.

    `paths` are by source and destination. A machine is up unless it was reported as down.
    """

    def __init__(self, loop: VirtualLoop, streams: ChanceStreams) -> None:
        self.loop = loop
        self.context = contextvars.Context()
        self.on_connect: Callable[[ConnectionEnd, int], None] = _nothing
        """Called with the end of each new connection that connects, and the port that it connects to."""
        self.paths: dict[tuple[str, str], Path] = {}
        self.proxies: dict[tuple[str, str, int], str] = {}
        """What a proxy answers to connections, by source, destination and port."""
        self._proxy: Life | None = None
        self._streams = streams
        self._hosts: dict[str, str] = {}  # by address
        self._down: dict[str, None] = {}
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._ports = itertools.count(FIRST_PORT)
        self._ends: dict[Life, list[ConnectionEnd]] = {}

    def add(self, host: str) -> str:
        """Add a machine; return its address."""
        address = f"10.0.0.{len(self._hosts) + 1}"
        self._hosts[address] = host
        return address

    def path(self, source: str, dest: str) -> Path:
        """Return the way from one machine to another."""
        found = self.paths.get((source, dest))
        if found is None:
            stream = self._streams.of(f"network {source}>{dest}")
            found = self.paths[source, dest] = Path(source, dest, stream, MEAN_SECONDS)
        return found

    def calm(self) -> None:
        """End every fault of the network."""
        for way in list(self.proxies):
            self.end_proxy(*way)
        for path in self.paths.values():
            path.wall, path.cut, path.flip, path.mean = Wall.NONE, 0.0, 0.0, MEAN_SECONDS

    def is_up(self, host: str) -> bool:
        """Return whether a machine answers at all."""
        return host not in self._down

    def take_down(self, host: str) -> None:
        """Let a machine answer nothing any more, until `bring_up`."""
        self._down[host] = None

    def bring_up(self, host: str) -> None:
        """Let a machine answer again."""
        self._down.pop(host, None)

    def resolve(self, host: str, port: int) -> list[tuple[Any, ...]]:
        """Return what `socket.getaddrinfo` returns: a host is found by its address only."""
        if host not in self._hosts and not host.startswith("127."):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    def listen(self, life: Life, make: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> SimulatedServer:
        """Return a listener that does not accept yet. Raises OSError if the address is taken."""
        place = life.address if host.startswith("127.") or host == "0.0.0.0" else host, port or next(self._ports)
        taken = self._servers.get(place)
        if taken is not None and not taken.life.is_dead:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        return SimulatedServer(self, life, make, place)

    def open(self, place: tuple[str, int], server: SimulatedServer) -> None:
        """Let a listener accept connections."""
        self._servers[place] = server

    def shut(self, place: tuple[str, int], server: SimulatedServer) -> None:
        """Remove a listener."""
        if self._servers.get(place) is server:
            del self._servers[place]

    async def connect(
        self, life: Life, make: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[ConnectionEnd, asyncio.BaseProtocol]:
        """Connect a process to a listener. Raises OSError."""
        dest = self._hosts.get(host)
        if dest is None:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        answer = self.proxies.get((life.host, dest, port))
        if answer is not None:
            return self._join(life, make, self._proxy_server(answer), (host, port))
        there, back = self.path(life.host, dest), self.path(dest, life.host)
        await self.loop.pause(there.delay())
        if not self.is_up(dest) or there.is_lost() or back.is_lost():
            await self.loop.pause(CONNECT_SECONDS)
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        await self.loop.pause(back.delay())
        server = self._servers.get((host, port))
        if server is None or server.life.is_dead or Wall.REFUSE in (there.wall, back.wall):
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return self._join(life, make, server, (host, port))

    def end_proxy(self, source: str, dest: str, port: int) -> None:
        """Let connections pass again, and reset those to the proxy."""
        if self.proxies.pop((source, dest, port), None) is not None:
            self.break_present(source, "proxy")

    def _proxy_server(self, answer: str) -> SimulatedServer:
        if self._proxy is None:
            self._proxy = Life("proxy", 1, self.add("proxy"))
        return SimulatedServer(self, self._proxy, lambda: ProxyConnection(answer), (self._proxy.address, 0))

    def _join(
        self, life: Life, make: Callable[[], asyncio.BaseProtocol], server: SimulatedServer, place: tuple[str, int]
    ) -> tuple[ConnectionEnd, asyncio.BaseProtocol]:
        own = (life.address, next(self._ports))
        near = ConnectionEnd(self, life, self.path(life.host, server.life.host), (own, place))
        far = ConnectionEnd(self, server.life, self.path(server.life.host, life.host), (place, own))
        near.other, far.other = far, near
        self.on_connect(near, place[1])
        for end in (near, far):
            self._ends.setdefault(end.life, []).append(end)

        def accept() -> None:
            far.protocol = server.make()
            far.protocol.connection_made(far)

        self.loop.call_soon(accept, context=far.life.context())
        near.protocol = made = make()
        made.connection_made(near)
        return near, made

    def end_life(self, life: Life, *, resets: bool) -> None:
        """Forget the connections of a process that has ended; `resets`: its machine resets them."""
        for end in self._ends.pop(life, []):
            other = end.other
            if end.is_over:
                continue
            end.is_over = True
            if resets and not other.life.is_dead and not end.path.is_lost():
                self.loop.call_later(end.path.delay(), other.break_off, context=other.life.context())

    def break_present(self, first: str, second: str) -> None:
        """Reset every connection between two machines."""
        for life, ends in list(self._ends.items()):
            for end in ends:
                if not end.is_over and {life.host, end.other.life.host} == {first, second}:
                    self.loop.call_soon(end.break_off, context=life.context())


def _nothing(*_: object) -> None:
    """Do nothing when a connection is made."""
