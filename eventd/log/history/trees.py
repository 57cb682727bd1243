"""Rows of trees, tiles and checkpoints.

A topic names the tree in which its next own records get leaves. A tree is never continued after another one was opened.
Trees of other nodes, of which a relay keeps the tiles, are rows without an epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute_many, fetch, fetch_in, find_bytes, for_update
from federation.errors import HistoryError, MalformedHistory
from federation.history.checkpoints import read_origin
from federation.history.entries import OpeningReason, read_opening_entry
from federation.history.exchange import MOST_ROTATIONS
from federation.history.merkle import HASH_SIZE
from federation.history.notes import LOG_KEY, read_vkey
from federation.history.tiles import MAX_LEVEL, TILE_HEIGHT, TILE_WIDTH, TileAddress, TileReader

_COLUMNS: Final = "id, topic_id, origin, log_key, epoch, opening, opened_at, size, position, trouble"
MINUTE: Final = 60 * 1_000_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
UNPROVEN: Final = "unproven"
"""The `trouble` of another node's tree that was witnessed again, until it is proven that what is kept is part of it."""
NO_TOPIC: Final = 0
"""The topic of trees that were dropped: nothing reads them any more, and their tiles are deleted in steps."""


class Tree(NamedTuple):
    """A tree. `size` and `position` are those of its last checkpoint: its leaves, and the record of the last one.

    `log_key` is the verifier key of its checkpoints. `trouble` says why none is signed any more; empty: nothing does.
    A tree of another node has no `epoch`, `position` 0, the `size` up to which its tiles were checked, and no other
    `trouble` than `UNPROVEN`.
    """

    id: int
    topic_id: int
    origin: str
    log_key: str
    epoch: str
    opening: bytes
    opened_at: int
    size: int
    position: int
    trouble: str


class StoredCheckpoint(NamedTuple):
    """A checkpoint as it was signed; `note` with the signature."""

    size: int
    root: bytes
    note: str
    signed_at: int


def read_tree(conn: Connection, tree_id: int, *, locked: bool = False) -> Tree:
    """Return a tree, whose row must exist; `locked` until the transaction ends."""
    end = for_update(conn) if locked else ""
    return Tree(*fetch(conn, f"SELECT {_COLUMNS} FROM trees WHERE id = ?{end}", (tree_id,))[0])


def find_open_tree(conn: Connection, topic_id: int) -> Tree | None:
    """Return the tree in which new records of a topic get leaves; None if they get none."""
    rows = fetch(conn, "SELECT tree FROM topics WHERE id = ? AND tree IS NOT NULL", (topic_id,))
    return read_tree(conn, rows[0][0]) if rows else None


def first_position(opening: bytes) -> int:
    """Return the first position with a leaf in a tree with this opening entry; 1 for an entry that was damaged.

    What prunes and ships trees must continue with a damaged one: the entry is found wrong where it is proven.
    """
    try:
        return read_opening_entry(opening).opening.position
    except HistoryError:
        return 1


def find_unvouched(conn: Connection, tree: Tree) -> str:
    """Return the previous tree's origin if its key did not sign the change of key, else an empty text.

    So the old key was lost: peers that know it refuse the new one until an operator confirms it there. Another key may
    have signed under the name of that tree, as that of an old `history.key` which was put back.
    """
    try:
        opening, note = read_opening_entry(tree.opening)
    except HistoryError:
        return ""
    before = "" if opening.previous is None else str(opening.previous.origin)
    known = find_tree_of(conn, tree.topic_id, before)
    key_id = None if known is None else read_vkey(known.log_key, LOG_KEY).id
    signed = any(one.name == before and key_id in (None, one.key_id) for one in note.signatures)
    return "" if signed or opening.reason is not OpeningReason.KEY else before


def read_checkpoint_of(conn: Connection, tree_id: int) -> StoredCheckpoint | None:
    """Return the last checkpoint of a tree; None before the first."""
    sql = "SELECT size, root, note, signed_at FROM checkpoints WHERE tree = ? ORDER BY size DESC LIMIT 1"
    rows = fetch(conn, sql, (tree_id,))
    return _stored(rows[0]) if rows else None


def read_signed_size(conn: Connection, tree: Tree) -> int:
    """Return the size of the last checkpoint of a tree; 0 before the first.

    Of a tree of another node, more leaves may be kept: those of a checkpoint that its tiles do not reach yet.
    """
    last = read_checkpoint_of(conn, tree.id)
    return 0 if last is None else last.size


def read_trees(conn: Connection, topic_id: int) -> list[Tree]:
    """Return the trees of this node for a topic, the newest first."""
    sql = f"SELECT {_COLUMNS} FROM trees WHERE topic_id = ? AND epoch <> '' ORDER BY id DESC"
    return [*map(Tree._make, fetch(conn, sql, (topic_id,)))]


def read_relayed_trees(conn: Connection, topic_id: int) -> list[Tree]:
    """Return the trees of other nodes of which tiles are kept for a topic, the last opened one first."""
    sql = f"SELECT {_COLUMNS} FROM trees WHERE topic_id = ? AND epoch = '' ORDER BY opened_at DESC, id DESC"
    return [*map(Tree._make, fetch(conn, sql, (topic_id,)))]


def find_tree_of(conn: Connection, topic_id: int, origin: str) -> Tree | None:
    """Return the tree with this origin, of this node or of another one; None if none of its tiles are kept."""
    rows = fetch(conn, f"SELECT {_COLUMNS} FROM trees WHERE topic_id = ? AND origin = ?", (topic_id, origin))
    return Tree(*rows[0]) if rows else None


def read_openings_before(conn: Connection, tree: Tree, most: int = MOST_ROTATIONS) -> tuple[bytes, ...]:
    """Return opening entries before that of a tree, oldest first, for a witness that may not know their trees.

    Those with which its node replaced its key come first, the last ones: one that the replaced key did not sign,
    because it was lost, proves nothing. The predecessors of this tree follow, as
    many as fit into `most`.
    """
    trees = read_trees(conn, tree.topic_id) if tree.epoch else read_relayed_trees(conn, tree.topic_id)
    numbers = [one.id for one in trees]
    node, followed = read_origin(tree.origin)[:2], read_previous(tree.opening)
    rotations, others = list[int](), list[int]()
    for index in range(numbers.index(tree.id) + 1, len(trees)):
        try:
            entry = read_opening_entry(trees[index].opening)
        except HistoryError:
            continue  # it was damaged
        if entry.opening.origin[:2] != node:
            continue
        if entry.opening.reason is OpeningReason.KEY and len(entry.note.signatures) > 1:
            rotations.append(index)
        elif str(entry.opening.origin) == followed:
            others.append(index)
        if str(entry.opening.origin) == followed:
            followed = read_previous(trees[index].opening)
    chosen = sorted(rotations[:most] + others[: max(0, most - len(rotations))], reverse=True)
    return tuple(trees[index].opening for index in chosen)


def read_previous(opening: bytes) -> str:
    """Return the origin of the tree that an opening entry names; empty if it names none, or is damaged."""
    try:
        before = read_opening_entry(opening).opening.previous
    except HistoryError:
        return ""
    return str(before.origin) if before else ""


def read_tree_ids(conn: Connection, numbers: Collection[int]) -> dict[int, str]:
    """Return the ids of trees by their numbers in the database."""
    found = fetch_in(conn, "SELECT id, origin FROM trees WHERE id {in}", (), list(numbers))
    return {number: read_origin(origin).tree for number, origin in found}


def read_checkpoint_at(conn: Connection, tree_id: int, size: int) -> StoredCheckpoint | None:
    """Return the checkpoint of a tree at exactly this size; None if none is stored."""
    sql = "SELECT size, root, note, signed_at FROM checkpoints WHERE tree = ? AND size = ?"
    rows = fetch(conn, sql, (tree_id, size))
    return _stored(rows[0]) if rows else None


def read_checkpoints(conn: Connection, tree_id: int, *, above: int, most: int) -> list[StoredCheckpoint]:
    """Return up to `most` checkpoints of a tree with a larger size than `above`, the newest first."""
    sql = "SELECT size, root, note, signed_at FROM checkpoints WHERE tree = ? AND size > ? ORDER BY size DESC LIMIT ?"
    return [*map(_stored, fetch(conn, sql, (tree_id, above, most)))]


def _stored(row: Sequence[Any]) -> StoredCheckpoint:
    size, root, note, signed_at = row
    return StoredCheckpoint(size, bytes(root), note, signed_at)


def read_next_leaf(conn: Connection, topic_id: int) -> int:
    """Return the index of the next leaf of a topic's open tree: the leaves that it has, sealed or not."""
    ((leaf,),) = fetch(conn, "SELECT next_leaf FROM topics WHERE id = ?", (topic_id,))
    return int(leaf)


def read_last_signed(conn: Connection, topic_id: int) -> Iterator[tuple[Tree, StoredCheckpoint]]:
    """Yield the trees of a topic of which a checkpoint was signed, with the last one, the newest tree first."""
    for tree in read_trees(conn, topic_id):
        signed = read_checkpoint_of(conn, tree.id)
        if signed is not None:
            yield tree, signed


def read_surplus_checkpoints(conn: Connection, now: int, most: int) -> list[tuple[int, int]]:
    """Return the trees and sizes of old checkpoints but the last of each minute or hour, at most `most`.

    All of a day are kept, then one a minute for a week, then one an hour. The last one of a tree always stays. They are
    read apart from their deletion, because looking through all checkpoints takes longer than a writer may wait.
    """
    found = _surplus(conn, now - 7 * DAY, now - DAY, MINUTE, most)
    return found or _surplus(conn, 0, now - 7 * DAY, HOUR, most)


def _surplus(conn: Connection, since: int, before: int, step: int, most: int) -> list[tuple[int, int]]:
    later = "SELECT min(size) FROM checkpoints AS n WHERE n.tree = c.tree AND n.size > c.size"
    sql = (
        f"SELECT c.tree, c.size FROM checkpoints AS c JOIN checkpoints AS later ON later.tree = c.tree"
        f" AND later.size = ({later}) WHERE c.signed_at >= ? AND c.signed_at < ?"
        f" AND later.signed_at / {step} = c.signed_at / {step} LIMIT ?"
    )
    return fetch(conn, sql, (since, before, most))


def delete_checkpoints(conn: Connection, checkpoints: Sequence[tuple[int, int]]) -> int:
    """Delete checkpoints by tree and size; return how many there were."""
    return execute_many(conn, "DELETE FROM checkpoints WHERE tree = ? AND size = ?", checkpoints)


def tile_reader(conn: Connection, tree_id: int) -> TileReader:
    """Return what reads the tiles of a tree in this transaction. It raises MalformedHistory for one that is missing."""

    def read(address: TileAddress) -> bytes:
        sql = "SELECT hashes FROM tiles WHERE tree = ? AND level = ? AND number = ?"
        rows = fetch(conn, sql, (tree_id, address.level, address.number))
        if not rows:
            raise MalformedHistory(f"{address.path()} is not stored", reason="tile_missing")
        return bytes(rows[0][0])

    return read


def read_tiles(conn: Connection, tree_id: int, level: int, first: int, count: int) -> list[tuple[int, bytes]]:
    """Return the stored ones of `count` tiles of a level that follow each other, with their numbers, in order."""
    sql = "SELECT number, hashes FROM tiles WHERE tree = ? AND level = ? AND number >= ? AND number < ? ORDER BY number"
    return [(number, bytes(hashes)) for number, hashes in fetch(conn, sql, (tree_id, level, first, first + count))]


def tile_bytes(conn: Connection, tree: Tree) -> int:
    """Return the bytes of the hashes of a tree's tiles, without reading them.

    Of level 0, the first tile is kept, and the oldest ones after it are pruned.
    """
    sql = "SELECT min(number) FROM tiles WHERE tree = ? AND level = 0 AND number > 0"
    ((lowest,),) = fetch(conn, sql, (tree.id,))
    hashes = sum(tree.size >> level * TILE_HEIGHT for level in range(1, MAX_LEVEL + 1))
    pruned = 0 if lowest is None else (lowest - 1) * TILE_WIDTH
    return (tree.size - pruned + hashes) * HASH_SIZE


def all_tile_bytes(conn: Connection, topic_id: int) -> int:
    """Return the bytes of the hashes of all trees of a topic, also of those of other nodes."""
    trees = [*read_trees(conn, topic_id), *read_relayed_trees(conn, topic_id)]
    return sum(tile_bytes(conn, tree) for tree in trees)


def find_hash(conn: Connection, tree_id: int, leaf: bytes, *, after: int = 0) -> int | None:
    """Return an index at which the tiles of a tree have the hash of this leaf; None if none does.

    It looks through all tiles of level 0 that have leaves after the first `after`.
    """
    at, first = find_bytes(conn, "hashes"), after // TILE_WIDTH
    tiles = "tree = ? AND level = 0 AND number >= ?"
    sql = f"SELECT number, {at} FROM tiles WHERE {tiles} AND {at} > 0 ORDER BY number DESC"
    for number, offset in fetch(conn, sql, (leaf, tree_id, first, leaf)):
        if (offset - 1) % HASH_SIZE == 0:  # other ones begin within a hash
            return int(number * TILE_WIDTH + (offset - 1) // HASH_SIZE)
    return None


def has_all_tiles(conn: Connection, tree: Tree) -> bool:
    """Return whether no tile of level 0 of a tree was pruned."""
    ((count,),) = fetch(conn, "SELECT count(*) FROM tiles WHERE tree = ? AND level = 0", (tree.id,))
    return int(count) == -(-tree.size // TILE_WIDTH)


def write_tiles(conn: Connection, tree_id: int, tiles: Mapping[TileAddress, bytes]) -> None:
    """Store tiles; they replace stored tiles that had fewer entries."""
    execute_many(
        conn,
        "INSERT INTO tiles (tree, level, number, hashes) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (tree, level, number) DO UPDATE SET hashes = excluded.hashes",
        [(tree_id, tile.level, tile.number, hashes) for tile, hashes in tiles.items()],
    )
