"""Limits the number of connections of a listener, and chooses the one to close above the limit.

A connection is trusted once a request over it has proven its sender, or needed no API key. An untrusted connection is
closed when another one needs its slot, and the address with the most untrusted connections loses one first. So a client
that opens many connections displaces its own, not those of peers or of other clients.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import defaultdict
from typing import Protocol

from eventd.api.listener.parsing_time import ParsingTime

SHARE = 2
"""A key, or an address, may use at most 1/SHARE of a listener's slots for trusted connections."""
_SITE_BITS = 64
"""An IPv6 address counts as its network of this prefix length."""
_READ_BYTES = 256 << 10
"""Bytes read at once from a trusted connection."""


class ConnectionMetrics(Protocol):
    """The methods of the metrics of connections. `group` is empty for the API; a `count` of None removes the gauge."""

    def connections(self, group: str, count: int | None) -> None: ...

    def turned_away(self, group: str, reason: str) -> None: ...


def address_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the IPv4 address or the IPv6 network of the remote end; empty without one, as for a Unix socket."""
    peer = transport.get_extra_info("peername") if transport is not None else None
    if not isinstance(peer, tuple):
        return ""
    return network_of(str(peer[0]))


def network_of(address: str) -> str:
    """Return an IPv4 address as it is, or the network of an IPv6 address: one host can have any number of the latter.

    A text that is neither, such as a network that this function returned, is returned as it is.
    """
    host = address.partition("%")[0]
    try:
        v6 = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(v6.ipv4_mapped or ipaddress.IPv6Network((v6, _SITE_BITS), strict=False))


class LimitedConnection(Protocol):
    """The members used here of a connection. See `sites.Connection` for `trusted`."""

    address: str
    trusted: tuple[str, ...]

    def clock_off(self) -> None:
        """Do not close the connection for a late head any more."""


class ConnectionLimiter:
    """Admits at most `most` connections to one listener. All listeners of a process share one `parsing`."""

    def __init__(
        self,
        group: str,
        most: int,
        watcher: ConnectionMetrics,
        parsing: ParsingTime | None = None,
        *,
        most_untrusted: int | None = None,
    ) -> None:
        """At most `most_untrusted` of the connections are untrusted; by default, all may be."""
        self.group = group
        self._most = most
        self._most_untrusted = most if most_untrusted is None else most_untrusted
        self._untrusted = 0
        self._watcher = watcher
        self.parsing = parsing or ParsingTime()
        self.buffer = memoryview(bytearray(_READ_BYTES))
        """Read buffer of all connections: its content is copied before the event loop does anything else."""
        self._connections: dict[asyncio.Transport, LimitedConnection] = {}
        self._strangers: _Holders = defaultdict(dict)  # by address, in the order of their arrival
        self._trusted: _Holders = defaultdict(dict)  # by key, and by address, in the order in which they became trusted
        self._shut = False
        self._closed = False
        self._show()

    def shut(self) -> None:
        """Admit no more connections, not even one that was accepted before and arrives later, because nothing would
        close it."""
        self._shut = True

    def close(self) -> None:
        """Remove the gauge of connections of the stopped listener."""
        self._closed = True
        self._watcher.connections(self.group, None)

    def holds(self, transport: asyncio.Transport | None) -> bool:
        """Return whether this is an admitted connection of the listener."""
        return transport in self._connections

    def heard(self, transport: asyncio.Transport | None) -> None:
        """Note that the head of a request has arrived on this connection: its deadline no longer applies."""
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
        self._untrusted -= 1
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
        self._untrusted += 1

    def enter(self, transport: asyncio.Transport, connection: LimitedConnection) -> bool:
        """Admit a connection, and return whether it was admitted; none is after `shut`.

        If no slot is free, the address with the most untrusted connections loses its oldest one; without untrusted
        connections the new one is not admitted.
        """
        if self._shut:
            return False
        if len(self._connections) >= self._most or self._untrusted >= self._most_untrusted:
            if not self._strangers:
                self._watcher.turned_away(self.group, "full")
                return False
            most = max(self._strangers, key=lambda address: len(self._strangers[address]))
            self.dismiss(next(iter(self._strangers[most])), "displaced")
        self._connections[transport] = connection
        self._strangers[connection.address][transport] = None
        self._untrusted += 1
        self._show()
        return True

    def dismiss(self, transport: asyncio.Transport, reason: str) -> None:
        """Close an admitted connection at once, for a reason that the metrics count."""
        self.leave(transport)
        self._watcher.turned_away(self.group, reason)
        transport.abort()

    def count_refused(self, reason: str) -> None:
        """Count a connection that is refused for what its client sent, before any request."""
        self._watcher.turned_away(self.group, reason)

    def leave(self, transport: asyncio.Transport) -> None:
        """Remove a closed connection, which frees its slot."""
        connection = self._connections.pop(transport, None)
        if connection is not None:
            self._untrusted -= not connection.trusted
            _remove(self._strangers, connection.address, transport)
            for holder in connection.trusted:
                _remove(self._trusted, holder, transport)
            self._show()

    def _show(self) -> None:
        if not self._closed:
            self._watcher.connections(self.group, len(self._connections))


_Holders = dict[str, dict[asyncio.Transport, None]]
"""Connections by key or address."""


def _remove(holders: _Holders, holder: str, transport: asyncio.Transport) -> None:
    if holder in holders:
        holders[holder].pop(transport, None)
        if not holders[holder]:
            del holders[holder]
