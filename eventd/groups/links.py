"""The state of a group's links to its peers: cursor, backlog, repairs and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventd.egress.cursors import link_name
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.wire_page import PeerFilter
from eventd.log.cursors.cursors import Cursor, LinkState, read_cursors
from eventd.log.delivery.backlog import Backlog, read_backlogs
from eventd.log.delivery.repairs import count_dead_letters
from eventd.log.delivery.selection import Selection
from eventd.resources.effective import PeerConfig
from eventd.store.engine.database import Connection


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """A link to a peer: everything up to `position` is settled.

    `cursor` is None until a node has registered the peer; the link will begin at `position` then.
    """

    peer: PeerConfig
    cursor: Cursor | None
    position: int
    backlog: Backlog
    repairs: Sequence[Cursor]
    dead_letters: int

    @property
    def state(self) -> LinkState:
        """Return the state as operators see it."""
        return LinkState.RUNNING if self.cursor is None else self.cursor.shown_state

    def lag(self, now: int) -> int:
        """Return for how many microseconds the oldest event of the backlog has waited; 0 if none waits."""
        return 0 if self.backlog.oldest is None else max(0, now - self.backlog.oldest)


def read_link_statuses(conn: Connection, topic: TopicRow, peers: Sequence[PeerConfig], now: int) -> list[LinkStatus]:
    """Return the links to some peers of one group, in their order."""
    letters = count_dead_letters(conn, topic.id)
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
    """Return the cursors of many peers, read together."""
    known = {cursor.name: cursor for cursor in read_cursors(conn, "peer")}
    return [known.get(link_name(peer.group, peer.node_name)) for peer in peers]


def read_cursor_of(conn: Connection, peer: PeerConfig) -> Cursor | None:
    """Return the peer's cursor; None until a node has registered the peer."""
    found = read_cursors(conn, name=link_name(peer.group, peer.node_name))
    return found[0] if found else None


def read_repairs_of(conn: Connection, peer: PeerConfig) -> list[Cursor]:
    """Return the cursors of the peer's running repairs."""
    return repairs_of(read_cursors(conn, "repair"), peer)


def repairs_of(repairs: Sequence[Cursor], peer: PeerConfig) -> list[Cursor]:
    """Return the repairs of this peer."""
    prefix = f"repair:{peer.group}/{peer.node_name}/"
    return [cursor for cursor in repairs if cursor.name.startswith(prefix)]


def wanted_by(peer: PeerConfig) -> PeerFilter:
    """Return the filter of the records that the peer is to receive."""
    return Selection.of(peer).wanted_by(peer.node_name)
