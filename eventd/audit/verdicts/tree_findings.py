"""The findings and reports that follow from the trees of all nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from eventd.audit.coverage.coverage import Coverage
from eventd.audit.report.figures import nearest_time
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Limitation, TreeReport
from eventd.audit.segments.plan import states_by_node
from eventd.audit.segments.tree_leaves import TreeLeaves
from eventd.audit.segments.tree_rows import TreeCheckpoint
from eventd.audit.verdicts.node_trees import TreeKey, Trees
from eventd.audit.verdicts.tree_checks import LeafHole, LeafSpan, TreeEvidence, TreeResult, check_tree, is_signed
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.runtime.clock import SECOND
from eventd.text.plural import counted

SEALED_WITHIN: Final = 60 * SECOND
"""An event without a checkpoint after this time (microseconds) is a finding."""
SHIPPED_WITHIN: Final = 600 * SECOND
"""A node that ships ledgers up to a time has shipped the checkpoints that others saw so long (microseconds) before."""
_COMPARE: Final = "compare the lake with its backup and with the database of the node"


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
