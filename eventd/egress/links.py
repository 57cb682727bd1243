"""Keeping the cursors in step with what is declared: one per peer, one more for each repair that is under way."""

from __future__ import annotations

from collections.abc import Mapping

from eventd.egress.selection import Selection
from eventd.log.cursors import (
    Cursor,
    clear_failures,
    create_cursor,
    declare_selection,
    delete_cursors,
    next_repair_name,
    read_cursors,
    read_selection,
)
from eventd.log.head import ensure_topic, lock_head, read_head, read_topic
from eventd.log.values import Topic
from eventd.resources.effective import GroupConfig, PeerConfig, topic_of
from eventd.store.database import Connection

PEER = "peer"
REPAIR = "repair"


def link_name(group: str, node: str) -> str:
    """The name of a peer's cursor."""
    return f"{PEER}:{group}/{node}"


def peer_of(cursor: str) -> tuple[str, str]:
    """The group and the peer's node that a cursor, of a peer or of a repair, works for."""
    group, _, rest = cursor.partition(":")[2].partition("/")
    return group, rest.partition("/")[0]


def reconcile(conn: Connection, groups: Mapping[str, GroupConfig], now: int) -> list[Cursor]:
    """Make, adjust and remove cursors so that they fit what is declared; all that exist afterwards.

    A new peer begins at the oldest record there is. A wider selector gets a repair for what the old one left out.
    """
    declared: set[tuple[str, str]] = set()
    version = read_head(conn).registry_version
    for group in groups.values():
        ensure_topic(conn, topic_of(group.name), now)
        topic = read_topic(conn, topic_of(group.name))
        for peer in group.peers.values():
            declared.add((group.name, peer.node_name))
            _declare(conn, topic, peer, version, now)
    stale = [cursor.name for cursor in read_cursors(conn) if peer_of(cursor.name) not in declared]
    delete_cursors(conn, stale)
    return read_cursors(conn)


def _declare(conn: Connection, topic: Topic, peer: PeerConfig, declared: int, now: int) -> None:
    """`declared` is the version of what is declared. As that of a selection it is never used again under this name.

    A consumer made for an earlier peer of the name, over another topic perhaps, must not pass for this one's.
    """
    name = link_name(peer.group, peer.node_name)
    wanted = Selection.of(peer)
    begin = topic.evicted_position
    if create_cursor(conn, name, kind=PEER, topic_id=topic.id, position=begin, now=now):
        declare_selection(conn, name, declared, wanted.to_json(), now)
        return
    version, stored = read_selection(conn, name)
    earlier = Selection.from_json(stored)
    if wanted == earlier:
        return
    declare_selection(conn, name, max(declared, version + 1), wanted.to_json(), now)
    cursor = read_cursors(conn, name=name)[0]
    if wanted.widens(earlier) and cursor.position > begin:
        create_cursor(
            conn,
            next_repair_name(conn, peer.group, peer.node_name),
            kind=REPAIR,
            topic_id=topic.id,
            position=begin,
            until=cursor.position,
            selection=Selection(wanted.selector, wanted.relay, without=earlier).to_json(),
            now=now,
        )


def forgive(conn: Connection, names: list[str], now: int) -> None:
    """These links were changed, or this node was started anew: whatever held them up may be gone."""
    lock_head(conn)  # before any cursor, as everywhere
    clear_failures(conn, names, now)
