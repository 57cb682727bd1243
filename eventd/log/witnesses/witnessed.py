"""Trees of other nodes that this node witnesses: what it holds of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventd.log.history.closed_trees import forget_closed
from eventd.log.history.relayed import read_held_origins
from eventd.log.history.trees import Tree, read_relayed_trees
from eventd.log.witnesses.findings import FindingKind, NewFinding, keep_finding
from eventd.log.witnesses.offers import OF_FILES, WitnessedTree
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, for_update
from eventd.text.plural import counted
from federation.history.lake_witnessing import is_of_files

_COLUMNS: Final = "origin, node, log_key, size, root, note, opened_at, witnessed_at"
_OF_GROUP: Final = f"NOT {OF_FILES}"
"""The condition for rows of trees of a group: those of files of a lake are beside them, see `witnessed_files`."""


def find_witnessed(conn: Connection, topic_id: int, origin: str, *, locked: bool = False) -> WitnessedTree | None:
    """Return what is held of a tree of another node; `locked` until the transaction ends."""
    end = for_update(conn) if locked else ""
    sql = f"SELECT {_COLUMNS} FROM witnessed WHERE topic_id = ? AND origin = ?{end}"
    rows = fetch(conn, sql, (topic_id, origin))
    return _tree(rows[0]) if rows else None


def read_last_of(conn: Connection, topic_id: int, node: str) -> WitnessedTree | None:
    """Return the tree of a node that was opened last, of those that are held."""
    found = read_of(conn, topic_id, node)
    return found[0] if found else None


def read_of(conn: Connection, topic_id: int, node: str) -> list[WitnessedTree]:
    """Return what is held of the trees of a node, the last opened one first."""
    sql = f"SELECT {_COLUMNS} FROM witnessed WHERE topic_id = ? AND node = ? AND {_OF_GROUP}"
    return [_tree(row) for row in fetch(conn, f"{sql} ORDER BY opened_at DESC, origin", (topic_id, node))]


def read_witnessed(conn: Connection, topic_id: int) -> list[WitnessedTree]:
    """Return what is held of the trees of other nodes, by node and origin."""
    sql = f"SELECT {_COLUMNS} FROM witnessed WHERE topic_id = ? AND {_OF_GROUP} ORDER BY node, origin"
    return [_tree(row) for row in fetch(conn, sql, (topic_id,))]


def read_witnessed_files(conn: Connection, topic_id: int) -> list[WitnessedTree]:
    """Return what is held of the trees of files that other nodes have written to lakes, by node and origin."""
    sql = f"SELECT {_COLUMNS} FROM witnessed WHERE topic_id = ? AND {OF_FILES} ORDER BY node, origin"
    return [_tree(row) for row in fetch(conn, sql, (topic_id,))]


def read_oldest_first(conn: Connection, topic_id: int) -> Iterator[WitnessedTree]:
    """Yield what is held of all trees, also of those of files, from the one that was witnessed longest ago on."""
    sql = f"SELECT {_COLUMNS} FROM witnessed WHERE topic_id = ? ORDER BY witnessed_at, origin"
    return map(_tree, fetch(conn, sql, (topic_id,)))


def read_nodes(conn: Connection, topic_id: int) -> set[str]:
    """Return the nodes of whose histories anything is known here: trees, keys, findings, or what they hold."""
    tables = "witnessed", "closed_trees", "history_keys", "history_findings"
    parts = [f"SELECT node FROM {table} WHERE topic_id = ?" for table in tables]
    parts.append("SELECT w.peer FROM witnesses AS w JOIN trees AS t ON t.id = w.tree WHERE t.topic_id = ?")
    return {node for (node,) in fetch(conn, " UNION ".join(parts), (topic_id,) * len(parts))}


def read_believed_trees(conn: Connection, topic_id: int) -> list[Tree]:
    """Return the trees whose tiles are kept and that are witnessed, or were until their node left them.

    After a reset, kept tiles still prove to others what is in them, but they are not used here: their key may have
    been that of an impostor. So it is until it is proven that they are part of what is witnessed again.
    """
    held = read_held_origins(conn, topic_id)
    return [tree for tree in read_relayed_trees(conn, topic_id) if tree.origin in held and not tree.trouble]


def read_news(conn: Connection, topic_id: int, since: int, but: str, limit: int) -> list[WitnessedTree]:
    """Return trees that were witnessed after this time, the newest first, without those of one node."""
    sql = (
        f"SELECT {_COLUMNS} FROM witnessed WHERE topic_id = ? AND witnessed_at > ? AND node <> ? AND {_OF_GROUP}"
        f" ORDER BY witnessed_at DESC, origin LIMIT {int(limit)}"
    )
    return [_tree(row) for row in fetch(conn, sql, (topic_id, since, but))]


def _tree(row: tuple[str, str, str, int, bytes, str, int, int]) -> WitnessedTree:
    origin, node, log_key, size, root, note, opened_at, witnessed_at = row
    return WitnessedTree(origin, node, log_key, size, bytes(root), note, opened_at, witnessed_at)


def forget_trees(conn: Connection, topic_id: int, node: str, now: int) -> int:
    """Forget what is held of the trees of a node, also of its files, and record that; return of how many.

    Their tiles stay, so that what the node has admitted can be proven as before.
    """
    sql = f"SELECT {_COLUMNS} FROM witnessed WHERE topic_id = ? AND node = ? ORDER BY opened_at DESC, origin"
    trees = [_tree(row) for row in fetch(conn, sql, (topic_id, node))]
    for tree in trees:
        held = counted(tree.size, "line") if is_of_files(tree.origin) else counted(tree.size, "leaf", "leaves")
        detail = f"an operator reset it: {held} {'was' if tree.size == 1 else 'were'} held"
        found = NewFinding(tree.origin, node, FindingKind.RESET, tree.size, 0, tree.note, f"reset {now}", detail)
        keep_finding(conn, topic_id, found, now)
    execute(conn, "DELETE FROM witnessed WHERE topic_id = ? AND node = ?", (topic_id, node))
    forget_closed(conn, topic_id, node)
    return len(trees)
