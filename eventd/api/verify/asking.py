"""Finds the peer of a request, and opens connections to ask it questions, for all operations that do so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eventd.api.framework.operations import Services
from eventd.egress.peers.questions import Asker
from eventd.egress.transport.transport import Transport
from eventd.groups.lookup import find_group, find_peer
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.store.engine.database import Connection


def find_group_and_peer(conn: Connection, group: str, peer: str) -> tuple[GroupConfig, PeerConfig]:
    """Return a group and its peer of this node name. Raises NotFound."""
    config = find_group(conn, group)
    return config, find_peer(config, peer)


@asynccontextmanager
async def asking(services: Services, group: GroupConfig, peer: PeerConfig) -> AsyncIterator[Asker]:
    """Yield an `Asker` for the peer, over separate connections, which are closed afterwards."""
    ring = await asyncio.to_thread(services.ring, group)
    transport = Transport(services.clock, services.credentials, threads=services.database.threads)
    try:
        yield Asker(group, peer, transport, ring, services.clock, services.log.chance.token, services.peer_rules)
    finally:
        await transport.close()
