"""Seals new records: hashes what was appended, and stores tiles and a signed checkpoint.

Reading and hashing hold no lock. The write compares the size of the tree, reads back what it stored, and signs only a
root that follows from it. What is wrong is never signed over: the tree ends with a `trouble`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from eventd.log.core.blocks import Block
from eventd.log.core.head import read_head
from eventd.log.core.scan import scan
from eventd.log.history.open_tree import TreeOwner
from eventd.log.history.trees import (
    StoredCheckpoint,
    Tree,
    find_open_tree,
    read_checkpoint_of,
    read_next_leaf,
    read_tree,
    tile_reader,
    write_tiles,
)
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, insert_row
from federation.errors import HistoryError
from federation.history.checkpoints import Checkpoint, read_origin, sign_checkpoint
from federation.history.merkle import hash_leaf, hash_perfect
from federation.history.tiles import TILE_WIDTH, TileAddress, TileBuilder, read_hashes, root_of

MOST_LEAVES: Final = 4096
"""From how many leaves on a checkpoint takes no further block: a writer waits for it for a few milliseconds."""
CHECKED: Final = 32
"""One of this many leaves is hashed again from the stored text before a checkpoint is signed."""


class Hashed(NamedTuple):
    """Leaves that follow the last checkpoint of `tree`, and the tiles that they change. `position`: of the last record.

    `root` and `size` are those of the tree with them. `checked` are positions of some records with the hashes of their
    leaves. `behind`: how many leaves remain; `since`: when the first of these records was stored, None for the opening
    entry alone. `trouble`: why the tree ends; then nothing is to be stored.
    """

    tree: Tree
    size: int
    position: int
    root: bytes
    tiles: dict[TileAddress, bytes]
    checked: list[tuple[int, bytes]]
    behind: int = 0
    since: int | None = None
    trouble: str = ""


def hash_new(conn: Connection, topic_id: int, most: int = MOST_LEAVES) -> Hashed | None:
    """Hash the next records of a topic's open tree that have no checkpoint; None if there are none, and no tree."""
    tree = find_open_tree(conn, topic_id)
    if tree is None or tree.trouble:
        return None
    leaves = [hash_leaf(tree.opening)] if tree.size == 0 else []
    position, checked, since = tree.position, list[tuple[int, bytes]](), None
    for block in scan(conn, topic_id, tree.position, read_head(conn).last, own=True):
        if block.tree != tree.id:
            continue
        due = tree.size + len(leaves)
        if block.leaf != due or block.has_empty:
            return _damaged(tree, f"leaf {due} has no record: position {block.position} has leaf {block.leaf}")
        since = block.recorded_at if since is None else since
        new = _hash_block(block)
        checked += [(block.position + at, new[at]) for at in range(-due % CHECKED, len(new), CHECKED)]
        leaves += new
        position = block.last
        if len(leaves) >= most:
            break
    if not leaves:
        return None
    try:
        builder = TileBuilder(tree.size, tile_reader(conn, tree.id))
        signed = read_checkpoint_of(conn, tree.id)
        if signed is not None and (signed.size, signed.root) != (builder.size, builder.root()):
            return _damaged(
                tree,
                f"the tiles of size {builder.size} have root {builder.root().hex()}, but the last checkpoint of size"
                f" {signed.size} has {signed.root.hex()}",
            )
        tiles = builder.extend(leaves)
    except HistoryError as error:
        return _damaged(tree, str(error))
    behind = max(0, read_next_leaf(conn, topic_id) - builder.size)
    return Hashed(tree, builder.size, position, builder.root(), tiles, checked, behind, since)


def _damaged(tree: Tree, trouble: str) -> Hashed:
    return Hashed(tree, tree.size, tree.position, b"", {}, [], trouble=trouble)


def _hash_block(block: Block) -> list[bytes]:
    return [sha256(b"\0\1" + sha256(body.encode()).digest()).digest() for body in block.bodies()]


def store_checkpoint(conn: Connection, hashed: Hashed, owner: TreeOwner, now: int) -> StoredCheckpoint | None:
    """Store the tiles, read them back, and store a signed checkpoint; return it.

    None if another process has sealed meanwhile, if the tree must not be continued, or if it is damaged: then its row
    says why.
    """
    tree = read_tree(conn, hashed.tree.id, locked=True)
    if tree != hashed.tree or not owner.may_continue(tree, read_head(conn).epoch):
        return None
    trouble = hashed.trouble
    if not trouble:
        write_tiles(conn, tree.id, hashed.tiles)
        trouble = _find_trouble(conn, hashed)
    if trouble:
        execute(conn, "UPDATE trees SET trouble = ? WHERE id = ?", (trouble, tree.id))
        return None
    origin = read_origin(tree.origin)
    note = sign_checkpoint(Checkpoint(origin, hashed.size, hashed.root), owner.signer(origin)).encode().decode()
    made = StoredCheckpoint(hashed.size, hashed.root, note, now)
    insert_row(conn, "checkpoints", {"tree": tree.id} | made._asdict())
    execute(conn, "UPDATE trees SET size = ?, position = ? WHERE id = ?", (hashed.size, hashed.position, tree.id))
    return made


def _find_trouble(conn: Connection, hashed: Hashed) -> str:
    """Return what differs between the hashed leaves and what is stored now; empty: nothing."""
    read = tile_reader(conn, hashed.tree.id)
    try:
        root = root_of(hashed.size, read)
        if root != hashed.root:
            return f"the tiles of size {hashed.size} have root {root.hex()} instead of {hashed.root.hex()}"
        for tile in (tile for tile in hashed.tiles if tile.width == TILE_WIDTH):
            stored, above = read_hashes(read(tile), tile), TileAddress(tile.level + 1, tile.number // TILE_WIDTH, 1)
            at = tile.number % TILE_WIDTH
            listed = read_hashes(read(above), above._replace(width=at + 1))[at]
            if hash_perfect(stored) != listed:
                return f"{tile.path()} has root {hash_perfect(stored).hex()}, but the level above has {listed.hex()}"
    except HistoryError as error:
        return str(error)
    return _find_changed(conn, hashed.tree.topic_id, hashed.checked)


def _find_changed(conn: Connection, topic_id: int, checked: Sequence[tuple[int, bytes]]) -> str:
    """Return which of some records has another text than the one that was hashed; empty: none."""
    due = dict(checked)
    if not due:
        return ""
    for block in scan(conn, topic_id, min(due) - 1, max(due), own=True):
        for at in [at for at in range(block.position, block.last + 1) if at in due]:
            part = block.within(at - 1, at)
            found = _hash_block(part)[0] if part is not None else b""
            if due.pop(at) != found:
                return f"the record at position {at} changed between two reads: its leaf has the hash {found.hex()}"
    return f"the record at position {min(due)} is missing" if due else ""
