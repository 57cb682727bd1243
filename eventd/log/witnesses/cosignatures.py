"""Witnesses of this node's trees: what is offered to each, its cosignatures, and why one does not cosign."""

from __future__ import annotations

from typing import Final, NamedTuple

from eventd.log.core.commit import ChangeUnit, Transaction, Turn
from eventd.log.history.trees import (
    StoredCheckpoint,
    Tree,
    find_open_tree,
    find_tree_of,
    read_checkpoint_of,
    read_openings_before,
    tile_reader,
)
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, for_update, insert_row, replacing
from federation.errors import HistoryError, LeavesNotHeld, MalformedHistory
from federation.history.entries import read_opening_entry
from federation.history.notes import NoteSignature, read_note
from federation.history.tiles import consistency_proof, inclusion_proof
from federation.history.witnessing import Offer

STALE: Final = "stale"
"""The state of a witness that stands at a size from which nothing can be proven any more."""
REFUSED: Final = "refused"
"""The state of a witness that refuses to cosign."""
OLDER: Final = "older"
"""The state of a witness that keeps no history at present."""
_COLUMNS: Final = "tree, peer, size, cosigned_at, state, detail, asked_at"


class Witness(NamedTuple):
    """A peer as a witness of a tree: the size that it holds, and when its cosignature of that size arrived (None: not).

    `state` is empty, `stale`, `refused` or `older`; `detail` says why.
    """

    tree: int
    peer: str
    size: int
    cosigned_at: int | None
    state: str
    detail: str
    asked_at: int


class DueOffer(NamedTuple):
    """A checkpoint that a peer has not cosigned yet.

    `offer` is None if nothing connects it any more with what the peer holds; `detail` says what is missing.
    `previous` is the last note of the tree before it, with the first offer: a copy of the database has signed it, and
    the peer may hold another root at its size.
    """

    tree: Tree
    checkpoint: StoredCheckpoint
    offer: Offer | None
    detail: str = ""
    previous: str = ""


def read_due_offer(conn: Connection, topic_id: int, peer: str) -> DueOffer | None:
    """Return the last checkpoint of the open tree, as it is offered to a peer; None if the peer has cosigned it."""
    tree = find_open_tree(conn, topic_id)
    signed = None if tree is None else read_checkpoint_of(conn, tree.id)
    if tree is None or signed is None:
        return None
    witness = find_witness(conn, tree.id, peer)
    old = 0 if witness is None else witness.size
    if old > signed.size or (witness is not None and old == signed.size and witness.cosigned_at is not None):
        return None
    try:
        previous = "" if old else _read_previous_note(conn, tree)
        return DueOffer(tree, signed, _prove(conn, tree, signed, old), previous=previous)
    except MalformedHistory as error:  # tiles are pruned
        return DueOffer(tree, signed, None, error.message)


def _read_previous_note(conn: Connection, tree: Tree) -> str:
    """Return the last note of the tree that a tree follows; empty if this database has none."""
    try:
        before = read_opening_entry(tree.opening).opening.previous
    except HistoryError:
        return ""
    previous = None if before is None else find_tree_of(conn, tree.topic_id, str(before.origin))
    signed = None if previous is None else read_checkpoint_of(conn, previous.id)
    return "" if signed is None else signed.note


def _prove(conn: Connection, tree: Tree, signed: StoredCheckpoint, old: int) -> Offer:
    """Return a checkpoint as it is offered to a node that holds `old` leaves. Raises MalformedHistory."""
    read, note = tile_reader(conn, tree.id), read_note(signed.note.encode())
    if old:
        return Offer(note, old, tuple(consistency_proof(old, signed.size, read)))
    path = tuple(inclusion_proof(0, signed.size, read))
    return Offer(note, 0, (), tree.opening, path, read_openings_before(conn, tree))


def prove_last(conn: Connection, topic_id: int, origin: str, old: int) -> Offer | None:
    """Return the last checkpoint of a tree whose tiles are kept here, as it is offered to a node that holds `old`.

    None if the tree is not kept, or has fewer leaves, or tiles that the proof needs are pruned.
    """
    tree = find_tree_of(conn, topic_id, origin)
    signed = None if tree is None else read_checkpoint_of(conn, tree.id)
    if tree is None or signed is None or old > signed.size:
        return None
    try:
        return _prove(conn, tree, signed, old)
    except MalformedHistory:
        return None


def keep_cosignature(conn: Connection, tree_id: int, peer: str, size: int, signature: NoteSignature, now: int) -> bool:
    """Add a verified cosignature to the note of a stored checkpoint; return whether the note had room for it."""
    values = {"tree": tree_id, "peer": peer, "size": size, "cosigned_at": now, "state": "", "detail": ""}
    insert_row(
        conn,
        "witnesses",
        values | {"asked_at": now},
        f"ON CONFLICT (tree, peer) DO UPDATE SET"
        f" {replacing(['size', 'cosigned_at', 'state', 'detail', 'asked_at'])} WHERE witnesses.size <= excluded.size",
    )
    sql = f"SELECT note FROM checkpoints WHERE tree = ? AND size = ?{for_update(conn)}"
    rows = fetch(conn, sql, (tree_id, size))
    if not rows:
        return False  # thinned out meanwhile
    note = read_note(rows[0][0].encode())
    if any((one.name, one.key_id) == (signature.name, signature.key_id) for one in note.signatures):
        return True
    try:
        text = note.add(signature).encode().decode()
    except MalformedHistory:
        return False
    execute(conn, "UPDATE checkpoints SET note = ? WHERE tree = ? AND size = ?", (text, tree_id, size))
    return True


class KeepCosignature(ChangeUnit[bool]):
    """A unit of the writer that keeps a verified cosignature: those of many peers share a transaction."""

    turn = Turn.BACKGROUND

    def __init__(self, tree_id: int, peer: str, size: int, signature: NoteSignature, now: int) -> None:
        self._cosigned = (tree_id, peer, size, signature, now)

    def make(self, tx: Transaction) -> bool:
        return keep_cosignature(tx.conn, *self._cosigned)


def note_held_size(conn: Connection, tree_id: int, peer: str, size: int, now: int) -> None:
    """Record the size of a tree that a peer holds, as the peer has shown with a note.

    That is no cosignature: a proxy could answer in the place of a peer with a note of this node that it has seen.
    """
    values = {"tree": tree_id, "peer": peer, "size": size, "cosigned_at": None, "asked_at": now}
    same = "CASE WHEN witnesses.size = excluded.size THEN witnesses.cosigned_at END"
    changed = f"size = excluded.size, cosigned_at = {same}"
    insert_row(conn, "witnesses", values, f"ON CONFLICT (tree, peer) DO UPDATE SET {changed}")


def note_witness_state(conn: Connection, tree_id: int, peer: str, state: str, detail: str, now: int) -> None:
    """Record why a peer does not cosign."""
    values = {"tree": tree_id, "peer": peer, "size": 0, "state": state, "detail": detail, "asked_at": now}
    changed = replacing(["state", "detail", "asked_at"])
    insert_row(conn, "witnesses", values, f"ON CONFLICT (tree, peer) DO UPDATE SET {changed}")


def find_witness(conn: Connection, tree_id: int, peer: str) -> Witness | None:
    """Return a peer as a witness of a tree; None if it never was one."""
    rows = fetch(conn, f"SELECT {_COLUMNS} FROM witnesses WHERE tree = ? AND peer = ?", (tree_id, peer))
    return Witness(*rows[0]) if rows else None


def find_present_witness(conn: Connection, topic_id: int, peer: str) -> Witness | None:
    """Return a peer as a witness of the open tree of a topic; None if it is none of it."""
    tree = find_open_tree(conn, topic_id)
    return None if tree is None else find_witness(conn, tree.id, peer)


def read_witnesses(conn: Connection, tree_id: int) -> list[Witness]:
    """Return the witnesses of a tree, by peer."""
    rows = fetch(conn, f"SELECT {_COLUMNS} FROM witnesses WHERE tree = ? ORDER BY peer", (tree_id,))
    return [Witness(*row) for row in rows]


def read_held_sizes(conn: Connection, topic_id: int) -> dict[str, int]:
    """Return for each witness of a topic's open tree how many of its leaves the witness is known to hold."""
    tree = find_open_tree(conn, topic_id)
    return {} if tree is None else {one.peer: one.size for one in read_witnesses(conn, tree.id) if one.size}


def count_cosigned(conn: Connection, tree_id: int, size: int) -> int:
    """Return how many peers have cosigned a checkpoint of a tree with at least this size."""
    sql = "SELECT count(*) FROM witnesses WHERE tree = ? AND size >= ? AND cosigned_at IS NOT NULL"
    return int(fetch(conn, sql, (tree_id, size))[0][0])


def read_peers_cosigned(conn: Connection, topic_id: int, tree_id: int, since: int) -> dict[str, bool]:
    """Return for each peer that has cosigned a topic's trees since a time whether it has cosigned this one, by peer.

    Also for those that have refused this tree since then. The others may have no history any more, or speak v1.
    """
    sql = (
        "SELECT w.peer, max(CASE WHEN w.tree = ? AND w.cosigned_at IS NOT NULL THEN 1 ELSE 0 END) FROM witnesses AS w"
        " JOIN trees AS t ON t.id = w.tree WHERE t.topic_id = ? GROUP BY w.peer"
        " HAVING max(w.cosigned_at) >= ? OR max(CASE WHEN w.tree = ? AND w.state = ? THEN w.asked_at END) >= ?"
        " ORDER BY w.peer"
    )
    values = tree_id, topic_id, since, tree_id, REFUSED, since
    return {peer: bool(cosigned) for peer, cosigned in fetch(conn, sql, values)}


def reset_witness(conn: Connection, topic_id: int, peer: str) -> int:
    """Forget what a peer holds of this node's trees: it is asked again. Returns of how many trees."""
    sql = "DELETE FROM witnesses WHERE peer = ? AND tree IN (SELECT id FROM trees WHERE topic_id = ?)"
    return execute(conn, sql, (peer, topic_id))


def prove_consistency(conn: Connection, topic_id: int, origin: str, old: int, size: int) -> list[bytes]:
    """Return the consistency proof between two sizes of a tree whose tiles are kept here. Raises MalformedHistory."""
    rows = fetch(conn, "SELECT id, size FROM trees WHERE topic_id = ? AND origin = ?", (topic_id, origin))
    if not rows or size > rows[0][1]:
        signed = rows[0][1] if rows else 0
        raise LeavesNotHeld(f"{origin} has {signed} signed leaves here, and not {size}")
    return consistency_proof(old, size, tile_reader(conn, rows[0][0]))


def forget_witness(conn: Connection, tree_id: int, peer: str) -> None:
    """Forget what a peer held of a tree: it holds nothing any more."""
    execute(conn, "DELETE FROM witnesses WHERE tree = ? AND peer = ?", (tree_id, peer))


def read_witness_ages(conn: Connection, topic_id: int, now: int) -> dict[str, int]:
    """Return for each witness of the open tree for how many microseconds it has not cosigned what was signed.

    0: it has cosigned the last checkpoint.
    """
    tree = find_open_tree(conn, topic_id)
    if tree is None:
        return {}
    cosigned = "CASE WHEN w.cosigned_at IS NULL THEN w.size - 1 ELSE w.size END"
    first = f"SELECT min(signed_at) FROM checkpoints WHERE tree = w.tree AND size > {cosigned}"
    rows = fetch(conn, f"SELECT peer, ({first}) FROM witnesses AS w WHERE tree = ?", (tree.id,))
    return {peer: 0 if since is None else max(0, now - since) for peer, since in rows}
