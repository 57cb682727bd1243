"""Trees of other nodes at a relay: their tiles of level 0, checked against a checkpoint before they are stored.

A relay has the key of no other tree. With the tiles it proves what it passes on, and finds out what was never in them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from eventd.log.history.trees import (
    NO_TOPIC,
    UNPROVEN,
    StoredCheckpoint,
    Tree,
    find_hash,
    find_tree_of,
    read_relayed_trees,
    read_tiles,
    read_tree,
    tile_reader,
    write_tiles,
)
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, for_update, insert_row
from federation.digest import digest
from federation.errors import HistoryError, LeavesNotHeld, MalformedHistory, ProofMismatch
from federation.history.checkpoints import read_origin
from federation.history.entries import OPENING_ENTRY, event_entry
from federation.history.exchange import (
    MOST_TILES,
    ConsistencyAnswer,
    ConsistencyQuestion,
    TilesAnswer,
    TilesQuestion,
    read_hashes,
    read_leaves,
    write_hashes,
)
from federation.history.forms import write_base64
from federation.history.merkle import HASH_SIZE, hash_leaf
from federation.history.proofs import verify_consistency
from federation.history.tiles import TILE_WIDTH, TileAddress, TileBuilder, consistency_proof, root_of
from federation.history.tiles import read_hashes as read_tile

MOST_TREES: Final = 16
"""Maximum number of trees of one node whose tiles are kept: those that it opened last."""


class RelayedCheckpoint(NamedTuple):
    """A checkpoint of another node's tree, which this node has witnessed, and the time of the tree's opening."""

    origin: str
    log_key: str
    size: int
    root: bytes
    note: str
    opened_at: int


class CheckedTiles(NamedTuple):
    """Tiles that continue a tree from size `old` to `size`, and that a checkpoint of it covers.

    `opening`: the opening entry, with the first tile.
    """

    checkpoint: RelayedCheckpoint
    old: int
    size: int
    tiles: dict[TileAddress, bytes]
    opening: bytes = b""


def ask_tiles(checkpoint: RelayedCheckpoint, tree: Tree | None) -> TilesQuestion:
    """Return the question for the next tiles of a tree, of which nothing is kept if `tree` is None."""
    first = 0 if tree is None else tree.size // TILE_WIDTH
    count = min(MOST_TILES, -(-checkpoint.size // TILE_WIDTH) - first)
    return TilesQuestion(tree=checkpoint.origin, first=first, count=count, size=checkpoint.size)


def check_tiles(
    conn: Connection, checkpoint: RelayedCheckpoint, tree: Tree | None, question: TilesQuestion, answer: TilesAnswer
) -> CheckedTiles:
    """Return what an answer adds to a tree. Raises MalformedHistory, and ProofMismatch for tiles of another tree."""
    old = 0 if tree is None else tree.size
    leaves = read_leaves(answer, question)[old - question.first * TILE_WIDTH :]
    builder = TileBuilder(old, None if tree is None else tile_reader(conn, tree.id))
    tiles = builder.extend(leaves)
    proof = read_hashes(answer.proof, "the consistency proof of the tiles")
    verify_consistency(builder.size, builder.root(), checkpoint.size, checkpoint.root, proof)
    opening = b"" if old else OPENING_ENTRY + answer.opening.encode(errors="replace")
    # What the entry states was checked when the tree was witnessed: here it need only be the same one.
    if opening and hash_leaf(opening) != leaves[0]:
        raise MalformedHistory(
            f"the opening entry of {checkpoint.origin} has the hash {hash_leaf(opening).hex()}, but leaf 0 is"
            f" {leaves[0].hex()}",
            reason="opening",
        )
    return CheckedTiles(checkpoint, old, builder.size, tiles, opening)


def keep_tiles(conn: Connection, topic_id: int, checked: CheckedTiles, now: int) -> bool:
    """Store checked tiles, and the checkpoint if they reach it; False if the tree has changed meanwhile."""
    stated = checked.checkpoint
    found = find_tree_of(conn, topic_id, stated.origin)
    if found is None and checked.old == 0:
        drop_relayed(conn, topic_id, read_origin(stated.origin).node, but=MOST_TREES - 1)
        found = _insert(conn, topic_id, checked)
    if found is None:
        return False
    tree = read_tree(conn, found.id, locked=True)
    if tree.size != checked.old or tree.epoch or tree.topic_id != topic_id:
        return False
    write_tiles(conn, tree.id, checked.tiles)
    execute(conn, "UPDATE trees SET size = ?, trouble = '' WHERE id = ?", (checked.size, tree.id))
    if checked.size == stated.size:
        reached = StoredCheckpoint(stated.size, stated.root, stated.note, now)
        insert_row(conn, "checkpoints", {"tree": tree.id} | reached._asdict())
    return True


def _insert(conn: Connection, topic_id: int, checked: CheckedTiles) -> Tree:
    stated = checked.checkpoint
    values = {
        "topic_id": topic_id,
        "origin": stated.origin,
        "log_key": stated.log_key,
        "epoch": "",
        "opening": checked.opening,
        "opened_at": stated.opened_at,
        "size": 0,
        "position": 0,
    }
    ((tree_id,),) = insert_row(conn, "trees", values, "RETURNING id")
    return read_tree(conn, tree_id)


def drop_relayed(conn: Connection, topic_id: int, node: str, *, but: int = 0) -> None:
    """Drop the trees of a node with their tiles, except `but` of them: those that it opened last.

    Trees that are not held any more, as those of an impostor after a reset, are dropped first, whatever time of their
    opening they state.
    """
    held = read_held_origins(conn, topic_id)
    trees = [tree for tree in read_relayed_trees(conn, topic_id) if read_origin(tree.origin).node == node]
    for tree in sorted(trees, key=lambda tree: tree.origin not in held)[but:]:
        _drop(conn, tree)


def read_held_origins(conn: Connection, topic_id: int) -> set[str]:
    """Return the origins of trees whose tiles are kept and that are witnessed, or were until their node left them."""
    of_both = (
        f"EXISTS (SELECT 1 FROM {table} AS o WHERE o.topic_id = t.topic_id AND o.origin = t.origin)"
        for table in ("witnessed", "closed_trees")
    )
    sql = f"SELECT origin FROM trees AS t WHERE topic_id = ? AND epoch = '' AND ({' OR '.join(of_both)})"
    return {origin for (origin,) in fetch(conn, sql, (topic_id,))}


def compare_kept(conn: Connection, topic_id: int, origin: str, size: int, root: bytes) -> None:
    """Compare what is kept of a relayed tree that is witnessed again with its checkpoint.

    Tiles with another root at this size are of another tree with the same name: they are dropped. Tiles that do not say
    what the root is, because the tree has grown or because they were pruned, are not used until the next tiles or a
    proof show that they are of the same tree: the peer may have pruned what a second pull would begin with.
    """
    tree = find_tree_of(conn, topic_id, origin)
    if tree is None or tree.epoch:
        return
    kept = _root_at(conn, tree, size)
    if kept is not None and kept != root:
        _drop(conn, tree)
    else:
        execute(conn, "UPDATE trees SET trouble = ? WHERE id = ?", (UNPROVEN if kept is None else "", tree.id))


def is_refuted(
    conn: Connection, checkpoint: RelayedCheckpoint, tree: Tree, question: TilesQuestion, answer: TilesAnswer
) -> bool:
    """Return whether an answer that does not continue what is kept of a tree proves that this is of another tree.

    Only all leaves from the first one on do: else a peer that sends one wrong hash would have true tiles dropped.
    """
    if question.first:
        return False
    try:
        checked = check_tiles(conn, checkpoint, None, question, answer)
    except HistoryError:
        return False
    return checked.size >= tree.size


def ask_connection(checkpoint: RelayedCheckpoint, tree: Tree) -> ConsistencyQuestion:
    """Return the question for the proof of how what is kept of a tree and its checkpoint are connected.

    A proof from a power of two contains no hash of which the root at that size could be computed: it is asked for one
    leaf less.
    """
    if checkpoint.size <= tree.size:
        return ConsistencyQuestion(tree=checkpoint.origin, old=checkpoint.size, size=tree.size)
    old = tree.size if tree.size & (tree.size - 1) else tree.size - 1
    return ConsistencyQuestion(tree=checkpoint.origin, old=old, size=checkpoint.size)


def is_refuted_by_proof(
    conn: Connection,
    checkpoint: RelayedCheckpoint,
    tree: Tree,
    question: ConsistencyQuestion,
    answer: ConsistencyAnswer,
) -> bool:
    """Return whether a proof shows that the checkpoint's tree has another root at a size at which tiles are kept."""
    kept = _root_at(conn, tree, question.old)
    if kept is None:
        return False
    proof = read_hashes(answer.proof, "the consistency proof")
    try:
        verify_consistency(question.old, kept, checkpoint.size, checkpoint.root, proof)
    except ProofMismatch as mismatch:
        try:
            verify_consistency(question.old, mismatch.computed, checkpoint.size, checkpoint.root, proof)
        except HistoryError:
            return False
        return True
    return False


def check_kept(
    conn: Connection,
    checkpoint: RelayedCheckpoint,
    tree: Tree,
    question: ConsistencyQuestion,
    answer: ConsistencyAnswer | None,
) -> bool:
    """Return whether what is kept of a tree contains a smaller checkpoint. Without an answer, its tiles must tell.

    Raises MalformedHistory, and ProofMismatch where it does not contain the checkpoint.
    """
    if answer is not None:
        proof = read_hashes(answer.proof, "the consistency proof")
        kept = TileBuilder(tree.size, tile_reader(conn, tree.id)).root()
        verify_consistency(question.old, checkpoint.root, tree.size, kept, proof)
        return True
    root = _root_at(conn, tree, question.old)
    if root is not None:
        verify_consistency(question.old, root, question.old, checkpoint.root, ())
    return root is not None


def mark_proven(conn: Connection, tree: Tree) -> None:
    """Use the tiles of a tree again, which were found to be of the one that is witnessed."""
    sql = "UPDATE trees SET trouble = '' WHERE id = ? AND size = ? AND trouble = ?"
    execute(conn, sql, (tree.id, tree.size, UNPROVEN))


def drop_unproven(conn: Connection, tree_id: int) -> bool:
    """Drop a tree that was not proven since it is witnessed again, as tiles of another one; return whether it was."""
    rows = fetch(conn, f"SELECT trouble FROM trees WHERE id = ?{for_update(conn)}", (tree_id,))
    if not rows or rows[0][0] != UNPROVEN:
        return False
    _drop(conn, read_tree(conn, tree_id))
    return True


def _drop(conn: Connection, tree: Tree) -> None:
    """Take a tree out of use, and free its name. `delete_dropped` deletes its tiles, which may be a gigabyte."""
    values = NO_TOPIC, f"dropped {tree.id}", tree.id
    execute(conn, "UPDATE trees SET topic_id = ?, origin = ? WHERE id = ?", values)


def answer_tiles(conn: Connection, topic_id: int, question: TilesQuestion) -> TilesAnswer:
    """Return the tiles of a tree that this node keeps, its own or another node's. Raises MalformedHistory."""
    tree = find_tree_of(conn, topic_id, question.tree)
    if tree is None or question.size > tree.size:
        size = 0 if tree is None else tree.size
        raise LeavesNotHeld(f"{question.tree} has {size} signed leaves here, not {question.size}")
    if question.end <= question.first * TILE_WIDTH:
        raise MalformedHistory(
            f"{question.tree} of size {question.size} has no {TileAddress(0, question.first).path()}", reason="tiles"
        )
    read, tiles = tile_reader(conn, tree.id), list[str]()
    for number in range(question.first, -(-question.end // TILE_WIDTH)):
        address = TileAddress(0, number, min(question.end - number * TILE_WIDTH, TILE_WIDTH))
        tiles.append(write_base64(b"".join(read_tile(read(address), address))))
    proof = consistency_proof(question.end, question.size, read)
    opening = "" if question.first else tree.opening[1:].decode()
    return TilesAnswer(tiles=tuple(tiles), proof=write_hashes(tuple(proof)), opening=opening)


def find_kept_root(conn: Connection, topic_id: int, origin: str, size: int) -> bytes | None:
    """Return the root of a tree at a size up to which its proven tiles are kept here; None without them."""
    tree = find_tree_of(conn, topic_id, origin)
    return None if tree is None or tree.trouble == UNPROVEN else _root_at(conn, tree, size)


def _root_at(conn: Connection, tree: Tree, size: int) -> bytes | None:
    if size > tree.size:
        return None
    try:
        return root_of(size, tile_reader(conn, tree.id))
    except MalformedHistory:  # tiles are pruned
        return None


def find_relayed(
    conn: Connection, topic_id: int, body: str, nodes: Collection[str], hint: tuple[str, int] = ("", 0)
) -> tuple[Tree, int] | None:
    """Return the tree of one of these nodes that has the leaf of an event, with its index; None if none has it.

    `hint`: the tree and the index at which it may be, so that not all tiles need be looked through.
    """
    leaf = hash_leaf(event_entry(digest(body.encode())))
    known = [tree for tree in read_relayed_trees(conn, topic_id) if read_origin(tree.origin).node in nodes]
    for tree in known:
        if read_origin(tree.origin).tree == hint[0] and _has_leaf(conn, tree, hint[1], leaf):
            return tree, hint[1]
    for tree in known:
        index = find_hash(conn, tree.id, leaf)
        if index:
            return tree, index
    return None


def _has_leaf(conn: Connection, tree: Tree, index: int, leaf: bytes) -> bool:
    number, at = divmod(index, TILE_WIDTH)
    stored = dict(read_tiles(conn, tree.id, 0, number, 1)).get(number, b"")
    return index > 0 and stored[at * HASH_SIZE : (at + 1) * HASH_SIZE] == leaf
