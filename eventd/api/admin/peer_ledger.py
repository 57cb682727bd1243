"""Opening the books of a peer: its cursor, what it selected when, and the repairs that are under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventd.egress.cursors import link_name
from eventd.log.core.wire_page import Wanted
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.log.delivery.selection import Selection
from eventd.log.delivery.states import Books, Repair, Version, read_picked, read_versions
from eventd.resources.effective import PeerConfig
from eventd.store.engine.database import Connection


def read_cursor_of(conn: Connection, peer: PeerConfig) -> Cursor | None:
    """The peer's cursor; None as long as no node has taken notice of the peer."""
    found = read_cursors(conn, name=link_name(peer.group, peer.node_name))
    return found[0] if found else None


def read_repairs_of(conn: Connection, peer: PeerConfig) -> list[Cursor]:
    """The cursors of the repairs that are under way for the peer."""
    return repairs_of(read_cursors(conn, "repair"), peer)


def repairs_of(repairs: Sequence[Cursor], peer: PeerConfig) -> list[Cursor]:
    """Those of the repairs that are for the peer."""
    prefix = f"repair:{peer.group}/{peer.node_name}/"
    return [cursor for cursor in repairs if cursor.name.startswith(prefix)]


def wanted_by(peer: PeerConfig) -> Wanted:
    """Which records the peer is to get."""
    return Selection.of(peer).wanted_by(peer.node_name)


@dataclass(frozen=True, slots=True)
class PeerBooks:
    """A peer as it is declared, and its books."""

    peer: PeerConfig
    books: Books


def open_books(conn: Connection, peer: PeerConfig) -> PeerBooks:
    """The books of the peer as this snapshot has them; batches are looked up in them later."""
    cursor = read_cursor_of(conn, peer)
    wanted = Selection.of(peer)
    if cursor is None:
        return PeerBooks(peer, Books(peer.node_name, wanted))
    versions = read_versions(conn, cursor.name)
    return PeerBooks(
        peer,
        Books(
            peer.node_name,
            wanted,
            cursor,
            {number: Version(at, Selection.from_json(selection)) for number, at, selection in versions},
            [Repair(repair, Selection.from_json(repair.selection)) for repair in read_repairs_of(conn, peer)],
            read_picked(conn, cursor.name),
        ),
    )
