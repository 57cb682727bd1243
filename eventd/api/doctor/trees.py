"""Checks the histories of groups: whether records are sealed in time, and whether the file of the keys is safe."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from eventd.api.doctor.report import Check, CheckStatus
from eventd.api.framework.moments import show_time
from eventd.groups.lookup import read_group_topic
from eventd.log.core.head import read_head
from eventd.log.core.scan import scan
from eventd.log.history.trees import (
    Tree,
    find_open_tree,
    find_tree_of,
    find_unvouched,
    read_checkpoint_of,
    read_next_leaf,
    read_trees,
)
from eventd.log.witnesses.cosignatures import read_peers_cosigned
from eventd.log.witnesses.keys import LOG, read_keys
from eventd.log.witnesses.witnessed import read_of
from eventd.resources.group_configuration import GroupConfig
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.text.duration import DAY, format_duration
from eventd.text.plural import counted
from eventd.witnessing.node_keys import KEY_FILE

SEALED_WITHIN: Final = 60 * SECOND
"""How long a record may wait for a checkpoint before the check warns (microseconds)."""
PULLED_WITHIN: Final = 600 * SECOND
"""How long a node that relays may lack tiles before the check warns (microseconds)."""
DAMAGE_SHOWN: Final = 7 * DAY
"""For how long the end of a damaged tree is reported."""
REPLACED_SHOWN: Final = 7 * DAY
"""For how long a replaced key that nothing vouches for is reported where no peer cosigns."""
WITNESS_WITHIN: Final = 7 * DAY
"""How long a peer counts as a witness after it cosigned or refused a checkpoint."""


class TilesBehind(NamedTuple):
    """A tree of another node whose events this one relays: it has the hashes of `kept` of the `witnessed` leaves.

    `since`: when it last had all of them, or else when the tree was opened or first witnessed here.
    """

    origin: str
    kept: int
    witnessed: int
    since: int


@dataclass(frozen=True, slots=True)
class GroupTrees:
    """The trees of a group. `unsealed`: how many leaves are in no checkpoint; `waiting_since`: since when the first is.

    `damaged` is the tree that the present one follows, if it ended because of damage. `behind`: trees of other nodes of
    which tiles are missing. `replaced` is the tree that the present one follows with another key, if the old key has
    not signed that; then `witnesses` says of each peer that cosigned of late, or refused this tree, whether it has.
    `node`: this node.
    """

    group: str
    present: Tree | None
    unsealed: int = 0
    waiting_since: int | None = None
    damaged: Tree | None = None
    behind: Sequence[TilesBehind] = ()
    replaced: str = ""
    witnesses: Mapping[str, bool] = field(default_factory=dict)
    node: str = ""


def read_group_trees(conn: Connection, groups: Sequence[GroupConfig], now: int) -> list[GroupTrees]:
    """Return the trees of the groups that keep a history."""
    return [_read(conn, group, now) for group in groups if group.keeps_history]


def _read(conn: Connection, config: GroupConfig, now: int) -> GroupTrees:
    group = config.name
    topic = read_group_topic(conn, group)
    present = find_open_tree(conn, topic.id)
    if present is None:
        return GroupTrees(group, None)
    own = scan(conn, topic.id, present.position, read_head(conn).last, own=True)
    first = next((block.recorded_at for block in own if block.tree == present.id), None)
    before = next((tree for tree in read_trees(conn, topic.id) if tree.id < present.id), None)
    damaged = before if before is not None and before.trouble else None
    nodes = [peer.node_name for peer in config.peers.values() if config.relays(peer.node_name)]
    behind = [one for node in nodes for one in _read_behind(conn, topic.id, node)]
    replaced = find_unvouched(conn, present)
    known = read_peers_cosigned(conn, topic.id, present.id, now - WITNESS_WITHIN) if replaced else {}
    declared = config.peer_nodes()
    return GroupTrees(
        group,
        present,
        read_next_leaf(conn, topic.id) - present.size,
        first,
        damaged,
        behind,
        replaced,
        {peer: cosigned for peer, cosigned in known.items() if peer in declared},
        config.node_name,
    )


def _read_behind(conn: Connection, topic_id: int, node: str) -> Iterator[TilesBehind]:
    """Yield the tree that a node opened last, if tiles of it are missing here; the earlier ones grow no more.

    The key of a node is learned when its first tree is witnessed here, and again after a reset: before that, there was
    nothing to pull.
    """
    learned = max(
        (one.learned_at for one in read_keys(conn, topic_id) if (one.node, one.kind) == (node, LOG)), default=0
    )
    for held in read_of(conn, topic_id, node)[:1]:
        tree = find_tree_of(conn, topic_id, held.origin)
        last = None if tree is None else read_checkpoint_of(conn, tree.id)
        kept = 0 if tree is None else tree.size
        if kept < held.size:
            since = max(held.opened_at, learned, 0 if last is None else last.signed_at)
            yield TilesBehind(held.origin, kept, held.size, since)


def check_trees(facts: Sequence[GroupTrees], now: int, *, running: bool) -> Iterator[Check]:
    """Yield a check for each problem. Records wait for a checkpoint as long as no node is `running`."""
    for one in facts:
        name = f"{one.group} history"
        if one.present is None:
            if running:
                detail, remedy = "the group keeps a history, and no tree is open", "see the log of the node"
                yield Check(name, CheckStatus.WARN, "history-not-begun", detail, remedy, group=one.group)
            continue
        waited = 0 if one.waiting_since is None else now - one.waiting_since
        if running and waited > SEALED_WITHIN:
            detail = (
                f"{counted(one.unsealed, 'leaf', 'leaves')} of {one.present.origin} in no checkpoint, the first for"
                f" {format_duration(waited // SECOND * SECOND)}; the last checkpoint has size {one.present.size}"
            )
            remedy = "see the log of the node; after a start, a node waits up to a minute for its peers and the lake"
            yield Check(name, CheckStatus.WARN, "history-unsealed", detail, remedy, group=one.group)
        if running:
            yield from _check_behind(one, now)
        if one.damaged is not None and now - one.present.opened_at < DAMAGE_SHOWN:
            detail = (
                f"{one.damaged.origin} ended at size {one.damaged.size}, at {show_time(one.present.opened_at)}:"
                f" {one.damaged.trouble}"
            )
            remedy = "find out who changed the database, or which disk fails; compare it with a backup"
            yield Check(name, CheckStatus.WARN, "history-damaged", detail, remedy, group=one.group)
        yield from _check_replaced(one, now)


def _check_replaced(facts: GroupTrees, now: int) -> Iterator[Check]:
    """Yield that the key was replaced and nothing vouches for it, until each witness has accepted the new one."""
    tree, refusing = facts.present, [peer for peer, cosigned in facts.witnesses.items() if not cosigned]
    if tree is None or not facts.replaced:
        return
    if not refusing and (facts.witnesses or now - tree.opened_at >= REPLACED_SHOWN):
        return
    waiting = f"; not cosigned since by {', '.join(refusing)}" if refusing else ""
    detail = (
        f"{tree.origin} is signed with another key than {facts.replaced}, and the old key has not signed the change:"
        f" history.key was lost or replaced, or an earlier file was put back{waiting}"
    )
    remedy = (
        "1. if the present history.key is the wrong file, put the right one back; 2. if it is the right one, give the"
        " key, which `routerctl log keys` prints, to the operators of the peers: they pin it in place of the old one,"
        " or, without a pin, run"
        f" `routerctl log witnesses reset {facts.node} --group {facts.group}`"
    )
    name = f"{facts.group} history"
    yield Check(name, CheckStatus.WARN, "history-key-replaced", detail, remedy, group=facts.group)


def _check_behind(facts: GroupTrees, now: int) -> Iterator[Check]:
    for tree in facts.behind:
        if now - tree.since > PULLED_WITHIN:
            detail = (
                f"this node relays events of {tree.origin} and has the hashes of {tree.kept} of its {tree.witnessed}"
                f" witnessed leaves, for {format_duration((now - tree.since) // SECOND * SECOND)}: it cannot prove the"
                " others"
            )
            remedy = (
                "see the log of the node for `history tiles refused` and `history tiles not sent`: a restored peer has"
                " fewer, and one of an earlier release sends none"
            )
            name = f"{facts.group} history"
            yield Check(name, CheckStatus.WARN, "history-tiles-behind", detail, remedy, group=facts.group)


def check_key_file(folder: Path) -> list[Check]:
    """Return a check if the file with the keys of a running node is missing, or if other users may access it."""
    path, name = folder / KEY_FILE, "history keys"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        detail = f"{path}: {error.strerror}"
        remedy = "restore the file from where you keep it; the next start makes another key and opens new trees"
        return [Check(name, CheckStatus.FAIL, "history-key-missing", detail, remedy)]
    if mode & 0o077:
        detail = f"{path} has mode {mode:04o}: other users of this machine may sign in this node's name"
        return [Check(name, CheckStatus.WARN, "history-key-open", detail, f"chmod 600 {path}")]
    return []
