"""Proves an event that came from a peer, by asking a peer that has the leaves of its node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from pydantic import Field

from eventd.api.admin.history.event_proofs import OneLeaf, find_record, show_proof
from eventd.api.framework.operations import Services
from eventd.egress.transport.transport import Transport
from eventd.errors import Invalid
from eventd.groups.lookup import find_group, find_peer, peers_of
from eventd.log.core.scan import read_at
from eventd.log.history.bulk_proving import MOST_SEARCHED
from eventd.log.history.hints import find_hint
from eventd.log.history.proving import NotProven
from eventd.log.witnesses.keys import LOG
from eventd.log.witnesses.witnessed import read_of
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.store.engine.database import Connection
from eventd.witnessing.asked_proofs import AskedProofs, TreeToAsk
from eventd.witnessing.asking import OLDER, HistoryAsker, HistoryUntold
from federation.errors import MessageError
from federation.history.checkpoints import read_origin
from federation.history.tiles import TILE_WIDTH
from federation.loops import decode_path

MOST_TREES: Final = 4
"""How many trees a peer is asked about, those that were opened last."""
SEARCHED: Final = MOST_SEARCHED * TILE_WIDTH
"""How many leaves of a tree a peer looks through: an older leaf may be there all the same."""


class ForeignEvent(NamedTuple):
    """An event that another node admitted, and the trees that may have its leaf, of which this node knows the keys."""

    body: str
    trees: list[TreeToAsk]


class ProveAtPeer(OneLeaf):
    """An event that came from another node, and the peer to ask."""

    peer: str = Field(description="The peer, by its node name.")
    digest_only: bool = Field(default=False, description="Leave the event out; the proof names its digest.")


async def prove(services: Services, params: ProveAtPeer) -> dict[str, Any]:
    """Return the proof file of an event, from what a peer answers. Raises NotProven."""
    group, peer, event = await services.database.read(_find, params)
    try:
        async with _asking(services, group) as asker:
            asked = AskedProofs(asker, group, peer)
            file = await asked.prove(event.body, event.trees, with_event=not params.digest_only)
    except HistoryUntold as untold:
        why = "its program is an older one, or it keeps no history" if untold.reason == OLDER else str(untold)
        raise _not_proven(f"{peer.node_name} did not answer: {why}") from None
    except MessageError as error:
        raise _not_proven(f"the answer of {peer.node_name} proves nothing: {error.message}") from None
    if file is None:
        trees = ", ".join(one.origin for one in event.trees)
        raise _not_proven(f"{peer.node_name} found no leaf of the event in the last {SEARCHED:,} leaves of {trees}")
    return show_proof(params, file)


def _not_proven(message: str) -> NotProven:
    return NotProven(message, "peer", hint="prove it at the node where it was emitted, or at a node that relays it")


def _find(conn: Connection, params: ProveAtPeer) -> tuple[GroupConfig, PeerConfig, ForeignEvent]:
    group = find_group(conn, params.group)
    peer = find_peer(group, params.peer)
    return group, peer, _find_foreign(conn, group, *find_record(conn, params))


def _find_foreign(conn: Connection, group: GroupConfig, topic_id: int, position: int) -> ForeignEvent:
    """Return the event at a position. Raises Invalid for one of this node, and NotProven."""
    found = read_at(conn, [position])
    if not found:
        raise NotProven(f"the record at position {position} is not stored any more", "evicted")
    [record] = found
    nodes = decode_path(record.path)
    if not nodes:
        raise Invalid("the event entered the group at this node, which proves it itself: ask no peer")
    tree, leaf = find_hint(conn, topic_id, position)
    held = read_of(conn, topic_id, nodes[0])
    if not held:
        raise _not_held(group, nodes[0])
    asked = [TreeToAsk(one.origin, one.key, leaf if read_origin(one.origin).tree == tree else 0) for one in held]
    return ForeignEvent(record.body, sorted(asked, key=lambda one: not one.leaf)[:MOST_TREES])


def _not_held(group: GroupConfig, node: str) -> NotProven:
    """Return the error for an event of a node of which no tree is witnessed here."""
    message = f"this node has witnessed no tree of {node}, which admitted the event"
    if (node, LOG) in group.history_pins:
        return NotProven(
            f"{message}: no checkpoint that the pinned key of {node} signed was shown here",
            "other_node",
            hint=f"compare the pin with what `routerctl log keys` prints at {node}; or prove the event there",
        )
    if any(peer.node_name == node for peer in peers_of(group)):
        return NotProven(
            f"{message}: {node} is a peer, and has shown no checkpoint here: it keeps no history, or its program is an"
            " older one",
            "other_node",
            hint=f"set history.mode: record in the EventGroup at {node}: events that are emitted there from then on can"
            " be proven",
        )
    return NotProven(
        f"{message}: no key of {node} is pinned here, and over a relay only trees with a pinned key are witnessed",
        "other_node",
        hint=f"pin the key that `routerctl log keys` prints at {node} in spec.history.keys of the EventGroup; or prove"
        " the event there",
    )


@asynccontextmanager
async def _asking(services: Services, group: GroupConfig) -> AsyncIterator[HistoryAsker]:
    """Yield what asks the peers of a group, over separate connections, which are closed afterwards."""
    ring = await asyncio.to_thread(services.ring, group)
    transport = Transport(services.clock, services.credentials, threads=services.database.threads)
    try:
        yield HistoryAsker(transport, lambda: ring, services.clock, services.log.chance.token, services.peer_rules)
    finally:
        await transport.close()
