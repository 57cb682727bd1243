"""The trees of a lake, as `routerctl log … --lake` shows them without a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.lake_choice import lake_storage
from eventd.cli.terminal.output import Column, moment, text
from eventd.errors import CheckFailed, Invalid, NotFound
from eventd.text.arguments import as_argument

if TYPE_CHECKING:
    from eventd.lake.shipped_tiles import TreeInLake
    from eventd.lake.shipped_trees import ShippedCheckpoint, ShippedTree

FromLakeOption = Annotated[
    str,
    typer.Option("--lake", metavar="LAKE", help="Read the trees of this lake, a folder or address, without a node."),
]
TREES_OF_LAKE = (
    Column("GROUP", text("group")),
    Column("NODE", text("node")),
    Column("TREE", text("tree")),
    Column("SIZE", text("size")),
    Column("SIGNED", moment("signedAt")),
    Column("SIGNATURES", text("signatures")),
    Column("OPENED", moment("openedAt"), wide=True),
    Column("ORIGIN", text("origin"), wide=True),
)


def trees_of_lake(lake: str, group: str = "") -> list[dict[str, Any]]:
    """Return the trees that nodes have shipped to a lake. Raises EventdError."""
    return [_shown(one) for one in _read(lake, group)]


WITNESSES_OF_LAKE = (
    Column("GROUP", text("group")),
    Column("NODE", text("node")),
    Column("TREE", text("tree")),
    Column("SIZE", text("size")),
    Column("WITNESS", text("witness")),
    Column("HELD", text("held")),
    Column("WITNESSED", moment("witnessedAt")),
    Column("ORIGIN", text("origin"), wide=True),
)


def checkpoint_of_lake(lake: str, group: str, tree: str) -> dict[str, Any]:
    """Return the last checkpoint of a tree as a node shows it. Raises EventdError, and Invalid if several trees fit."""
    last = _choose(lake, group, tree)
    return {**_shown(last), "note": last.note.encode().decode()}


def _choose(lake: str, group: str, tree: str) -> ShippedTree:
    """Return the tree with this id, or the newest one. Raises EventdError, and Invalid if several trees fit."""
    fitting = [one for one in _read(lake, group) if tree in ("", one.origin.tree, str(one.origin))]
    if not fitting:
        raise NotFound(
            f"the lake has no tree {tree or 'of a node'}",
            hint=f"list them: routerctl log status --lake {as_argument(lake, 'LAKE')}",
        )
    if len({one.origin[:2] for one in fitting}) > 1:
        raise Invalid(
            f"the lake has trees of {len(fitting)} groups and nodes",
            hint="name the tree with --tree: routerctl log status",
        )
    return fitting[-1]


def open_in_lake(lake: str, group: str, tree: str) -> TreeInLake:
    """Return the tree with this id, or the newest one, with its tiles. Raises EventdError."""
    from eventd.lake.shipped_tiles import open_tree_of_lake

    return open_tree_of_lake(lake_storage(lake), _choose(lake, group, tree).origin)


def consistency_of_lake(lake: str, group: str, tree: str, old: int, new: int | None) -> dict[str, Any]:
    """Return the consistency proof between two sizes of a tree as a node shows it. Raises EventdError."""
    from federation.errors import HistoryError
    from federation.history.forms import write_base64
    from federation.history.tiles import consistency_proof, root_of

    found = open_in_lake(lake, group, tree)
    signed = {one.stated.size: one for one in found.checkpoints}
    last = max(signed, default=0) if new is None else new
    if last not in signed:
        of = f"size {last}" if new else "any size"
        raise NotFound(
            f"the lake has no checkpoint of {of} of {found.origin} that its key signed",
            hint=f"the sizes that it has: {', '.join(map(str, sorted(signed)[-10:])) or 'none'}",
        )
    if not 0 < old <= last:
        raise Invalid(f"there is no consistency proof from size {old} to size {last} of {found.origin}")
    try:
        old_root = signed[old].stated.root if old in signed else root_of(old, found.read)
        proof = consistency_proof(old, last, found.read)
    except HistoryError as error:
        raise CheckFailed(
            f"the sizes {old} and {last} of {found.origin} cannot be connected from the lake: {error.message}",
            hint="audit the lake: routerctl audit run names what was removed or changed",
        ) from None
    return {
        "origin": str(found.origin),
        "key": found.key,
        "old": old,
        "oldRoot": write_base64(old_root),
        "new": last,
        "newRoot": write_base64(signed[last].stated.root),
        "proof": [write_base64(one) for one in proof],
        "checkpoints": [_show_checkpoint(signed[size]) for size in dict.fromkeys((old, last)) if size in signed],
    }


def _show_checkpoint(one: ShippedCheckpoint) -> dict[str, Any]:
    from federation.event import format_time
    from federation.history.forms import write_base64

    note, root = one.note.encode().decode(), write_base64(one.stated.root)
    return {"size": one.stated.size, "root": root, "note": note, "signedAt": format_time(one.at)}


def witnesses_of_lake(lake: str, group: str) -> list[dict[str, Any]]:
    """Return which nodes of a lake have witnessed which trees, and how far. Raises EventdError."""
    from eventd.lake.shipped_tiles import read_witnessed_trees
    from federation.event import format_time

    sizes = {one.origin: one.checkpoint.size for one in _read(lake, group)}
    return [
        {
            "group": one.stated.origin.group,
            "node": one.stated.origin.node,
            "tree": one.stated.origin.tree,
            "origin": str(one.stated.origin),
            "size": sizes.get(one.stated.origin),
            "witness": one.witness,
            "held": one.stated.size,
            "witnessedAt": format_time(one.witnessed_at),
        }
        for one in read_witnessed_trees(lake_storage(lake), group)
    ]


def keys_of_lake(lake: str, group: str) -> dict[str, Any]:
    """Return the keys that the openings of trees name, and a policy file that has them all. Raises EventdError."""
    trees = trees_of_lake(lake, group)
    policy = "".join([*(f"log {one['key']}\n" for one in trees), "quorum none\n"])
    return {"group": group, "witness": None, "trees": trees, "policy": policy}


def _read(lake: str, group: str) -> list[ShippedTree]:
    from eventd.lake.shipped_trees import read_shipped_trees

    return read_shipped_trees(lake_storage(lake), group)


def _shown(one: ShippedTree) -> dict[str, Any]:
    from federation.event import LAST_TIME, format_time
    from federation.history.forms import write_base64

    return {
        "group": one.origin.group,
        "node": one.origin.node,
        "tree": one.origin.tree,
        "origin": str(one.origin),
        "key": one.key,
        "openedAt": format_time(min(one.opened_at, LAST_TIME)),
        "size": one.checkpoint.size,
        "root": write_base64(one.checkpoint.root),
        "signedAt": format_time(one.signed_at),
        "signatures": len(one.note.signatures),
    }
