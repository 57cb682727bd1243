"""Finds a declared group and its peers by name; errors suggest a similar name, or list the declared ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from eventd.errors import NotFound
from eventd.log.core.topic_row import TopicRow, read_topic
from eventd.resources.group_configuration import GroupConfig, PeerConfig, group_of, peer_of, pins_of, topic_of
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.resources.kinds.event_peer import EventPeerSpec
from eventd.resources.kinds.registry import EVENT_GROUP, EVENT_PEER
from eventd.resources.validation.resource import from_stored
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import SpecText, read_spec_texts
from eventd.text.did_you_mean import did_you_mean
from eventd.text.quoting import shortened

MOST_KEPT: Final = 1024
"""Maximum number of peers whose configurations are kept: to validate the specs of 200 takes longer than a page may."""


def find_group(conn: Connection, name: str) -> GroupConfig:
    """Return the declared group with its peers. Raises NotFound if no EventGroup has this name."""
    name = shortened(name)
    stored = [found for text in read_spec_texts(conn, EVENT_GROUP.name, name) if (found := _read_group(text))]
    if not stored:
        known = [text.name for text in read_spec_texts(conn, EVENT_GROUP.name)]
        hint = f"declared: {', '.join(known)}" if known else "declare one: routerctl apply -f FILE"
        raise NotFound(f"EventGroup {name} is not declared", hint=did_you_mean(name, known) or hint)
    group, protocols = stored[-1]
    read = [_read_peer(text, protocols) for text in read_spec_texts(conn, EVENT_PEER.name)]
    mine = [one for one in read if one is not None and one[0].group == name]
    pins = dict(group.history_pins)
    for _, declared in mine:
        pins |= declared
    return replace(group, peers={peer.name: peer for peer, _ in mine}, history_pins=pins)


@lru_cache(MOST_KEPT)
def _read_group(text: SpecText) -> tuple[GroupConfig, tuple[str, ...]] | None:
    """Return the group without its peers, and its protocols in their order; None for another program's kind."""
    spec = from_stored(text.parse()).spec
    return (group_of(text.name, spec), tuple(spec.protocols)) if isinstance(spec, EventGroupSpec) else None


@lru_cache(MOST_KEPT)
def _read_peer(text: SpecText, protocols: tuple[str, ...]) -> tuple[PeerConfig, Mapping[tuple[str, str], bytes]] | None:
    """Return the peer, whose group speaks these protocols, and the keys of its history that are declared with it.

    None for another program's kind.
    """
    spec = from_stored(text.parse()).spec
    return (peer_of(text.name, spec, protocols), pins_of(spec)) if isinstance(spec, EventPeerSpec) else None


def find_peer(group: GroupConfig, node: str) -> PeerConfig:
    """Return the group's peer with the node name `node`. Raises NotFound."""
    for peer in group.peers.values():
        if peer.node_name == node:
            return peer
    node = shortened(node)
    known = sorted(peer.node_name for peer in group.peers.values())
    hint = did_you_mean(node, known) or (
        f"its peers: {', '.join(known)}" if known else "declare one: routerctl apply -f FILE"
    )
    raise NotFound(f"group {group.name} has no peer {node}", hint=hint)


def peers_of(group: GroupConfig, node: str = "") -> list[PeerConfig]:
    """Return all peers of the group, sorted by node name, or only the one named `node`. Raises NotFound."""
    if node:
        return [find_peer(group, node)]
    return sorted(group.peers.values(), key=lambda peer: peer.node_name)


def read_group_topic(conn: Connection, group: str) -> TopicRow:
    """Return the row of the group's topic; an empty one with id 0 if the topic does not exist."""
    name = topic_of(group)
    try:
        return read_topic(conn, name)
    except NotFound:
        return TopicRow(0, name)
