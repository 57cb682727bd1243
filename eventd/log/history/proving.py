"""Proofs from stored tiles: that a tree has the leaf of an event, and that it begins with all leaves of a smaller one.

Each proof is verified here before it is returned. So a damaged database is found at the node, with the tree, the index
and both hashes, and not by the person who is to be convinced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from eventd.errors import CheckFailed, Invalid
from eventd.log.core.scan import blocks_at
from eventd.log.history.hints import find_hint
from eventd.log.history.relayed import find_relayed
from eventd.log.history.trees import (
    StoredCheckpoint,
    Tree,
    read_checkpoint_at,
    read_checkpoint_of,
    read_checkpoints,
    read_signed_size,
    read_tree,
    tile_reader,
)
from eventd.store.engine.database import Connection
from federation.digest import digest
from federation.errors import HistoryError, MalformedHistory
from federation.history.entries import event_entry
from federation.history.merkle import hash_leaf
from federation.history.notes import read_note
from federation.history.proof_file import LeafProof, ProofFile
from federation.history.proofs import verify_consistency, verify_inclusion
from federation.history.tiles import TileReader, consistency_proof, inclusion_proof, root_of
from federation.loops import decode_path

MOST_COMPARED: Final = 256
"""How many of the newest checkpoints are compared for the one with the most signatures."""

Result = TypeVar("Result")


class NotProven(CheckFailed):
    """Something cannot be proven from this database; `reason` is a word for programs."""

    code = "not_proven"

    def __init__(self, message: str, reason: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.detail = {"reason": reason}


@dataclass(frozen=True, slots=True)
class EventLeaf:
    """The leaf of an event: its index in a tree, and the canonical text of the event."""

    tree: Tree
    index: int
    body: str


class ConsistencyProof(NamedTuple):
    """That the tree of size `new` begins with all leaves of the one of size `old`.

    `notes` has the stored checkpoints of these two sizes: none of a size that was never signed, or was thinned out.
    """

    tree: Tree
    old: int
    old_root: bytes
    new: int
    new_root: bytes
    hashes: list[bytes]
    notes: list[StoredCheckpoint]


def find_leaf(conn: Connection, topic_id: int, position: int) -> EventLeaf:
    """Return the leaf of the record at a position of a group's topic. Raises NotProven if it has none."""
    for block, _ in blocks_at(conn, [position]):
        part = block.within(position - 1, position) if block.topic_id == topic_id else None
        if part is None or part.has_empty:
            break
        if not part.own:
            return _find_leaf_elsewhere(conn, topic_id, position, *next(part.entries()))
        if part.tree is None or part.leaf is None:
            raise NotProven(
                "the event has no leaf: the group kept no history when it was stored",
                "no_leaf",
                hint="set history.mode: record in the EventGroup; events that are emitted from then on can be proven",
            )
        return EventLeaf(read_tree(conn, part.tree), part.leaf, part.bodies()[0])
    raise NotProven(f"the record at position {position} is not stored any more", "evicted")


def _find_leaf_elsewhere(conn: Connection, topic_id: int, position: int, path: str, body: str) -> EventLeaf:
    """Return the leaf of an event that another node admitted, if this one keeps the tiles. Raises NotProven."""
    found = find_relayed(conn, topic_id, body, decode_path(path), find_hint(conn, topic_id, position))
    if found is None:
        raise NotProven(
            "the event entered the group at another node, and no tile of a tree of that node has its leaf here",
            "other_node",
            hint="prove it at the node where it was emitted: the path of the event begins there; a node that relays"
            " has the tiles a minute later",
        )
    return EventLeaf(*found, body)


def prove_event(conn: Connection, leaf: EventLeaf, *, size: int | None = None, with_event: bool = True) -> ProofFile:
    """Return the proof file of an event: in the checkpoint of this size, or in the best one that covers it.

    Without `with_event` the file has only the digest of the event. Raises NotProven.
    """
    tree = leaf.tree
    checkpoint = _find_covering(conn, leaf) if size is None else require_checkpoint(conn, tree, size)
    if checkpoint.size <= leaf.index:
        raise Invalid(
            f"leaf {leaf.index} is not in the checkpoint of size {checkpoint.size} of {tree.origin}",
            hint=f"ask for a size above {leaf.index}",
        )
    text = digest(leaf.body.encode())
    path = _prove_leaf(conn, tree, checkpoint, leaf.index, hash_leaf(event_entry(text)))
    return ProofFile(
        text,
        leaf.body if with_event else None,
        LeafProof(leaf.index, path, read_note(checkpoint.note.encode())),
        tree.opening,
        prove_opening(conn, tree, checkpoint),
    )


def prove_opening(conn: Connection, tree: Tree, checkpoint: StoredCheckpoint) -> tuple[bytes, ...]:
    """Return the inclusion path of the opening entry of a tree in a checkpoint. Raises NotProven."""
    return _prove_leaf(conn, tree, checkpoint, 0, hash_leaf(tree.opening))


def require_checkpoint(conn: Connection, tree: Tree, size: int | None = None) -> StoredCheckpoint:
    """Return the checkpoint of a tree of this size, or the last one. Raises NotProven if there is none."""
    found = read_checkpoint_of(conn, tree.id) if size is None else read_checkpoint_at(conn, tree.id, size)
    if found is None:
        of = "" if size is None else f" of size {size}"
        raise NotProven(
            f"no checkpoint{of} of {tree.origin} is stored: it was not signed, or was thinned out",
            "no_checkpoint",
            hint="list them: routerctl log status",
        )
    return found


def prove_consistency(conn: Connection, tree: Tree, old: int, new: int | None = None) -> ConsistencyProof:
    """Return the consistency proof between two sizes of a tree, by default up to its last checkpoint.

    Raises Invalid for sizes that were not sealed, and NotProven.
    """
    last = read_signed_size(conn, tree)
    new = last if new is None else new
    if not 0 < old <= new <= last:
        raise Invalid(
            f"there is no consistency proof from size {old} to size {new} of {tree.origin}: the sealed tree has size"
            f" {last}",
            hint="give two sizes from 1 up to that one, the smaller one first",
        )
    read = tile_reader(conn, tree.id)
    stored = [read_checkpoint_at(conn, tree.id, size) for size in dict.fromkeys((old, new))]
    signed = [one for one in stored if one is not None]

    def prove() -> ConsistencyProof:
        roots = {size: root_of(size, read) for size in (old, new)} | {one.size: one.root for one in signed}
        hashes = consistency_proof(old, new, read)
        verify_consistency(old, roots[old], new, roots[new], hashes)
        return ConsistencyProof(tree, old, roots[old], new, roots[new], hashes, sorted(signed))

    return _from_tiles(tree, f"the tree of size {old} and the one of size {new}", prove)


def _prove_leaf(
    conn: Connection, tree: Tree, checkpoint: StoredCheckpoint, index: int, leaf: bytes
) -> tuple[bytes, ...]:
    """Return the inclusion path of a leaf in a checkpoint, after verifying it."""
    read: TileReader = tile_reader(conn, tree.id)

    def prove() -> tuple[bytes, ...]:
        path = inclusion_proof(index, checkpoint.size, read)
        verify_inclusion(leaf, index, checkpoint.size, path, checkpoint.root)
        return tuple(path)

    return _from_tiles(tree, f"leaf {index}", prove)


def _from_tiles(tree: Tree, what: str, prove: Callable[[], Result]) -> Result:
    """Return what follows from stored tiles; raises NotProven if tiles are missing or contradict what was signed."""
    try:
        return prove()
    except MalformedHistory as error:
        raise NotProven(
            f"{what} of {tree.origin} cannot be proven: {error.message}",
            "pruned" if error.reason == "tile_missing" else "damaged",
            hint="tiles of evicted events are kept for a while only; prove it from the lake",
        ) from None
    except HistoryError as error:
        raise NotProven(
            f"{what} of {tree.origin} does not give what this node signed: {error.message}",
            "damaged",
            hint="the database was changed or damaged: compare it with a backup and with what peers hold",
        ) from None


def _find_covering(conn: Connection, leaf: EventLeaf) -> StoredCheckpoint:
    """Return the checkpoint that proves the most of a leaf: with the most signatures, and of these the newest."""
    found = read_checkpoints(conn, leaf.tree.id, above=leaf.index, most=MOST_COMPARED)
    if not found:
        last = read_signed_size(conn, leaf.tree)
        raise NotProven(
            f"leaf {leaf.index} of {leaf.tree.origin} is in no checkpoint yet: the last one has size {last}",
            "unsealed",
            hint="try again in a second; routerctl doctor says if the node cannot seal",
        )
    return max(found, key=lambda one: (one.note.count("\n— "), one.size))
