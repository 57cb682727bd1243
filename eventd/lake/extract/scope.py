"""The scope of the ledgers: the groups in use, this node's name in each, and the cursors of peers and callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eventd.lake.receivers import receiver_of_callback
from eventd.log.core.head import read_head
from eventd.log.core.topic_row import read_group_topics
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.registry import read_resources

_GROUP = "group:"


class LocalGroup(NamedTuple):
    """A group and this node's name in it."""

    group: str
    node: str


class PeerCursor(NamedTuple):
    """The link of a cursor: the group with this node's name in it, the receiver, and the group's topic.

    `peer` is the name of a peer, or of a callback of the group as in `eventd.lake.receivers`.
    """

    place: LocalGroup
    peer: str
    topic_id: int


class Scope(NamedTuple):
    """The scope in one snapshot: `topics` by id of a group's topic, `peers` by name of a peer's or a callback's
    cursor.

    `last` is the last position of the log.
    """

    epoch: str
    last: int
    topics: Mapping[int, LocalGroup]
    peers: Mapping[str, PeerCursor]


def read_groups(conn: Connection) -> dict[str, str]:
    """Return this node's name in each declared group, by group."""
    return {row.name: str(row.spec.get("nodeName", "")) for row in read_resources(conn, "EventGroup")}


def read_scope(conn: Connection, node: str | None) -> Scope:
    """Read the scope; with `node`, only the groups in which this node has that name."""
    head = read_head(conn)
    nodes = {group: name for group, name in read_groups(conn).items() if node in (None, name)}
    topics = {
        topic.id: LocalGroup(group, nodes[group])
        for topic in read_group_topics(conn)
        if topic.name.startswith(_GROUP) and (group := topic.name.removeprefix(_GROUP)) in nodes
    }
    rows = fetch(conn, "SELECT name, topic_id FROM cursors WHERE kind IN ('peer', 'callback')")
    peers = {name: PeerCursor(topics[at], _receiver(name, topics[at].node), at) for name, at in rows if at in topics}
    return Scope(head.epoch, head.last, topics, peers)


def _receiver(cursor: str, node: str) -> str:
    """Return the name of the receiver from the name of its cursor, `peer:GROUP/PEER` or `callback:NAME`."""
    kind, _, rest = cursor.partition(":")
    return rest.partition("/")[2] if kind == "peer" else receiver_of_callback(node, rest)
