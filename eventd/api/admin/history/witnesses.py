"""Witnesses of a group's trees, what is held of the trees of others, and findings about all of them."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import Field

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import cut_page
from eventd.errors import NotFound
from eventd.groups.lookup import find_group, read_group_topic
from eventd.log.history.trees import find_open_tree, read_checkpoint_of
from eventd.log.witnesses.cosignatures import Witness, read_witness_ages, read_witnesses, reset_witness
from eventd.log.witnesses.findings import (
    FindingKind,
    HistoryFinding,
    confirm_findings,
    count_open,
    find_finding,
    read_findings,
)
from eventd.log.witnesses.keys import StoredKey, forget_keys, read_known_keys, show_key
from eventd.log.witnesses.offers import WitnessedTree
from eventd.log.witnesses.witnessed import forget_trees, read_nodes, read_witnessed, read_witnessed_files
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.text.did_you_mean import did_you_mean
from eventd.text.quoting import shortened
from federation.errors import HistoryError
from federation.history.checkpoints import read_checkpoint
from federation.history.fork_file import ForkFile
from federation.history.forms import write_base64
from federation.history.notes import read_note
from federation.ranges import MAX_POSITION

MOST_FINDINGS: Final = 100
"""How many findings are shown with the witnesses: the newest."""
MOST_NAMED: Final = 20
"""How many nodes a message names."""


class ShowWitnesses(Params):
    """The group whose witnesses to show."""

    group: str


async def show_witnesses(services: Services, params: ShowWitnesses) -> dict[str, Any]:
    """Return who cosigns the open tree, what is held of other nodes, their keys, and findings."""
    return await services.database.read(_read_all, params.group, services.clock.now())


def _read_all(conn: Connection, name: str, now: int) -> dict[str, Any]:
    group = find_group(conn, name)
    topic = read_group_topic(conn, group.name)
    tree = find_open_tree(conn, topic.id)
    last = None if tree is None else read_checkpoint_of(conn, tree.id)
    ages = read_witness_ages(conn, topic.id, now)
    witnesses = [] if tree is None else read_witnesses(conn, tree.id)
    return {
        "group": group.name,
        "node": group.node_name,
        "origin": None if tree is None else tree.origin,
        "size": 0 if last is None else last.size,
        "witnesses": [_show_witness(one, ages.get(one.peer, 0)) for one in witnesses],
        "held": [_show_held(one) for one in read_witnessed(conn, topic.id)],
        "files": [_show_held(one) for one in read_witnessed_files(conn, topic.id)],
        "keys": [_show_key(one) for one in read_known_keys(conn, topic.id, group.history_pins)],
        "findings": [_show_finding(one) for one in read_findings(conn, topic.id, limit=MOST_FINDINGS)],
        "open": count_open(conn, topic.id),
    }


def _show_witness(one: Witness, age: int) -> dict[str, Any]:
    return {
        "peer": one.peer,
        "size": one.size,
        "cosignedAt": None if one.cosigned_at is None else show_time(one.cosigned_at),
        "ageSeconds": round(age / SECOND, 3),
        "state": one.state or ("cosigned" if one.cosigned_at is not None else "asked"),
        "detail": one.detail,
    }


def _show_held(one: WitnessedTree) -> dict[str, Any]:
    return {
        "node": one.node,
        "origin": one.origin,
        "key": one.log_key,
        "size": one.size,
        "root": write_base64(one.root),
        "note": one.note,
        "openedAt": show_time(one.opened_at),
        "witnessedAt": show_time(one.witnessed_at),
    }


def _show_key(one: StoredKey) -> dict[str, Any]:
    return {
        "node": one.node,
        "kind": one.kind,
        "key": show_key(one.kind, one.key),
        "source": one.source,
        "learnedAt": show_time(one.learned_at),
        "refused": None if one.refused is None else show_key(one.kind, one.refused),
        "refusedAt": None if one.refused_at is None else show_time(one.refused_at),
    }


def _show_finding(one: HistoryFinding) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "node": one.node,
        "origin": one.origin,
        "size": one.size,
        "otherSize": one.other_size,
        "detail": one.detail,
        "foundAt": show_time(one.found_at),
        "confirmedAt": None if one.confirmed_at is None else show_time(one.confirmed_at),
    }


class ListFindings(Params):
    """Which findings to list; the newest come first."""

    group: str
    after: int = Field(default=0, ge=0, le=MAX_POSITION, description="Continue after the finding with this id.")
    limit: int = Field(default=50, ge=1, le=200, description="Maximum number of entries of the page.")


async def list_findings(services: Services, params: ListFindings) -> dict[str, Any]:
    """Return a page of the findings of a group."""
    return await services.database.read(_list_findings, params)


def _list_findings(conn: Connection, params: ListFindings) -> dict[str, Any]:
    topic = read_group_topic(conn, find_group(conn, params.group).name)
    found = read_findings(conn, topic.id, before=params.after or None, limit=params.limit + 1)
    shown, following = cut_page(found, params.limit, lambda one: one.id)
    return {"findings": [_show_finding(one) for one in shown], "next": following}


class ShowFinding(Params):
    """A finding of a group."""

    group: str
    id: int = Field(ge=1, description="The id of the finding.")


async def show_finding(services: Services, params: ShowFinding) -> dict[str, Any]:
    """Return a finding with its two notes, and for a fork the file that shows it to others."""
    return await services.database.read(_read_finding, params)


def _read_finding(conn: Connection, params: ShowFinding) -> dict[str, Any]:
    topic = read_group_topic(conn, find_group(conn, params.group).name)
    found = find_finding(conn, topic.id, params.id)
    if found is None:
        raise NotFound(f"group {params.group} has no finding {params.id}", hint="list them: routerctl log findings")
    file = _fork_file(found)
    return {
        **_show_finding(found),
        "note": found.note,
        "otherNote": found.other_note,
        "file": None if file is None else json.loads(file.encode()),
    }


def _fork_file(found: HistoryFinding) -> ForkFile | None:
    """Return the file that shows a fork to others; None without two checkpoints of one size, which alone show it.

    A node also forks with a wrong proof between two sizes, or with an opening entry that names another root.
    """
    if found.kind != FindingKind.FORK or found.size != found.other_size:
        return None
    try:
        notes = read_note(found.note.encode()), read_note(found.other_note.encode())
        for note in notes:
            read_checkpoint(note.text)
    except HistoryError:
        return None
    return ForkFile(notes)


class ResetWitness(Params):
    """The node to reset."""

    group: str
    node: str = Field(description="The node name of the peer.")


async def reset(services: Services, params: ResetWitness) -> dict[str, Any]:
    """Confirm the findings about a node, and forget what is known of it: its trees, its keys, and what it holds."""
    return await services.database.write(_reset, params, services.clock.now())


def _reset(conn: Connection, params: ResetWitness, now: int) -> dict[str, Any]:
    group = find_group(conn, params.group)
    topic = read_group_topic(conn, group.name)
    _require_known(params, group.peer_nodes() | read_nodes(conn, topic.id))
    findings = confirm_findings(conn, topic.id, params.node, now)
    return {
        "group": params.group,
        "node": params.node,
        "findings": findings,
        "trees": forget_trees(conn, topic.id, params.node, now),
        "keys": forget_keys(conn, topic.id, params.node),
        "pinned": any(node == params.node for node, _ in group.history_pins),
        "witness": reset_witness(conn, topic.id, params.node),
    }


def _require_known(params: ResetWitness, known: set[str]) -> None:
    if params.node not in known:
        node, names = shortened(params.node), sorted(known)
        hint = did_you_mean(node, names) or f"known: {', '.join(names[:MOST_NAMED]) or 'none'}"
        raise NotFound(f"nothing is known of the history of {node} in group {params.group}", hint=hint)
