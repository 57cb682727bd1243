"""Reads the delivery ledger of the link to a peer: its cursor, its selections over time, and its running repairs."""

from __future__ import annotations

from dataclasses import dataclass

from eventd.groups.links import read_cursor_of, read_repairs_of
from eventd.log.delivery.selection import Selection
from eventd.log.delivery.states import LinkLedger, Repair, Version, read_picked, read_versions
from eventd.resources.group_configuration import PeerConfig
from eventd.store.engine.database import Connection


@dataclass(frozen=True, slots=True)
class PeerLedger:
    """A declared peer, and the delivery ledger of the link to it."""

    peer: PeerConfig
    link: LinkLedger


def open_ledger(conn: Connection, peer: PeerConfig) -> PeerLedger:
    """Return the ledger of the link to the peer in this snapshot, without its batches, which `derive` reads."""
    cursor = read_cursor_of(conn, peer)
    wanted = Selection.of(peer)
    if cursor is None:
        return PeerLedger(peer, LinkLedger(peer.node_name, wanted))
    versions = read_versions(conn, cursor.name)
    return PeerLedger(
        peer,
        LinkLedger(
            peer.node_name,
            wanted,
            cursor,
            {number: Version(at, Selection.from_json(selection)) for number, at, selection in versions},
            [Repair(repair, Selection.from_json(repair.selection)) for repair in read_repairs_of(conn, peer)],
            read_picked(conn, cursor.name),
        ),
    )
