"""Prunes the lowest tiles of trees, which have 34 bytes for each event. All levels above stay for good.

A cut is at a multiple of 65,536 leaves: what lies above it can still be proven, because the hash of each such part is
in a tile of level 2. The first tile of a tree stays, too, for the opening entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from eventd.log.history.trees import DAY, NO_TOPIC, Tree, first_position, read_relayed_trees, read_trees
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from federation.history.merkle import HASH_SIZE
from federation.history.tiles import TILE_WIDTH

KEPT: Final = 30 * DAY
"""How much longer than its events a tile is kept, and how long it is kept for a witness that stands below it."""
CUT: Final = TILE_WIDTH * TILE_WIDTH
STEP_ROWS: Final = 256
"""Maximum number of rows of a dropped tree that are deleted in one step."""
_TILE_BYTES: Final = TILE_WIDTH * HASH_SIZE


class TileLimits(NamedTuple):
    """How many bytes the lowest tiles of a group may have, and for how long its events are kept (None: no limit)."""

    max_bytes: int
    max_age: int | None


class SurplusTiles(NamedTuple):
    """Tiles of level 0 of a tree that are to be deleted: from `first` to before `end`."""

    tree: int
    first: int
    end: int


def find_surplus(conn: Connection, topic_id: int, limits: TileLimits, now: int) -> SurplusTiles | None:
    """Return the oldest tiles of a group that are over a limit, up to one cut (two mebibytes); None if there are none.

    A tile goes when its events are not stored any more and were sealed 30 days and `max_age` ago, or when there are
    too many bytes. In the first 30 days it stays for a witness that stands below it. Trees of other nodes have the same
    limits for themselves, so that what is relayed never costs this node its own proofs.
    """
    for trees in (read_trees(conn, topic_id), read_relayed_trees(conn, topic_id)):
        found = _find_surplus(conn, topic_id, trees[::-1], limits, now)
        if found is not None:
            return found
    return None


def _find_surplus(
    conn: Connection, topic_id: int, trees: Sequence[Tree], limits: TileLimits, now: int
) -> SurplusTiles | None:
    first = {tree.id: _first_tile(conn, tree) for tree in trees}
    over = sum((tree.size // TILE_WIDTH - first[tree.id]) * _TILE_BYTES for tree in trees) - limits.max_bytes
    for tree in trees:
        least = first[tree.id]
        aged = _aged(conn, tree, topic_id, limits, now)
        surplus = -(-over // _TILE_BYTES) + least if over > 0 else 0
        whole = -(-surplus // TILE_WIDTH) * CUT  # rounded up to a cut: else the limit would not be kept
        held = _held_for_witnesses(conn, tree, now - KEPT)
        end = min(max(aged, whole), held, tree.size) // CUT * TILE_WIDTH
        if end > least:
            return SurplusTiles(tree.id, least, min(end, (least // TILE_WIDTH + 1) * TILE_WIDTH))
    return None


def _aged(conn: Connection, tree: Tree, topic_id: int, limits: TileLimits, now: int) -> int:
    """Return the size below which the events of a tree are not stored any more, and were sealed long enough ago.

    Which events of another node are stored is not known: without an age at which they go, their tiles stay.
    """
    if not tree.epoch and limits.max_age is None:
        return 0
    before = _sealed_before(conn, tree, now - KEPT - (limits.max_age or 0))
    return min(before, _first_stored(conn, tree, topic_id))


def delete_tiles(conn: Connection, surplus: SurplusTiles) -> int:
    """Delete tiles that are to go; return how many there were."""
    sql = "DELETE FROM tiles WHERE tree = ? AND level = 0 AND number >= ? AND number < ?"
    return execute(conn, sql, surplus)


def delete_dropped(conn: Connection) -> int:
    """Delete some rows of a tree that was dropped, up to two mebibytes of tiles; return how many: 0 when all are gone.

    The row of the tree is deleted last.
    """
    rows = fetch(conn, "SELECT id FROM trees WHERE topic_id = ? ORDER BY id LIMIT 1", (NO_TOPIC,))
    if not rows:
        return 0
    tree = rows[0][0]
    for table, key in (("tiles", "level, number"), ("checkpoints", "size")):
        some = f"SELECT {key} FROM {table} WHERE tree = ? LIMIT ?"
        sql = f"DELETE FROM {table} WHERE tree = ? AND ({key}) IN ({some})"
        count = execute(conn, sql, (tree, tree, STEP_ROWS))
        if count:
            return count
    return execute(conn, "DELETE FROM trees WHERE id = ?", (tree,))


def _first_tile(conn: Connection, tree: Tree) -> int:
    """Return the number of the oldest tile that may be pruned: the first one is never."""
    sql = "SELECT min(number) FROM tiles WHERE tree = ? AND level = 0 AND number > 0"
    ((number,),) = fetch(conn, sql, (tree.id,))
    return int(number) if number is not None else tree.size // TILE_WIDTH


def _sealed_before(conn: Connection, tree: Tree, time: int) -> int:
    """Return the size that a tree had at a time."""
    sql = "SELECT coalesce(max(size), 0) FROM checkpoints WHERE tree = ? AND signed_at < ?"
    ((size,),) = fetch(conn, sql, (tree.id, time))
    return int(size)


def _first_stored(conn: Connection, tree: Tree, topic_id: int) -> int:
    """Return the index of a tree's first leaf whose event is stored; its size if none is.

    Only blocks between its opening and its last checkpoint are looked at: of a tree that has ended, these are few or
    gone, and the later ones may be all of the log.
    """
    begin = first_position(tree.opening)
    sql = (
        "SELECT leaf FROM blocks WHERE topic_id = ? AND position >= ? AND position <= ? AND own = 1 AND tree = ?"
        " ORDER BY position LIMIT 1"
    )
    rows = fetch(conn, sql, (topic_id, begin, tree.position, tree.id))
    return int(rows[0][0]) if rows else tree.size


def _held_for_witnesses(conn: Connection, tree: Tree, since: int) -> int:
    """Return the smallest size at which a witness stands that has cosigned since a time; that of the tree for none."""
    sql = "SELECT min(size) FROM witnesses WHERE tree = ? AND cosigned_at >= ?"
    ((size,),) = fetch(conn, sql, (tree.id, since))
    return tree.size if size is None else int(size)
