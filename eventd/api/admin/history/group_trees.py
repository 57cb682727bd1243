"""The trees of groups: which there are, how far each is sealed, and the keys that verify them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from eventd.api.admin.history.key_folder import key_folder
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.errors import Invalid, NotFound
from eventd.groups.lookup import find_group, read_group_topic
from eventd.log.history.proving import NotProven
from eventd.log.history.trees import (
    Tree,
    find_open_tree,
    read_checkpoint_of,
    read_next_leaf,
    read_relayed_trees,
    read_trees,
    tile_bytes,
)
from eventd.log.witnesses.keys import read_witness_keys
from eventd.log.witnesses.waiting import count_waiting
from eventd.log.witnesses.witnessed import read_witnessed
from eventd.resources.group_configuration import GroupConfig
from eventd.resources.kinds.registry import EVENT_GROUP
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from eventd.witnessing.node_keys import read_witness_key
from federation.errors import HistoryError
from federation.history.checkpoints import read_origin
from federation.history.entries import read_opening_entry
from federation.history.forms import write_base64
from federation.history.notes import WITNESS_KEY, NoteKey
from federation.history.policy import NO_QUORUM
from federation.history.witnessing import KnownKey, witness_name


class ShowHistories(Params):
    """Which groups to show: one, or all that the caller's key may access."""

    narrows = True

    group: str = Field(default="", description="Only this group.")


async def show_status(services: Services, params: ShowHistories) -> dict[str, Any]:
    """Return for each group its trees, the newest first, with the size that is in a checkpoint, and those it relays."""
    return {"groups": await services.database.read(_read_status, services, params.group)}


def _read_status(conn: Connection, services: Services, only: str) -> list[dict[str, Any]]:
    names = [only] if only else [row.name for row in read_resources(conn, EVENT_GROUP.name) if services.sees(row.name)]
    return [_show_group(conn, find_group(conn, name)) for name in names]


def _show_group(conn: Connection, group: GroupConfig) -> dict[str, Any]:
    topic = read_group_topic(conn, group.name)
    present = find_open_tree(conn, topic.id)
    trees = read_trees(conn, topic.id)
    waiting = count_waiting(conn, topic.id) if group.verifies_history else None
    return {
        "group": group.name,
        "node": group.node_name,
        "mode": group.history_mode,
        "trees": [_show_tree(conn, tree, present) for tree in trees],
        "relayed": [_show_tree(conn, tree, present) for tree in read_relayed_trees(conn, topic.id)],
        "waiting": None if waiting is None else waiting.events,
        "waitingIsExact": waiting is None or waiting.in_full,
    }


def _show_tree(conn: Connection, tree: Tree, present: Tree | None) -> dict[str, Any]:
    last = read_checkpoint_of(conn, tree.id)
    is_open = present is not None and present.id == tree.id
    reason, damage = _read_reason(tree)
    unproven = not tree.epoch and bool(tree.trouble)  # of another node's tree, `trouble` says nothing else
    return {
        "origin": tree.origin,
        "tree": read_origin(tree.origin).tree,
        "open": is_open,
        "reason": reason,
        "openedAt": show_time(tree.opened_at),
        "size": tree.size,
        "unsealed": max(0, read_next_leaf(conn, tree.topic_id) - tree.size) if is_open else 0,
        "root": None if last is None else write_base64(last.root),
        "signedAt": None if last is None else show_time(last.signed_at),
        "signatures": 0 if last is None else last.note.count("\n— "),
        "tileBytes": tile_bytes(conn, tree),
        "damage": damage if unproven else tree.trouble or damage,
        "unproven": unproven,
    }


def _read_reason(tree: Tree) -> tuple[str, str]:
    """Return why a tree was opened, and what is wrong with its opening entry; of the two, the unknown one is empty."""
    try:
        return read_opening_entry(tree.opening).opening.reason.value, ""
    except HistoryError as error:
        return "", f"its opening entry is not the one that was signed: {error.message}"


class ShowKeys(Params):
    """The group whose keys are shown."""

    group: str


async def show_keys(services: Services, params: ShowKeys) -> dict[str, Any]:
    """Return the verifier key of each tree of a group, the newest first, and a file that pins them all.

    The file also has the keys with which peers cosign, and requires none of them: what it requires is the verifier's
    decision.
    """
    trees, group, witnesses = await services.database.read(_read_keys, params.group)
    folder = key_folder(services)
    cosigns = None if folder is None else await asyncio.to_thread(read_witness_key, folder, group.name, group.node_name)
    return {
        "group": params.group,
        "witness": cosigns,
        "trees": [
            {"origin": tree.origin, "key": tree.log_key, "openedAt": show_time(tree.opened_at), "size": tree.size}
            for tree in trees
        ],
        "policy": "".join([*(f"log {tree.log_key}\n" for tree in trees), *witnesses, "quorum none\n"]),
    }


def _read_keys(conn: Connection, group: str) -> tuple[list[Tree], GroupConfig, list[str]]:
    trees, config = _read_all(conn, group), find_group(conn, group)
    known = read_witness_keys(conn, read_group_topic(conn, group).id, config.history_pins)
    return trees, config, _witness_lines(group, known)


def _witness_lines(group: str, known: Mapping[str, KnownKey]) -> list[str]:
    """Return the lines of a policy file for witnesses. A node whose key another one has, too, is left out: a policy
    with it would be refused."""
    lines, seen = [], set[bytes]()
    for node, key in known.items():
        vkey = NoteKey(witness_name(group, node), WITNESS_KEY, key.public)
        if key.public not in seen:
            name = node if node != NO_QUORUM else vkey.name
            lines.append(f"# {node}: {key.source.value}\nwitness {name} {vkey.text()}\n")
        seen.add(key.public)
    return lines


def _read_all(conn: Connection, group: str) -> list[Tree]:
    find_group(conn, group)
    return read_trees(conn, read_group_topic(conn, group).id)


def _find_named(conn: Connection, group: str, name: str, own: list[Tree]) -> Tree:
    """Return a tree by its id or its origin: one of this node, or else of another.

    Raises NotFound, which says of which node the tree is, where that is known, and Invalid for an id that several nodes
    gave to a tree: each chooses its own.
    """
    for tree in own:
        if _is_named(tree.origin, name):
            return tree
    topic_id = read_group_topic(conn, group).id
    relayed = [tree for tree in read_relayed_trees(conn, topic_id) if _is_named(tree.origin, name)]
    if len(relayed) > 1:
        raise Invalid(
            f"{len(relayed)} trees of other nodes have the id {name}",
            hint=f"name one of them: {', '.join(tree.origin for tree in relayed)}",
        )
    if relayed:
        return relayed[0]
    for held in read_witnessed(conn, topic_id):
        if _is_named(held.origin, name):
            raise NotFound(
                f"group {group} has no hashes of the tree {name}: it is a tree of {held.node}, of which this node"
                f" holds only a checkpoint, of size {held.size}",
                hint=f"routerctl log witnesses -o json has it in held[].note; or ask {held.node} itself",
            )
    raise NotFound(f"group {group} has no tree {name[:80]}", hint="list them: routerctl log status")


def _is_named(origin: str, name: str) -> bool:
    return name in (origin, read_origin(origin).tree)


def find_tree(conn: Connection, group: str, name: str = "") -> Tree:
    """Return a tree of a group by its id or origin, also a relayed one.

    By default the own one that grows, or else the newest. Raises NotFound for an unknown one, Invalid for an
    id of several relayed ones, and NotProven if the group never kept a history.
    """
    trees = _read_all(conn, group)
    if name:
        return _find_named(conn, group, name, trees)
    if not trees:
        raise NotProven(
            f"group {group} has no tree: it keeps no history at this node",
            "no_history",
            hint="set history.mode: record in the EventGroup",
        )
    return find_open_tree(conn, trees[0].topic_id) or trees[0]
