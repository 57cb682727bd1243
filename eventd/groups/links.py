"""The state of a group's links to its peers: cursor, backlog, repairs and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventd.egress.cursors import link_name
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.wire_page import PeerFilter
from eventd.log.cursors.cursors import Cursor, LinkState, read_cursors
from eventd.log.cursors.dead_letters import count_dead_letters
from eventd.log.delivery.backlog import Backlog, read_backlogs
from eventd.log.delivery.selection import Selection
from eventd.resources.group_configuration import PeerConfig
from eventd.store.engine.database import Connection


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The link from this node to a peer: everything up to `position` of this node's log is settled.

    `cursor` is None until the node creates it; the link will begin at `position` then. `repairs` are the cursors of
    its unfinished repairs, `dead_letters` the number of its dead letters.
    """

    peer: PeerConfig
    cursor: Cursor | None
    position: int
    backlog: Backlog
    repairs: Sequence[Cursor]
    dead_letters: int

    @property
    def state(self) -> LinkState:
        """Return the state that operators see; `running` if the peer has no cursor yet."""
        return LinkState.RUNNING if self.cursor is None else self.cursor.shown_state


def read_link_statuses(conn: Connection, topic: TopicRow, peers: Sequence[PeerConfig], now: int) -> list[LinkStatus]:
    """Return the state of the link to each of `peers`, in order. All belong to one group, whose topic is `topic`."""
    only = link_name(peers[0].group, peers[0].node_name) if len(peers) == 1 else ""
    letters = count_dead_letters(conn, topic.id, only)
    cursors = [read_cursor_of(conn, peers[0])] if len(peers) == 1 else _cursors_of(conn, peers)
    repairs = read_cursors(conn, "repair")
    positions = [cursor.position if cursor else topic.evicted_position for cursor in cursors]
    asked = [(wanted_by(peer), after) for peer, after in zip(peers, positions, strict=True)]
    backlogs = read_backlogs(conn, topic.id, asked, now=now)
    return [
        LinkStatus(
            peer,
            cursor,
            position,
            backlog,
            repairs_of(repairs, peer),
            letters.get(link_name(peer.group, peer.node_name), 0),
        )
        for peer, cursor, position, backlog in zip(peers, cursors, positions, backlogs, strict=True)
    ]


def _cursors_of(conn: Connection, peers: Sequence[PeerConfig]) -> list[Cursor | None]:
    """Return the cursor of each peer, in order, by one query; None for a peer that has none yet."""
    known = {cursor.name: cursor for cursor in read_cursors(conn, "peer")}
    return [known.get(link_name(peer.group, peer.node_name)) for peer in peers]


def read_cursor_of(conn: Connection, peer: PeerConfig) -> Cursor | None:
    """Return the cursor of the link to the peer; None until the node creates it."""
    found = read_cursors(conn, name=link_name(peer.group, peer.node_name))
    return found[0] if found else None


def read_repairs_of(conn: Connection, peer: PeerConfig) -> list[Cursor]:
    """Return the cursors of the peer's unfinished repairs."""
    return repairs_of(read_cursors(conn, "repair"), peer)


def repairs_of(repairs: Sequence[Cursor], peer: PeerConfig) -> list[Cursor]:
    """Return those of the given cursors of repairs that send to this peer."""
    prefix = f"repair:{peer.group}/{peer.node_name}/"
    return [cursor for cursor in repairs if cursor.name.startswith(prefix)]


def wanted_by(peer: PeerConfig) -> PeerFilter:
    """Return the filter of the peer's declaration; it passes no records that expired or have been at the peer."""
    return Selection.of(peer).wanted_by(peer.node_name)
