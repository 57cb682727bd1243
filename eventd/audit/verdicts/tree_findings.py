"""The trees of all nodes: what their leaves are computed with, and the findings and reports that follow from them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from eventd.audit.coverage.coverage import Coverage
from eventd.audit.coverage.file_trees import FileKeys
from eventd.audit.report.figures import nearest_time
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Limitation, TreeReport
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch, owner_of, states_by_node
from eventd.audit.segments.tree_leaves import TreeLeaves, TreeMove
from eventd.audit.segments.tree_rows import TreeCheckpoint
from eventd.audit.verdicts.tree_checks import LeafHole, LeafSpan, TreeEvidence, TreeResult, check_tree, is_signed
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND
from eventd.text.plural import counted
from federation.errors import HistoryError
from federation.history.checkpoints import LogOrigin
from federation.history.entries import PreviousTree
from federation.history.notes import LOG_KEY, NoteKey

SEALED_WITHIN: Final = 60 * SECOND
"""An event without a checkpoint after this time (microseconds) is a finding."""
SHIPPED_WITHIN: Final = 600 * SECOND
"""A node that ships ledgers up to a time has shipped the checkpoints that others saw so long (microseconds) before."""
_COMPARE: Final = "compare the lake with its backup and with the database of the node"

TreeKey = tuple[str, str]
"""A node and the id of one of its trees."""


class _Cut(NamedTuple):
    """A checkpoint by the position, in the log of its owner, of the last record that it covers."""

    position: int
    tree: str
    size: int


class Succession(NamedTuple):
    """The tree before a tree, and what the opening of the later one says of it.

    `position`: the first one with a leaf in the later tree.
    """

    tree: TreeEvidence
    named: PreviousTree
    position: int


@dataclass
class Trees:
    """The trees that the ledgers `history` name. `keys`: those of the auditor's policy; None without one."""

    evidence: dict[TreeKey, TreeEvidence] = field(default_factory=dict)
    keys: Sequence[NoteKey] | None = None
    _cuts: dict[NodeEpoch, list[_Cut]] = field(default_factory=dict)

    @classmethod
    def of(cls, summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]], keys: Sequence[NoteKey] | None = None) -> Trees:
        """Return the trees in the summaries of the small ledgers."""
        made = cls(keys=keys)
        for owner, each in summaries.items():
            cuts = made._cuts.setdefault(owner, [])
            for rows in (summary.trees for summary in each if summary.trees is not None):
                for tree, group in rows.groups.items():
                    made.evidence.setdefault((owner.node, tree), TreeEvidence(LogOrigin(group, owner.node, tree)))
                for opening in rows.openings:
                    made.evidence[owner.node, opening.tree].opening = opening
                for one in rows.checkpoints:
                    made.evidence[owner.node, one.tree].checkpoints.append(one)
                    cuts.append(_Cut(one.position, one.tree, one.size))
                for hashes in rows.hashes:
                    known = made.evidence[owner.node, hashes.tree].levels[hashes.level]
                    known.update(enumerate(hashes.hashes, hashes.first))
            cuts.sort()
        for one in (one for each in summaries.values() for summary in each for one in _witnessed(summary)):
            if (evidence := made.evidence.get((one.node, one.tree))) is not None:
                evidence.checkpoints.append(one)
        for one_tree in made.evidence.values():
            one_tree.known = [*made._keys_of(one_tree)]
            one_tree.drop_unsigned()
        return made

    def _keys_of(self, tree: TreeEvidence) -> Iterator[NoteKey]:
        """Yield the keys that may have signed a tree: that of the policy for it, or else that which its opening names.

        Without either, those that the policy has for other trees of its node and group.
        """
        named = [key for key in self.keys or () if key.name == str(tree.origin)]
        yield from named
        if tree.key is not None and not named:
            yield tree.key
        elif not named:
            owner = f"eventd/{tree.origin.group}/{tree.origin.node}/"
            public = {key.public for key in self.keys or () if key.name.startswith(owner)}
            yield from (NoteKey(str(tree.origin), LOG_KEY, one) for one in sorted(public))

    def file_keys(self) -> FileKeys:
        """Return what the trees, and the policy, show of the keys with which nodes sign their files."""
        named: defaultdict[str, set[bytes]] = defaultdict(set)
        replaced: defaultdict[str, dict[bytes, int]] = defaultdict(dict)
        for (node, _), tree in self.evidence.items():
            if tree.key is not None and self.is_pinned(tree):
                named[node].add(tree.key.public)
            if (found := self._replaced(tree)) is not None:
                old, at = found
                replaced[node][old] = max(at, replaced[node].get(old, 0))
        keepers = {node for (node, _), tree in self.evidence.items() if tree.shipped}
        return FileKeys(self.keys, named, replaced, keepers)

    @cached_property
    def moves(self) -> Mapping[str, Sequence[tuple[int, TreeMove]]]:
        """Return by node which leaves without a checkpoint another tree took over, each with its first position."""
        found: defaultdict[str, list[tuple[int, TreeMove]]] = defaultdict(list)
        for (node, name), tree in sorted(self.evidence.items()):
            succession = self.before(tree)
            # A larger size was signed by a database that was then taken back: its leaves remain what they are.
            if succession is not None and succession.tree.last_signed == succession.named.size:
                move = TreeMove(succession.tree.origin.tree, succession.named.size, name)
                found[node].append((succession.position, move))
        return found

    def before(self, tree: TreeEvidence) -> Succession | None:
        """Return the tree before a tree, if the lake has it."""
        opening = None if tree.entry is None else tree.entry.opening
        if opening is None or opening.previous is None:
            return None
        previous = self.evidence.get((tree.origin.node, opening.previous.origin.tree))
        return None if previous is None else Succession(previous, opening.previous, opening.position)

    def is_pinned(self, tree: TreeEvidence) -> bool | None:
        """Return whether the policy knows the key of a tree, by its name, its node, or trees before it.

        None if the policy, or the lake, does not say; False if the policy has another key for the tree.
        """
        seen: set[str] = set()
        while self.keys is not None and tree.key is not None and tree.origin.tree not in seen:
            seen.add(tree.origin.tree)
            named = {key.public for key in self.keys if key.name == str(tree.origin)}
            owner = f"eventd/{tree.origin.group}/{tree.origin.node}/"
            known = named or {key.public for key in self.keys if key.name.startswith(owner)}
            if named or tree.key.public in known:
                return tree.key.public in known
            succession = self.before(tree)
            if succession is None or not _is_signed_by(tree, succession.tree.key):
                return None
            tree = succession.tree
        return None

    def _replaced(self, tree: TreeEvidence) -> tuple[bytes, int] | None:
        """Return the key of the tree before a tree, which signed the change to another one, and the time of that."""
        before = self.before(tree)
        old = None if before is None else before.tree.key
        if tree.entry is None or old is None or not _is_signed_by(tree, old):
            return None
        opening = tree.entry.opening
        return None if old.public == opening.key.public else (old.public, opening.time)

    def moves_in(self, segment: Segment) -> tuple[TreeMove, ...]:
        """Return the moves of leaves that a segment of `events` may have."""
        moves = self.moves.get(segment.manifest.node, ())
        return tuple(move for position, move in moves if position <= segment.upto)

    def cuts_in(self, segment: Segment) -> tuple[tuple[str, int], ...]:
        """Return the trees and sizes of the checkpoints whose last record is in a segment of `events`."""
        cuts = self._cuts.get(owner_of(segment), ())
        first = bisect_right(cuts, segment.after, key=lambda one: one.position)
        last = bisect_right(cuts, segment.upto, key=lambda one: one.position)
        return tuple((one.tree, one.size) for one in cuts[first:last])

    def cuts_of(self, node: str, leaves: TreeLeaves) -> set[tuple[str, int]]:
        """Return the trees and sizes of the checkpoints that end in these leaves, whatever position they name."""
        found: set[tuple[str, int]] = set()
        for run in leaves.runs:
            sizes = self._sizes.get((node, run.tree), ())
            within = sizes[bisect_right(sizes, run.first) : bisect_right(sizes, run.end)]
            found |= {(run.tree, size) for size in within}
        return found

    @cached_property
    def _sizes(self) -> Mapping[TreeKey, list[int]]:
        return {key: sorted({one.size for one in tree.checkpoints}) for key, tree in self.evidence.items()}

    def keeps(self, node: str) -> bool:
        """Return whether a node has trees."""
        return node in self._nodes

    @cached_property
    def _nodes(self) -> frozenset[str]:
        return frozenset(node for node, _ in self.evidence)


@dataclass
class TreeFindings:
    """What is found of all trees. `doubts`: trees that could not be compared, and why; `holes`: the erased leaves."""

    findings: list[Finding] = field(default_factory=list)
    reports: list[TreeReport] = field(default_factory=list)
    doubts: list[Limitation] = field(default_factory=list)
    holes: list[tuple[TreeEvidence, LeafHole]] = field(default_factory=list)


def judge_trees(
    trees: Trees,
    leaves: Sequence[tuple[str, TreeLeaves]],
    survey: Survey,
    coverage: Coverage,
    erased: Iterable[Finding] = (),
    unread: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({}),
) -> TreeFindings:
    """Compare all trees with their checkpoints. `leaves`: those of each segment of `events`, with its node.

    `erased`: rows that are known to be erased by their seqs. `unread`: by node, the positions (after, upto] of segments
    that were not read, because they have no events of the requested hours.
    """
    made = TreeFindings()
    for node, found in leaves:
        for run in found.runs:
            if (tree := trees.evidence.get((node, run.tree))) is not None:
                tree.runs.append(run)
    known: Counter[TreeKey] = Counter()
    for one in erased:
        known[one.source, one.group] += one.events
    results = {key: check_tree(tree) for key, tree in sorted(trees.evidence.items()) if tree.was_shipped}
    claims = [one for tree in trees.evidence.values() for one in tree.dropped if one.witness]
    for key, result in results.items():
        tree, claims = trees.evidence[key], claims + result.claims
        made.findings += _changed(tree, result)
        holes = [one for one in result.holes if not _is_explained(one, coverage, tree.origin.node, unread)]
        made.findings += _erased(tree, holes, known)
        made.holes += [(tree, hole) for hole in holes]
        made.findings += [*_rolled_back(tree, trees), *_cut_off(tree, trees, survey)]
        pinned = trees.is_pinned(tree)
        if pinned is False:
            words = f"the tree is signed with another key than the policy has for {tree.origin}"
            made.findings.append(_finding(Kind.FORGED, tree, LeafSpan(0, tree.size - 1, words)))
        if tree.shipped:  # unless the key signed none of its checkpoints
            made.reports.append(_report(tree, result, pinned))
        if tree.origin.node not in unread:
            made.doubts += _doubts(tree, result, policy=trees.keys is not None, pinned=pinned)
    made.findings += _unsealed(trees, leaves, survey)
    made.doubts += _claims(claims)
    return made


def _finding(kind: Kind, tree: TreeEvidence, span: LeafSpan, *, count: int = 0, hint: str = _COMPARE) -> Finding:
    name = f"{tree.origin.tree}/{span.first}-{span.last}"
    detail = f"{span.words}; {hint}"
    return Finding(kind, tree.origin.group, tree.origin.node, "", span.first, span.last, (name,), detail, count)


def _changed(tree: TreeEvidence, result: TreeResult) -> Iterator[Finding]:
    for span in result.rewritten:
        yield _finding(Kind.REWRITTEN, tree, span)
    for span in result.forks:
        yield _finding(Kind.FORK, tree, span, hint="both notes are in the ledger history: show them to all peers")


def _erased(tree: TreeEvidence, holes: Iterable[LeafHole], known: Counter[TreeKey]) -> Iterator[Finding]:
    """Yield the leaves whose rows are missing for no reason, except as many as are known by their seqs."""
    ledger = tree.origin.node, tree.origin.group
    for hole in holes:
        events = hole.last - hole.first + 1
        if known[ledger] >= events:
            known[ledger] -= events
            continue
        words = (
            f"no segment has rows of these leaves, which its node signed; they were recorded before"
            f" {nearest_time(hole.times[1])}"
        )
        yield _finding(Kind.ERASED, tree, LeafSpan(hole.first, hole.last, words), count=events if events > 1 else 0)


def _is_explained(
    hole: LeafHole, coverage: Coverage, node: str, unread: Mapping[str, Sequence[tuple[int, int]]]
) -> bool:
    """Return whether a part of the ledger is missing there: retention removed it, its node declared its loss, or it is
    a finding by itself. Or it was not read."""
    if any(after < hole.positions[1] - 1 and hole.positions[0] < upto for after, upto in unread.get(node, ())):
        return True
    for spot in coverage.blind_spots.get((node, Ledger.EVENTS), ()):
        overlaps = spot.times[0] <= hole.times[1] and hole.times[0] <= spot.times[1]
        if overlaps and spot.positions[0] < hole.positions[1] - 1 and hole.positions[0] < spot.positions[1]:
            return True
    return False


def _rolled_back(tree: TreeEvidence, trees: Trees) -> Iterator[Finding]:
    """Yield what the opening of a tree says of the tree before it, if the lake has later checkpoints of that one."""
    succession = trees.before(tree)
    if succession is None:
        return
    previous, before, _ = succession
    last = previous.last_signed
    if last > before.size:
        words = (
            f"the tree {tree.origin.tree} succeeds this one at size {before.size:,}, and its node had signed size"
            f" {last:,}: its database was taken back"
        )
        hint = f"look for the {last - before.size:,} abandoned events at the peers"
        yield _finding(Kind.ROLLED_BACK, previous, LeafSpan(before.size, last - 1, words), hint=hint)
    for one in previous.checkpoints:
        if one.size == before.size and one.root != before.root and is_signed(previous, one):
            words = f"the tree after it names the root {before.root.hex()}, and its node signed {one.root.hex()}"
            yield _finding(Kind.FORK, previous, LeafSpan(0, one.size - 1, words))


def _cut_off(tree: TreeEvidence, trees: Trees, survey: Survey) -> Iterator[Finding]:
    """Yield the end of a tree that witnesses have seen, and that its node should have shipped since."""
    if any(known is not None and known.tree is tree for known in map(trees.before, trees.evidence.values())):
        return
    ends = [min(state.complete_until, state.as_of) for state in survey.nodes if state.node == tree.origin.node]
    late = [one for one in tree.checkpoints if one.size > tree.size and one.at + SHIPPED_WITHIN < max(ends, default=0)]
    late.sort(key=lambda one: -one.size)
    if (last := next((one for one in late if is_signed(tree, one)), None)) is not None:
        words = (
            f"{last.witness} has cosigned size {last.size:,} of the tree, and its node ships it only up to this leaf"
        )
        hint = "look for the events of these leaves at the peers"
        yield _finding(Kind.ROLLED_BACK, tree, LeafSpan(tree.size, last.size - 1, words), hint=hint)


def _claims(claims: Iterable[TreeCheckpoint]) -> Iterator[Limitation]:
    """Yield for each node its checkpoints of trees of others that no known key has signed: they show nothing."""
    by_witness: defaultdict[str, list[TreeCheckpoint]] = defaultdict(list)
    for one in claims:
        by_witness[one.witness].append(one)
    for witness, each in sorted(by_witness.items()):
        first = each[0]
        message = (
            f"the ledger history of {witness} has {counted(len(each), 'checkpoint')} of trees of other nodes that no"
            f" known key of these trees has signed, such as size {first.size:,} of the tree {first.tree} of"
            f" {first.node}: this is a claim of {witness}, and proves nothing about {first.node}"
        )
        hint = f"compare with the database of {witness}; `routerctl log keys` on {first.node} prints its key"
        yield Limitation(kind="unproven", where=witness, message=message, hint=hint)


def _witnessed(summary: LedgerSummary) -> Sequence[TreeCheckpoint]:
    return () if summary.trees is None else summary.trees.witnessed


def _is_signed_by(tree: TreeEvidence, key: NoteKey | None) -> bool:
    """Return whether the key of the tree before it also signed the opening of a tree."""
    try:
        return tree.entry is not None and key is not None and tree.entry.is_signed_by(key)
    except HistoryError:
        return False


def _report(tree: TreeEvidence, result: TreeResult, pinned: bool | None) -> TreeReport:
    last = max(tree.shipped, key=lambda one: one.size)
    return TreeReport(
        group=tree.origin.group,
        node=tree.origin.node,
        tree=tree.origin.tree,
        size=last.size,
        proven=min(result.proven, last.size),
        checkpoints=len(tree.checkpoints),
        signed_at=nearest_time(last.at),
        key="unverified" if pinned is None else "pinned" if pinned else "other",
        root=last.root.hex(),
    )


def _doubts(tree: TreeEvidence, result: TreeResult, *, policy: bool, pinned: bool | None) -> Iterator[Limitation]:
    where = str(tree.origin)
    if result.unknown:
        yield Limitation(
            kind="unproven",
            where=where,
            message=f"size {tree.size:,} of the tree could not be computed: {result.unknown}",
            hint="restore the segments of events and history that are missing",
        )
    if tree.opening is None:
        yield Limitation(
            kind="unproven", where=where, message="the opening of the tree is not in the lake: its key is not known"
        )
    elif policy and pinned is None:
        yield Limitation(
            kind="unproven",
            where=where,
            message="the policy has no key of this tree or its node: anyone may have signed it",
            hint="get the key with `routerctl log keys` on the node, over a way that you trust",
        )


def _unsealed(trees: Trees, leaves: Sequence[tuple[str, TreeLeaves]], survey: Survey) -> Iterator[Finding]:
    """Yield own events that had to have a leaf, or a checkpoint, before the ledgers ended, and have none."""
    by_node: defaultdict[str, list[TreeLeaves]] = defaultdict(list)
    for node, found in leaves:
        by_node[node].append(found)
    for state in (states[-1] for states in states_by_node(survey)):
        end = min(state.complete_until, state.as_of) - SEALED_WITHIN
        for tree in (trees.evidence.get((state.node, group.tree)) for group in state.groups if group.tree):
            if tree is not None and tree.opening is not None and tree.shipped:
                yield from _without_leaf(tree, by_node[state.node], end)
                yield from _without_checkpoint(tree, end)


def _without_leaf(tree: TreeEvidence, leaves: Sequence[TreeLeaves], end: int) -> Iterator[Finding]:
    begins = tree.opening.position if tree.opening is not None else 0
    late = [
        run
        for found in leaves
        for run in found.leafless
        if run.group == tree.origin.group and run.positions[0] >= begins and run.at < end
    ]
    if late:
        events = sum(run.events for run in late)
        seqs = min(run.seqs[0] for run in late), max(run.seqs[1] for run in late)
        words = f"own events with seqs {seqs[0]:,} to {seqs[1]:,} have no leaf, although the tree was open"
        span = LeafSpan(tree.size, tree.size, words)
        yield _finding(Kind.UNSEALED, tree, span, count=events if events > 1 else 0)


def _without_checkpoint(tree: TreeEvidence, end: int) -> Iterator[Finding]:
    size, since = tree.size, None
    for run in tree.runs:
        if run.end > size:
            at = run.times[0] if run.first >= size else next((cut.at for cut in run.cuts if cut.size == size), 0)
            since = at if at and (since is None or at < since) else since
    if since is not None and since < end:
        last = max(run.end for run in tree.runs) - 1
        words = f"these leaves have no checkpoint; the first was recorded at {nearest_time(since)}"
        hint = "look at the log of the node for `history damaged`, and at its key file"
        count = last - size + 1
        yield _finding(Kind.UNSEALED, tree, LeafSpan(size, last, words), count=count if count > 1 else 0, hint=hint)
