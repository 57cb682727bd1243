"""Opens listening sockets, and explains in words why an address cannot be listened on."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from eventd.errors import Unavailable
from eventd.runtime.clock import Clock

T = TypeVar("T")

BACKLOG = 512
TAKEN_SECONDS = 3.0
"""Seconds that a starting node waits for an address that is in use: workers of a node that was just killed may still
hold it."""
_TAKEN_AGAIN_SECONDS = 0.05


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
