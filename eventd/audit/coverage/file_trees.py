"""The trees of the files that nodes have written to the lake: which manifests and states are not what they signed."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Final, NamedTuple

from eventd.audit.report.findings import MOST_NAMED, Finding, Kind
from eventd.audit.report.report import Limitation
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
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment
from eventd.text.plural import counted
from federation.errors import HistoryError
from federation.history.lake_checkpoints import LakeCheckpoint
from federation.history.merkle import CompactRange, hash_leaf
from federation.history.notes import NoteKey

_RESTORE: Final = "restore the file from a copy of the lake, and find out who writes to it"
_NOT_SIGNED: Final = "not signed"
"""The kind of a limitation about files that their node has not signed."""


@dataclass
class FileTreeFindings:
    """What is found of all trees of files. `doubts`: files that no node has signed.

    `signed`: the nodes whose files are all as they signed them.
    """

    findings: list[Finding] = field(default_factory=list)
    doubts: list[Limitation] = field(default_factory=list)
    signed: set[str] = field(default_factory=set)


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

    def digests(self, names: Collection[str]) -> dict[str, set[str]]:
        """Return by name of the segment the digests that its manifest may have, of those of these names with lines.

        Lines that no checkpoint covers yet count only for segments without signed ones: anyone may append such a line.
        """
        found: defaultdict[str, set[str]] = defaultdict(set)
        signed = set[str]()
        for at, line in enumerate(map(read_line, self.texts)):
            if line is None or line.name not in names or (line.name in signed and at >= self.signed):
                continue
            found[line.name].update(line.values)
            if at < self.signed:
                signed.add(line.name)
        return found

    def shipped(self) -> Iterator[SegmentName]:
        """Yield the segments that the signed lines say were shipped."""
        for text in islice(self.texts, self.signed):
            line = read_line(text) if text.startswith(LineKind.SHIP) else None
            if line is not None and line.kind is LineKind.SHIP and (place := parse_name(line.name)) is not None:
                yield place


def judge_files(storage: Storage, survey: Survey, keys: Sequence[NoteKey] | None = None) -> FileTreeFindings:
    """Compare the manifests and states of a lake with the trees that their nodes have signed.

    `keys`: those of the auditor's policy; None without one. Raises LakeUnavailable.
    """
    made = FileTreeFindings()
    trees: defaultdict[str, set[str]] = defaultdict(set)
    for folder in {one.path.rpartition("/")[0] for one in storage.list(TREES)}:
        trees[folder.rpartition("/")[0]].add(folder)
    for state in survey.nodes:
        mine = trees.get(f"{TREES}/{slug(state.node)}/{state.epoch}", set())
        if state.tree is not None:
            _judge(storage, survey, state, keys, made, began_anew=len(mine) > 1)
        elif mine:
            where, message = state_path(state.node, state.epoch), "the state of the node is not signed any more"
            hint = "start the node, which signs it; one that is closed needs a state from a copy of the lake"
            made.doubts.append(Limitation(kind=_NOT_SIGNED, where=where, message=message, hint=hint))
    wrong = {one.source for one in made.findings} | {one.node for one in survey.nodes if one.tree is None}
    made.signed = {one.node for one in survey.nodes} - wrong
    made.findings = made.findings[:MOST_NAMED]
    return made


def _judge(
    storage: Storage,
    survey: Survey,
    state: NodeState,
    keys: Sequence[NoteKey] | None,
    made: FileTreeFindings,
    *,
    began_anew: bool,
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
    made.findings += _of_key(state, path, key, keys)
    known = {one.name.split("/")[2] for one in keys or () if one.name.count("/") >= 2}
    if keys is not None and state.node not in known:
        message = f"the policy has no key of {state.node}: anyone may have signed what it wrote to the lake"
        hint = "get the key with `routerctl log keys` on the node, over a way that you trust"
        made.doubts.append(Limitation(kind="unproven", where=path, message=message, hint=hint))
    texts = [*read_lines(storage, lines_folder(*signed.origin))]
    if fault := _fault_of_lines(texts, signed):
        made.findings.append(_of_state(state, path, fault))
        return
    lines = _Lines(texts, signed.size)
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


def _of_key(state: NodeState, path: str, key: NoteKey, keys: Sequence[NoteKey] | None) -> Iterator[Finding]:
    known = {one.public for one in keys or () if one.name.split("/")[2:3] == [state.node]}
    if known and key.public not in known:
        yield _of_state(state, path, f"its state is signed with another key than the policy has for {state.node}")


def _fault_of_lines(texts: Sequence[str], signed: LakeCheckpoint) -> str:
    """Return why the lines are not those that were signed; empty if they are."""
    if len(texts) < signed.size:
        return f"the lake has {len(texts):,} of the {signed.size:,} lines of {signed.origin}"
    hashes = CompactRange()
    for text in islice(texts, signed.size):
        hashes.append(hash_leaf(text.encode()))
    if hashes.root() != signed.root:
        return (
            f"the lines of {signed.origin} have the root {hashes.root().hex()} at size {signed.size:,}, and the node"
            f" signed {signed.root.hex()}"
        )
    return ""


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
    digests = lines.digests({one.place.name for one in segments})
    begins = lines.numbers(LineKind.BEGIN)
    older, archived = list[SegmentName](), list[SegmentName]()
    for one in segments:
        place = one.place
        if place.name in digests:
            if survey.digests.get(place.manifest) not in digests[place.name]:
                made.findings.append(_of_segment(state.node, place, "its manifest is not the one that the node signed"))
        elif place.upto <= begins.get(place.book.value, 0):
            older.append(place)
        elif place.tree == ARCHIVE:
            archived.append(place)
        elif (
            place.book in state.segments and place.upto <= state.segments[place.book].upto
        ):  # later ones are not signed yet
            made.findings.append(_of_segment(state.node, place, "the node did not sign that it wrote this segment"))
    for places, why in (
        (older if began_anew else [], "older than the present tree of the node's files, which is not its first one"),
        (archived, "written to the archive by another program than the node"),
    ):
        if places:
            message = f"{counted(len(places), 'segment')} of {state.node} {'is' if len(places) == 1 else 'are'} {why}"
            hint = "only the rows of trees are proven there; let the node itself compact its ledgers"
            made.doubts.append(Limitation(kind=_NOT_SIGNED, where=places[0].name, message=message, hint=hint))


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
    drops, withdrawn = lines.numbers(LineKind.DROP), 0
    for place in lines.shipped():
        joined = spans[place.book]
        at = bisect_right(joined, place.after, key=lambda span: span[0]) - 1
        covered = at >= 0 and place.upto <= joined[at][1]
        if covered or place.manifest in survey.digests or place.upto <= drops.get(place.book.value, 0):
            continue
        reach = state.segments.get(place.book)
        if reach is not None and place.upto <= reach.after:
            withdrawn += 1
        else:
            made.findings.append(
                _of_segment(state.node, place, "the node signed that it wrote this segment: it is gone")
            )
    if withdrawn:
        where, count = state_path(state.node, state.epoch), counted(withdrawn, "segment")
        message = f"retention has removed {count} of {state.node}, which the node has not signed yet"
        hint = "start the node; of one that is closed, compare with the retention that the operators have set"
        made.doubts.append(Limitation(kind=_NOT_SIGNED, where=where, message=message, hint=hint))


def _of_state(state: NodeState, path: str, fault: str) -> Finding:
    return Finding(Kind.LAKE_REWRITTEN, "", state.node, "", 0, 0, (path,), f"{fault}; {_RESTORE}")


def _of_segment(node: str, place: SegmentName, fault: str) -> Finding:
    return Finding(
        Kind.LAKE_REWRITTEN, "", node, "", place.after + 1, place.upto, (place.name,), f"{fault}; {_RESTORE}"
    )
