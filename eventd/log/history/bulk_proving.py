"""Proofs of many leaves at once, for peers: of a range of a tree, or of up to 1,000 of its entries.

A tree is one of this node, or one of another node of which it keeps the tiles. All bounds hold before a proof is
computed: the number of its hashes follows from the indices, and no more than the last million leaves are searched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from eventd.log.core.scan import blocks_at, pick_readable
from eventd.log.history.hints import find_hint
from eventd.log.history.trees import (
    StoredCheckpoint,
    Tree,
    find_tree_of,
    read_checkpoint_at,
    read_checkpoint_of,
    read_tiles,
    tile_reader,
)
from eventd.store.engine.database import Connection
from eventd.store.ids.known import read_ids_of
from federation.digest import digest
from federation.errors import LeavesNotHeld, MalformedHistory
from federation.history.checkpoints import read_origin
from federation.history.entries import event_entry
from federation.history.exchange import (
    MOST_MULTIPROOF,
    ProveAnswer,
    ProveQuestion,
    RangeAnswer,
    RangeQuestion,
    read_hashes,
    write_hashes,
)
from federation.history.merkle import HASH_SIZE, hash_leaf
from federation.history.multiproofs import multiproof_subtrees, verify_leaves
from federation.history.tiles import TILE_WIDTH, multiproof

MOST_SEARCHED: Final = 4096
"""Maximum number of tiles of level 0 that are searched for entries whose index is unknown, the last ones of the tree:
a million leaves."""
TILES_AT_ONCE: Final = 64
"""How many of them are in memory at the same time."""


class _Place(NamedTuple):
    """Where an entry may be: `at` its index, 0 if it is unknown, and its leaf hash, empty if any one will do."""

    at: int
    leaf: bytes


def answer_range(conn: Connection, topic_id: int, question: RangeQuestion) -> RangeAnswer:
    """Return the proof of a range of leaves. Raises MalformedHistory."""
    tree, checkpoint = _require_checkpoint(conn, topic_id, question.tree, question.size)
    proof = multiproof(question.indices, checkpoint.size, tile_reader(conn, tree.id))
    return RangeAnswer(proof=write_hashes(tuple(proof)), note=checkpoint.note)


def answer_prove(conn: Connection, topic_id: int, question: ProveQuestion) -> ProveAnswer:
    """Return one proof of all the entries of a question that are found. Raises MalformedHistory."""
    tree, checkpoint = _require_checkpoint(conn, topic_id, question.tree, question.size)
    of_ids = _places_of_ids(conn, topic_id, tree, question.ids)
    places = [of_ids.get(event_id, _Place(0, b"")) for event_id in question.ids]
    places += [_Place(0, _leaf_of(one)) for one in read_hashes(question.digests, "the digests")]
    places += [_Place(index, b"") for index in question.indices]
    leaves = _read_leaves(conn, tree, checkpoint, places)
    found = {leaf: index for index, leaf in leaves.items()}
    indices = [_index_of(place, leaves, found) for place in places]
    proven = {index: leaves[index] for index in indices if index}
    proof = _prove(conn, tree, checkpoint, proven) if proven else []
    return ProveAnswer(indices=tuple(indices), proof=write_hashes(tuple(proof)), note=checkpoint.note)


def _require_checkpoint(conn: Connection, topic_id: int, origin: str, size: int) -> tuple[Tree, StoredCheckpoint]:
    """Return a tree and its checkpoint of this size; 0: the last one. Raises MalformedHistory."""
    tree = find_tree_of(conn, topic_id, origin)
    found = None
    if tree is not None:
        found = read_checkpoint_at(conn, tree.id, size) if size else read_checkpoint_of(conn, tree.id)
    if tree is None or found is None:
        of = f"checkpoint of size {size}" if size else "checkpoint"
        raise LeavesNotHeld(f"no {of} of {origin} is stored here")
    return tree, found


def _leaf_of(event_digest: bytes) -> bytes:
    return hash_leaf(event_entry(event_digest))


def _places_of_ids(conn: Connection, topic_id: int, tree: Tree, ids: Collection[str]) -> dict[str, _Place]:
    """Return where the entries of stored events may be in a tree, by event id."""
    known = read_ids_of(conn, topic_id, [*dict.fromkeys(ids)]).values()
    found = dict[str, _Place]()
    for block, positions in blocks_at(conn, [row.position for row in known if row.gone_at is None]):
        if block.topic_id != topic_id or (block.tree != tree.id if block.own else tree.epoch):
            continue  # the entry is one of another tree
        for record in pick_readable(block, positions):
            index = 0
            if block.leaf is not None:
                index = block.leaf + record.position - block.position
            elif not block.own:
                hint = find_hint(conn, topic_id, record.position)
                index = hint[1] if hint[0] == read_origin(tree.origin).tree else 0
            found[record.event_id] = _Place(index, _leaf_of(digest(record.body)))
    return found


def _read_leaves(
    conn: Connection, tree: Tree, checkpoint: StoredCheckpoint, places: Collection[_Place]
) -> dict[int, bytes]:
    """Return the leaf hashes at the known indices, and those of the entries that are found by their hash."""
    size = checkpoint.size
    known = dict[int, bytes]()
    for number in sorted({place.at // TILE_WIDTH for place in places if 0 < place.at < size}):
        for _, hashes in read_tiles(conn, tree.id, 0, number, 1):
            known |= _leaves_of(number, hashes, size)
    wanted = {place.at for place in places}
    found = {index: leaf for index, leaf in known.items() if index in wanted}
    sought = {place.leaf for place in places if place.leaf} - set(found.values())
    return found | _search(conn, tree, sought, size)


def _leaves_of(number: int, hashes: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the index and the hash of each leaf in a tile of level 0, without leaf 0."""
    begin = number * TILE_WIDTH
    for index in range(max(begin, 1), min(begin + len(hashes) // HASH_SIZE, size)):
        at = (index - begin) * HASH_SIZE
        yield index, hashes[at : at + HASH_SIZE]


def _search(conn: Connection, tree: Tree, sought: set[bytes], size: int) -> dict[int, bytes]:
    """Return where the last tiles of a tree have these leaf hashes, by index."""
    found, end = dict[int, bytes](), -(-size // TILE_WIDTH)
    lowest = max(end - MOST_SEARCHED, 0)
    while sought and end > lowest:
        first = max(end - TILES_AT_ONCE, lowest)
        for number, hashes in read_tiles(conn, tree.id, 0, first, end - first):
            # Most tiles have none of them: that is found out for all hashes of a tile at once.
            if not sought.isdisjoint([hashes[at : at + HASH_SIZE] for at in range(0, len(hashes), HASH_SIZE)]):
                leaves = _leaves_of(number, hashes, size)
                found |= {index: leaf for index, leaf in leaves if leaf in sought}
        sought = sought - set(found.values())
        end = first
    return found


def _index_of(place: _Place, leaves: Mapping[int, bytes], found: Mapping[bytes, int]) -> int:
    """Return the index of an entry; 0 if it was not found."""
    if place.leaf:
        return place.at if leaves.get(place.at) == place.leaf else found.get(place.leaf, 0)
    return place.at if place.at in leaves else 0


def _prove(conn: Connection, tree: Tree, checkpoint: StoredCheckpoint, leaves: Mapping[int, bytes]) -> list[bytes]:
    """Return the multiproof of leaves in a checkpoint, after verifying it. Raises a HistoryError."""
    indices = sorted(leaves)
    count = len(multiproof_subtrees(indices, checkpoint.size))
    if count > MOST_MULTIPROOF:
        raise MalformedHistory(
            f"the proof of {len(indices)} entries of {tree.origin} has {count} hashes, more than {MOST_MULTIPROOF}: ask"
            " for fewer",
            reason="proof_length",
        )
    proof = multiproof(indices, checkpoint.size, tile_reader(conn, tree.id))
    verify_leaves(leaves, checkpoint.size, proof, checkpoint.root)
    return proof
