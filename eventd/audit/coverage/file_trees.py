"""The trees of the files that nodes have written to the lake: which manifests and states are not what they signed."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from eventd.audit.coverage.cosigned_files import fault_of_cosigned, read_cosigned
from eventd.audit.report.findings import MOST_NAMED, Finding, Kind
from eventd.audit.report.report import Limitation
from eventd.audit.segments.plan import NodeEpoch
from eventd.lake.file_tree import (
    TREES,
    LineKind,
    checkpoint_of,
    digest_of_state,
    key_of,
    lines_folder,
    read_line,
    read_lines,
)
from eventd.lake.layout import ARCHIVE, SegmentName, parse_name, slug, state_path
from eventd.lake.manifest import NodeState, Number, Time
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND
from eventd.text.plural import counted
from federation.errors import HistoryError
from federation.event import format_time
from federation.history.checkpoints import TREE_ID
from federation.history.lake_checkpoints import LakeCheckpoint, LakeOrigin
from federation.history.merkle import CompactRange, hash_leaf
from federation.history.notes import NoteKey

_RESTORE: Final = "restore the file from a copy of the lake, and find out who writes to it"
_REPLACED_WITHIN: Final = 3600 * SECOND
"""How long after the change of a key (microseconds) a state may still be signed with the old one."""
_NOT_SIGNED: Final = "not signed"
"""The kind of a limitation about files that their node has not signed."""


class SeenFileTree(msgspec.Struct, frozen=True):
    """A tree of files as an audit has seen it: that of a node and epoch with these many lines, and their root.

    `at` is when its state was written (microseconds).
    """

    node: str
    epoch: str
    tree: str
    size: Number
    root: str
    at: Time

    @property
    def origin(self) -> LakeOrigin:
        """Return the name of the tree."""
        return LakeOrigin(self.node, self.epoch, self.tree)


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


@dataclass
class FileTreeFindings:
    """What is found of all trees of files. `doubts`: files that no node has signed, or with a key that is not known.

    `signed`: the nodes that have signed all of their files, which are as they signed them. `seen`: the trees that
    later audits compare with the lake. `withdrawn`: by node and epoch, the segments that retention has removed, and
    that no line of their tree says so of. `expired`: by node, the day of the last segment that it has signed to be
    removed by its own retention, and when the epoch of that segment began.
    """

    findings: list[Finding] = field(default_factory=list)
    doubts: list[Limitation] = field(default_factory=list)
    signed: set[str] = field(default_factory=set)
    seen: list[SeenFileTree] = field(default_factory=list)
    doubted: set[str] = field(default_factory=set)
    withdrawn: dict[NodeEpoch, list[SegmentName]] = field(default_factory=dict)
    expired: defaultdict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def doubt(self, node: str, kind: str, where: str, message: str, hint: str) -> None:
        """Add that some files of a node are not proven to be its own."""
        self.doubted.add(node)
        self.doubts.append(Limitation(kind=kind, where=where, message=message, hint=hint))


class _Lines(NamedTuple):
    """The lines of a tree. `signed`: how many of them its checkpoint covers. A tree of a year may have millions."""

    texts: Sequence[str]
    signed: int

    def numbers(self, kind: LineKind) -> dict[str, int]:
        """Return by ledger the largest number in the signed lines of this kind."""
        found: dict[str, int] = {}
        for line in map(read_line, (text for text in self.texts[: self.signed] if text.startswith(kind))):
            if line is not None:
                found[line.name] = max(int(line.values[0]), found.get(line.name, 0))
        return found

    def before(self) -> Iterator[tuple[str, int]]:
        """Yield the trees that the node had signed before, and how many lines of each."""
        for line in map(read_line, (text for text in self.texts[: self.signed] if text.startswith(LineKind.AFTER))):
            if line is not None and TREE_ID.fullmatch(line.name):
                yield line.name, int(line.values[0])

    def digests(self, names: Collection[str]) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
        """Return by name of the segment the digests that its manifest may have, of those of these names with lines.

        First those in signed lines, then those that no checkpoint covers yet: anyone may append such a line.
        """
        signed, pending = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for at, line in enumerate(map(read_line, self.texts)):
            if line is not None and line.name in names:
                (signed if at < self.signed else pending)[line.name].update(line.values)
        return signed, pending

    def shipped(self) -> Iterator[SegmentName]:
        """Yield the segments that the signed lines say were shipped."""
        for text in islice(self.texts, self.signed):
            line = read_line(text) if text.startswith(LineKind.SHIP) else None
            if line is not None and line.kind is LineKind.SHIP and (place := parse_name(line.name)) is not None:
                yield place


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
        made.findings += gone
        if state.tree is not None:
            _judge(storage, survey, state, keys, made, began_anew=len(folders) > 1 or bool(gone))
        elif folders or NodeEpoch(state.node, state.epoch) in keys.keepers:
            where, message = state_path(state.node, state.epoch), "the state of the node is not signed any more"
            if not folders:
                message = "the state of the node is not signed, although it signs its history"
            hint = "start the node, which signs it; one that is closed needs a state from a copy of the lake"
            made.doubt(state.node, _NOT_SIGNED, where, message, hint)
    for state in survey.nodes:
        _doubt_removed(state, made)
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


def _gone(storage: Storage, state: NodeState, seen: Iterable[SeenFileTree]) -> Iterator[Finding]:
    """Yield the trees of a node that earlier audits have seen, and that it neither continues nor has in the lake."""
    present = _tree_of(state)
    for one in (one for one in seen if one.tree != present):
        texts = [*islice(read_lines(storage, lines_folder(*one.origin)), one.size)]
        root = _roots_at(texts, {one.size}).get(one.size)
        if root is None or root.hex() != one.root:
            fault = f"the {one.size:,} lines of {one.origin}, which an earlier audit saw ({format_time(one.at)}), are"
            yield _of_state(state, state_path(state.node, state.epoch), f"{fault} {'changed' if texts else 'gone'}")


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
        made.findings.append(_of_state(state, path, f"the checkpoint of its files is not valid: {error.message}"))
        return
    if fault := _fault_of_state(storage, survey, state, signed):
        made.findings.append(_of_state(state, path, fault))
    _judge_key(state, path, key, keys, made)
    texts = [*read_lines(storage, lines_folder(*signed.origin))]
    if not texts and signed.size <= len(Ledger) and all(one.origin != signed.origin for one in made.seen):
        message = "the tree of the node's files has only its first lines, and these are not written"
        hint = "start the node, which was ended when it began the tree: it begins another one"
        made.doubt(state.node, _NOT_SIGNED, path, message, hint)
        return
    cosigned = read_cosigned(state.tree, signed)
    before = next((one for one in made.seen if one.origin == signed.origin), None)
    roots = _roots_at(texts, {one.size for one in (before, cosigned, signed) if one is not None})
    if fault := _fault_of_lines(len(texts), roots, signed, before):
        made.findings.append(_of_state(state, path, fault))
        return
    if cosigned is not None and (fault := fault_of_cosigned(cosigned, signed, roots.get(cosigned.size))):
        made.findings.append(_of_state(state, path, fault))
    found = SeenFileTree(*signed.origin, signed.size, signed.root.hex(), state.as_of)
    made.seen = [*(one for one in made.seen if one.origin != signed.origin), found]
    lines = _Lines(texts, signed.size)
    for tree, size in lines.before():
        origin, began_anew = signed.origin._replace(tree=tree), True
        if sum(1 for _ in islice(read_lines(storage, lines_folder(*origin)), size)) < size:
            fault = f"the node had signed {size:,} lines of {origin} before: they are not in the lake"
            made.findings.append(_of_state(state, path, fault))
    mine = [one for one in survey.segments if (one.manifest.node, one.place.epoch) == (state.node, state.epoch)]
    _judge_segments(survey, state, lines, mine, made, began_anew=began_anew)
    _judge_removed(survey, state, lines, mine, made)


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
        hint = f"ask the operators of {state.node} whether its key was lost; {_RESTORE}"
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


def _roots_at(texts: Sequence[str], sizes: Set[int]) -> dict[int, bytes]:
    """Return the roots of the first lines at these sizes, as far as there are so many. Each line is hashed once."""
    hashes, found = CompactRange(), dict[int, bytes]()
    for text in islice(texts, max(sizes, default=0)):
        if hashes.size in sizes:
            found[hashes.size] = hashes.root()
        hashes.append(hash_leaf(text.encode()))
    if hashes.size in sizes:
        found[hashes.size] = hashes.root()
    return found


def _judge_segments(
    survey: Survey,
    state: NodeState,
    lines: _Lines,
    segments: Iterable[Segment],
    made: FileTreeFindings,
    *,
    began_anew: bool,
) -> None:
    """Compare the manifests that exist with their lines.

    Those that are older than the tree count as in earlier versions, unless the node had a tree before this one.
    """
    segments = [*segments]
    digests, unsigned = lines.digests({one.place.name for one in segments})
    begins = lines.numbers(LineKind.BEGIN)
    older, archived, pending = list[SegmentName](), list[SegmentName](), list[SegmentName]()
    for one in segments:
        place, found = one.place, survey.digests.get(one.place.manifest)
        if place.name in digests:
            if found not in digests[place.name]:
                made.findings.append(_of_segment(state.node, place, "its manifest is not the one that the node signed"))
        elif place.upto <= begins.get(place.book.value, 0):
            older.append(place)
        elif place.tree == ARCHIVE:
            (pending if found in unsigned.get(place.name, ()) else archived).append(place)
        elif place.upto <= _reach_of(state, place.book) or found not in unsigned.get(place.name, ()):
            # The line of a later segment, which is not signed yet, is written before its manifest.
            made.findings.append(_of_segment(state.node, place, "the node did not sign that it wrote this segment"))
    for places, why, hint in (
        (
            older if began_anew else [],
            "older than the present tree of the node's files, which is not its first one",
            "only the rows of trees are proven there",
        ),
        (
            archived,
            "written to the archive by another program than the node",
            "the running node compares it with what it wrote itself, and signs it within a day if the rows are equal",
        ),
    ):
        if places:
            message = f"{counted(len(places), 'segment')} of {state.node} {'is' if len(places) == 1 else 'are'} {why}"
            made.doubt(state.node, _NOT_SIGNED, places[0].name, message, hint)
    if pending:
        message = f"{state.node} has not signed yet that it wrote {counted(len(pending), 'segment')} of the archive"
        hint = "audit again when the node has reported: it signs them within a minute"
        made.doubt(state.node, _NOT_SIGNED, pending[0].name, message, hint)


def _reach_of(state: NodeState, book: Ledger) -> int:
    """Return up to which number the state has segments of a ledger; 0 without any, which is signed as well."""
    reach = state.segments.get(book)
    return 0 if reach is None else reach.upto


def _judge_removed(
    survey: Survey, state: NodeState, lines: _Lines, segments: Iterable[Segment], made: FileTreeFindings
) -> None:
    """Look for the rows of each segment that was shipped: in itself, in another one, or removed by retention."""
    spans: defaultdict[Ledger, list[tuple[int, int]]] = defaultdict(list)
    for one in sorted(segments, key=lambda one: (one.after, one.upto)):
        joined = spans[one.place.book]
        if joined and one.after <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], one.upto))
        else:
            joined.append((one.after, one.upto))
    drops, withdrawn, expired = lines.numbers(LineKind.DROP), list[SegmentName](), ""
    for place in lines.shipped():
        if is_dropped := place.upto <= drops.get(place.book.value, 0):
            expired = max(expired, place.day)
        joined = spans[place.book]
        at = bisect_right(joined, place.after, key=lambda span: span[0]) - 1
        covered = at >= 0 and place.upto <= joined[at][1]
        if covered or place.manifest in survey.digests or is_dropped:
            continue
        reach = state.segments.get(place.book)
        if reach is not None and place.upto <= reach.after:
            withdrawn.append(place)
        else:
            made.findings.append(
                _of_segment(state.node, place, "the node signed that it wrote this segment: it is gone")
            )
    made.withdrawn[NodeEpoch(state.node, state.epoch)] = withdrawn
    if expired:
        made.expired[state.node].append((state.began_at, expired))


def _doubt_removed(state: NodeState, made: FileTreeFindings) -> None:
    """Doubt the segments that retention has removed, and that the node has not signed to be removed.

    A node signs the removal of segments of its present epoch only. What its own retention has removed there explains
    that the segments of an earlier epoch are gone that are no newer.
    """
    day = max((day for began_at, day in made.expired[state.node] if began_at > state.began_at), default="")
    withdrawn = [one for one in made.withdrawn.get(NodeEpoch(state.node, state.epoch), ()) if one.day > day]
    if withdrawn:
        where, count = state_path(state.node, state.epoch), counted(len(withdrawn), "segment")
        message = f"retention has removed {count} of {state.node}, which the node has not signed"
        hint = (
            "the node signs what its own EVENTD_LAKE_RETENTION removes of its present epoch, when it reports; this also"
            " explains what is gone of earlier epochs up to the same day; about `routerctl lake retain` ask the"
            " operators"
        )
        made.doubt(state.node, _NOT_SIGNED, where, message, hint)


def _of_state(state: NodeState, path: str, fault: str) -> Finding:
    return Finding(Kind.LAKE_REWRITTEN, "", state.node, "", 0, 0, (path,), f"{fault}; {_RESTORE}")


def _of_segment(node: str, place: SegmentName, fault: str) -> Finding:
    return Finding(
        Kind.LAKE_REWRITTEN, "", node, "", place.after + 1, place.upto, (place.name,), f"{fault}; {_RESTORE}"
    )
