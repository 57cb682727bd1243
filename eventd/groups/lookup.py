"""Finds a declared group and its peers by name; errors suggest a similar name, or list the declared ones."""

from __future__ import annotations

import difflib

from eventd.errors import NotFound
from eventd.log.core.topic_row import TopicRow, read_topic
from eventd.resources.configuration import GroupConfig, PeerConfig, effective, topic_of
from eventd.resources.kinds.registry import EVENT_GROUP, EVENT_PEER
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from eventd.text.quoting import shortened


def find_group(conn: Connection, name: str) -> GroupConfig:
    """Return the declared group with its peers. Raises NotFound if no EventGroup has this name."""
    name = shortened(name)
    stored = read_resources(conn, EVENT_GROUP.name, name)
    if not stored:
        known = [row.name for row in read_resources(conn, EVENT_GROUP.name)]
        hint = f"declared: {', '.join(known)}" if known else "declare one: routerctl apply -f FILE"
        raise NotFound(f"EventGroup {name} is not declared", hint=_similar(name, known) or hint)
    return effective([*stored, *read_resources(conn, EVENT_PEER.name)])[name]


def _similar(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else ""


def find_peer(group: GroupConfig, node: str) -> PeerConfig:
    """Return the group's peer with the node name `node`. Raises NotFound."""
    for peer in group.peers.values():
        if peer.node_name == node:
            return peer
    node = shortened(node)
    known = sorted(peer.node_name for peer in group.peers.values())
    hint = _similar(node, known) or (
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
