"""The trees of a lake, as `routerctl log … --lake` shows them without a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.lake_choice import lake_storage
from eventd.cli.terminal.output import Column, moment, text
from eventd.errors import Invalid, NotFound

if TYPE_CHECKING:
    from eventd.lake.shipped_trees import ShippedTree

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


def checkpoint_of_lake(lake: str, group: str, tree: str) -> dict[str, Any]:
    """Return the last checkpoint of a tree as a node shows it. Raises EventdError, and Invalid if several trees fit."""
    fitting = [one for one in _read(lake, group) if tree in ("", one.origin.tree)]
    if not fitting:
        raise NotFound(
            f"the lake has no tree {tree or 'of a node'}", hint=f"list them: routerctl log status --lake {lake}"
        )
    if len({one.origin[:2] for one in fitting}) > 1:
        raise Invalid(
            f"the lake has trees of {len(fitting)} groups and nodes",
            hint="name the tree with --tree: routerctl log status",
        )
    last = fitting[-1]
    return {**_shown(last), "note": last.note.encode().decode()}


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
