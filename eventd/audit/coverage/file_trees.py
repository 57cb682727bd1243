"""The trees of the files that nodes have written to the lake: which manifests and states are not what they signed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from eventd.audit.coverage.cosigned_files import fault_of_cosigned, read_cosigned
from eventd.audit.coverage.file_tree_findings import (
    NOT_SIGNED,
    RESTORE,
    FileTreeFindings,
    SeenFileTree,
)
from eventd.audit.coverage.signed_segments import doubt_removed, judge_removed, judge_segments
from eventd.audit.coverage.tree_lines import TreeLines, roots_at
from eventd.audit.report.findings import MOST_NAMED
from eventd.audit.segments.plan import NodeEpoch
from eventd.lake.file_tree import (
    TREES,
    checkpoint_of,
    digest_of_state,
    key_of,
    lines_folder,
    read_lines,
)
from eventd.lake.layout import slug, state_path
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from eventd.runtime.clock import SECOND
from federation.errors import HistoryError
from federation.event import format_time
from federation.history.lake_checkpoints import LakeCheckpoint
from federation.history.notes import NoteKey

_REPLACED_WITHIN: Final = 3600 * SECOND
"""How long after the change of a key (microseconds) a state may still be signed with the old one."""


class FileKeys(NamedTuple):
    """What is known of the keys of nodes. `policy`: the keys that the auditor knows; None without a policy.

    `named`: by node, the public keys of its trees that the policy has, or whose succession a known key has signed.
    `replaced`: by node, the keys that have signed their succession, and when (microseconds): they are good for nothing
    later, unless a successor has named them again. `keepers`: the nodes that sign trees of groups, each with the epochs
    in which it did: it had a key in these.
    """

    policy: Sequence[NoteKey] | None = None
    named: Mapping[str, Collection[bytes]] = MappingProxyType({})
    replaced: Mapping[str, Mapping[bytes, int]] = MappingProxyType({})
    keepers: Collection[NodeEpoch] = ()


NOTHING_KNOWN: Final = FileKeys()


def keys_of_node(policy: Sequence[NoteKey], node: str) -> set[bytes]:
    """Return the public keys that a policy has for any tree of a node."""
    return {one.public for one in policy if one.name.split("/")[2:3] == [node]}


def judge_files(
    storage: Storage, survey: Survey, keys: FileKeys = NOTHING_KNOWN, seen: Sequence[SeenFileTree] = ()
) -> FileTreeFindings:
    """Compare the manifests and states of a lake with the trees that their nodes have signed.

    `seen`: the trees that earlier audits have seen. Raises LakeUnavailable.
    """
    made = FileTreeFindings()
    trees: defaultdict[str, set[str]] = defaultdict(set)
    for folder in {one.path.rpartition("/")[0] for one in storage.list(TREES)}:
        trees[folder.rpartition("/")[0]].add(folder)
    made.seen = [*_still_known(survey, seen)]
    for state in survey.nodes:
        folders = trees.get(f"{TREES}/{slug(state.node)}/{state.epoch}", set())
        mine = [one for one in made.seen if (one.node, one.epoch) == (state.node, state.epoch)]
        gone = [*_gone(storage, state, mine)]
        for fault in gone:
            made.fault_in_state(state, state_path(state.node, state.epoch), fault)
        if state.tree is not None:
            _judge(storage, survey, state, keys, made, began_anew=len(folders) > 1 or bool(gone))
        elif folders or NodeEpoch(state.node, state.epoch) in keys.keepers:
            where, message = state_path(state.node, state.epoch), "the state of the node is not signed any more"
            if not folders:
                message = "the state of the node is not signed, although it signs its history"
            hint = "start the node, which signs it; one that is closed needs a state from a copy of the lake"
            made.doubt(state.node, NOT_SIGNED, where, message, hint)
    for state in survey.nodes:
        doubt_removed(state, made)
    wrong = {one.source for one in made.findings} | {one.node for one in survey.nodes if one.tree is None}
    made.signed = {one.node for one in survey.nodes} - wrong - made.doubted
    made.findings = made.findings[:MOST_NAMED]
    return made


def _still_known(survey: Survey, seen: Iterable[SeenFileTree]) -> Iterator[SeenFileTree]:
    """Yield the trees that are still to be compared: not those of an epoch that retention has removed."""
    present = {(one.node, one.epoch) for one in survey.nodes}
    nodes = {node for node, _ in present}
    for one in seen:
        if (one.node, one.epoch) in present or one.node not in nodes:
            yield one


def _gone(storage: Storage, state: NodeState, seen: Iterable[SeenFileTree]) -> Iterator[str]:
    """Yield a fault for each tree of a node that earlier audits have seen, and that it neither continues nor has in the
    lake."""
    present = _tree_of(state)
    for one in (one for one in seen if one.tree != present):
        texts = [*islice(read_lines(storage, lines_folder(*one.origin)), one.size)]
        root = roots_at(texts, {one.size}).get(one.size)
        if root is None or root.hex() != one.root:
            fault = f"the {one.size:,} lines of {one.origin}, which an earlier audit saw ({format_time(one.at)}), are"
            yield f"{fault} {'changed' if texts else 'gone'}"


def _tree_of(state: NodeState) -> str:
    """Return the id of the tree that a state is signed with; empty without a valid signature."""
    try:
        return "" if state.tree is None else checkpoint_of(state.tree).origin.tree
    except HistoryError:
        return ""


def _judge(
    storage: Storage, survey: Survey, state: NodeState, keys: FileKeys, made: FileTreeFindings, *, began_anew: bool
) -> None:
    assert state.tree is not None
    path = state_path(state.node, state.epoch)
    try:
        signed, key = checkpoint_of(state.tree), key_of(state.tree)
    except HistoryError as error:
        made.fault_in_state(state, path, f"the checkpoint of its files is not valid: {error.message}")
        return
    if fault := _fault_of_state(storage, survey, state, signed):
        made.fault_in_state(state, path, fault)
    _judge_key(state, path, key, keys, made)
    texts = [*read_lines(storage, lines_folder(*signed.origin))]
    if not texts and signed.size <= len(Ledger) and all(one.origin != signed.origin for one in made.seen):
        message = "the tree of the node's files has only its first lines, and these are not written"
        hint = "start the node, which was ended when it began the tree: it begins another one"
        made.doubt(state.node, NOT_SIGNED, path, message, hint)
        return
    cosigned = read_cosigned(state.tree, signed)
    before = next((one for one in made.seen if one.origin == signed.origin), None)
    roots = roots_at(texts, {one.size for one in (before, cosigned, signed) if one is not None})
    if fault := _fault_of_lines(len(texts), roots, signed, before):
        made.fault_in_state(state, path, fault)
        return
    if cosigned is not None and (fault := fault_of_cosigned(cosigned, signed, roots.get(cosigned.size))):
        made.fault_in_state(state, path, fault)
    found = SeenFileTree(*signed.origin, signed.size, signed.root.hex(), state.as_of)
    made.seen = [*(one for one in made.seen if one.origin != signed.origin), found]
    lines = TreeLines(texts, signed.size)
    for tree, size in lines.before():
        origin, began_anew = signed.origin._replace(tree=tree), True
        if sum(1 for _ in islice(read_lines(storage, lines_folder(*origin)), size)) < size:
            fault = f"the node had signed {size:,} lines of {origin} before: they are not in the lake"
            made.fault_in_state(state, path, fault)
    mine = [one for one in survey.segments if (one.manifest.node, one.place.epoch) == (state.node, state.epoch)]
    judge_segments(survey, state, lines, mine, made, began_anew=began_anew)
    judge_removed(survey, state, lines, mine, made)


def _fault_of_state(storage: Storage, survey: Survey, state: NodeState, signed: LakeCheckpoint) -> str:
    if signed.origin[:2] != (state.node, state.epoch):
        return f"the checkpoint of its files is that of {signed.origin}"
    path = state_path(state.node, state.epoch)
    text = storage.read_many([path]).get(path, b"")
    if sha256(text).hexdigest() != survey.digests.get(path):
        return ""  # the node has written another one since
    found = digest_of_state(text)
    if found != signed.state:
        return f"its state has the digest {found.hex()}, and the node signed {signed.state.hex()}"
    return ""


def _is_replaced(state: NodeState, key: NoteKey, keys: FileKeys) -> bool:
    """Return whether a state is signed with a key that its node had replaced before, by more than a few reports."""
    at = keys.replaced.get(state.node, {}).get(key.public)
    return at is not None and state.as_of > at + _REPLACED_WITHIN


def _judge_key(state: NodeState, path: str, key: NoteKey, keys: FileKeys, made: FileTreeFindings) -> None:
    """Compare the key of a state with those that the policy has for its node, and with their signed successors."""
    if keys.policy is None:
        return
    known = keys_of_node(keys.policy, state.node)
    if not known:
        message = f"the policy has no key of {state.node}: anyone may have signed what it wrote to the lake"
        hint = "get the key with `routerctl log keys` on the node, over a way that you trust"
        made.doubt(state.node, "unproven", path, message, hint)
    elif key.public not in known.union(keys.named.get(state.node, ())) or _is_replaced(state, key, keys):
        message = (
            f"its state is signed with an unverified key: neither is it the key that the policy has for {state.node},"
            " nor has that key signed a change to it; or it is one that a signed change has replaced"
        )
        hint = f"ask the operators of {state.node} whether its key was lost; {RESTORE}"
        made.doubt(state.node, "unproven", path, message, hint)


def _fault_of_lines(lines: int, roots: Mapping[int, bytes], signed: LakeCheckpoint, before: SeenFileTree | None) -> str:
    """Return why the lines are not those that were signed, or that an earlier audit saw; empty if they are."""
    if lines < signed.size:
        return f"the lake has {lines:,} of the {signed.size:,} lines of {signed.origin}"
    if before is not None and before.size > signed.size:
        return (
            f"the node signed {signed.size:,} lines of {signed.origin}, of which an earlier audit saw {before.size:,}"
            f" ({format_time(before.at)})"
        )
    if roots[signed.size] != signed.root:
        return (
            f"the lines of {signed.origin} have the root {roots[signed.size].hex()} at size {signed.size:,}, and the"
            f" node signed {signed.root.hex()}"
        )
    if before is not None and roots[before.size].hex() != before.root:
        return (
            f"the lines of {signed.origin} have the root {roots[before.size].hex()} at size {before.size:,}, and an"
            f" earlier audit saw {before.root}"
        )
    return ""
