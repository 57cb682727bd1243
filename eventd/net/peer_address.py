"""The address of the other end of a connection."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address, IPv6Address, ip_address


def peer_address(transport: asyncio.BaseTransport | None) -> IPv4Address | IPv6Address | None:
    """Return the address of the other end; an IPv4 address also if it is mapped to IPv6. None without one.

    Connections over local sockets, and those that have ended, have none.
    """
    peer = transport.get_extra_info("peername") if transport is not None else None
    if not isinstance(peer, tuple):
        return None
    address = ip_address(str(peer[0]).partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
