"""Looks up the addresses of names, once for all requests within a second."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from eventd.net.literal_address import literal_address
from eventd.runtime.blocking_calls import BlockingCalls
from eventd.runtime.threads import ThreadFactory

KEPT_SECONDS: Final = 1.0
"""Seconds for which the result of a look-up is used: many requests a second may go to one receiver."""
_Key = tuple[str, int]
LookUp = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host for a port, preferred ones first; an address with a zone as `fe80::1%2`. Raises
OSError."""
Resolve = Callable[[str, int], Sequence[Sequence[object]]]
"""Returns the socket addresses of a host for a port; blocks. Raises OSError, and ValueError for an impossible name."""


def _resolve(host: str, port: int) -> Sequence[Sequence[object]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [place for family, _, _, _, place in found if family in (socket.AF_INET, socket.AF_INET6)]


def _domain(host: str) -> str:
    """Return the last two labels of a name, whose servers are probably the same."""
    return ".".join(host.lower().rstrip(".").split(".")[-2:])


class NameResolver:
    """Looks up names by the system's resolver, in threads of its own: one server of names may not hold up others.

    There is at most one look-up of a name under way. `resolve` does what `socket.getaddrinfo` does.
    """

    def __init__(self, threads: ThreadFactory, resolve: Resolve = _resolve) -> None:
        self._calls = BlockingCalls(threads, "resolve")
        self._resolve = resolve

    async def look_up(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host; of an address in any notation, that address.

        Raises OSError, also for an impossible name.
        """
        literal = literal_address(host)
        if literal is not None:
            return [str(literal)]
        try:
            found = await self._calls.run(f"{host}:{port}", _domain(host), partial(self._resolve, host, port))
        except ValueError:  # a label that is empty or too long, or U+0000
            raise socket.gaierror(socket.EAI_NONAME, "impossible name") from None
        return [address_of(place) for place in found]

    def close(self) -> None:
        """Start no further look-ups."""
        self._calls.close()


def address_of(place: Sequence[object]) -> str:
    """Return the address in a socket address of IPv4 or IPv6, with its zone, in the one form that is compared."""
    zone = f"%{place[3]}" if len(place) > 3 and place[3] and "%" not in str(place[0]) else ""
    return str(ipaddress.ip_address(f"{place[0]}{zone}"))


class _PendingLookUp:
    """A look-up that may be under way, and how many requests need it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class NameCache:
    """Looks up names with `find`, and keeps each result for `KEPT_SECONDS`. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float], find: LookUp) -> None:
        self._monotonic = monotonic
        self._find = find
        self._found: dict[_Key, tuple[float, tuple[str, ...]]] = {}  # the oldest first
        self._pending: dict[_Key, _PendingLookUp] = {}

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Return the addresses of a host, at least one. Raises OSError.

        Requests for one name at the same time share one look-up.
        """
        key = host, port
        return self._kept(key) or await self._wait(key)

    def _kept(self, key: _Key) -> tuple[str, ...]:
        at, found = self._found.get(key, (0.0, ()))
        return found if found and self._monotonic() - at < KEPT_SECONDS else ()

    async def _wait(self, key: _Key) -> tuple[str, ...]:
        pending = self._pending.setdefault(key, _PendingLookUp())
        pending.users += 1
        try:
            async with pending.lock:  # cancelling one request leaves the look-up to the next
                return self._kept(key) or await self._renew(key)
        finally:
            pending.users -= 1
            if not pending.users:
                del self._pending[key]

    async def _renew(self, key: _Key) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(await self._find(*key)))
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        self._keep(key, found)
        return found

    def _keep(self, key: _Key, found: tuple[str, ...]) -> None:
        now = self._monotonic()
        self._found.pop(key, None)
        self._found[key] = now, found
        while now - self._found[oldest := next(iter(self._found))][0] >= KEPT_SECONDS:
            del self._found[oldest]
