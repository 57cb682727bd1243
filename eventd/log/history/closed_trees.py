"""Trees of which no more than their end is known: their last size and root.

Of trees of other nodes, these are the ones that a witness no longer holds, so that none is offered again from its
beginning. Of this node's own, these are the ones of deleted groups: a group that is made again continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from eventd.log.history.trees import read_last_signed
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, execute_many, fetch
from federation.history.checkpoints import read_origin

DELETED_GROUPS: Final = 0
"""Stands for the topic of this node's own trees of deleted groups: no topic has this id."""
MOST_OWN: Final = 16
"""How many trees of one deleted group are kept: those opened last."""
_COLUMNS: Final = "origin, node, log_key, size, root, opened_at"


class ClosedTree(NamedTuple):
    """The end of a tree. `log_key` is its verifier key, `opened_at` the time of its opening."""

    origin: str
    node: str
    log_key: str
    size: int
    root: bytes
    opened_at: int


def keep_closed(conn: Connection, topic_id: int, trees: Sequence[ClosedTree]) -> None:
    """Keep the ends of trees."""
    sql = f"INSERT INTO closed_trees (topic_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    execute_many(conn, sql, [(topic_id, *tree) for tree in trees])


def find_closed(conn: Connection, topic_id: int, origin: str) -> ClosedTree | None:
    """Return the end of a tree; None if the tree was never closed."""
    rows = fetch(conn, f"SELECT {_COLUMNS} FROM closed_trees WHERE topic_id = ? AND origin = ?", (topic_id, origin))
    return _closed(rows[0]) if rows else None


def count_closed(conn: Connection, topic_id: int, node: str) -> int:
    """Return how many trees of a node were closed."""
    sql = "SELECT count(*) FROM closed_trees WHERE topic_id = ? AND node = ?"
    return int(fetch(conn, sql, (topic_id, node))[0][0])


def forget_closed(conn: Connection, topic_id: int, node: str) -> None:
    """Forget the closed trees of a node."""
    execute(conn, "DELETE FROM closed_trees WHERE topic_id = ? AND node = ?", (topic_id, node))


def close_own(conn: Connection, topic_id: int) -> None:
    """Keep the ends of this node's own trees of a group that is being deleted."""
    ends = [
        ClosedTree(tree.origin, read_origin(tree.origin).node, tree.log_key, signed.size, signed.root, tree.opened_at)
        for tree, signed in read_last_signed(conn, topic_id)
    ]
    keep_closed(conn, DELETED_GROUPS, ends)
    for group, node in sorted({read_origin(end.origin)[:2] for end in ends}):
        surplus = read_own_closed(conn, group, node)[MOST_OWN:]
        sql = "DELETE FROM closed_trees WHERE topic_id = ? AND origin = ?"
        execute_many(conn, sql, [(DELETED_GROUPS, end.origin) for end in surplus])


def read_own_closed(conn: Connection, group: str, node: str) -> list[ClosedTree]:
    """Return the ends of this node's own trees of a group that was deleted, the last opened one first."""
    sql = f"SELECT {_COLUMNS} FROM closed_trees WHERE topic_id = ? AND node = ? ORDER BY opened_at DESC, origin"
    found = map(_closed, fetch(conn, sql, (DELETED_GROUPS, node)))
    return [end for end in found if read_origin(end.origin).group == group]


def _closed(row: tuple[str, str, str, int, bytes, int]) -> ClosedTree:
    origin, node, log_key, size, root, opened_at = row
    return ClosedTree(origin, node, log_key, size, bytes(root), opened_at)
