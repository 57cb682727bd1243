"""The verdicts on rows of events whose digests are not those of the leaves that they were sent with."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
import numpy as np

from eventd.audit.coverage.coverage import Coverage
from eventd.audit.report.findings import NOT_IN_TREE, Discrepancy, Evidence, Finding, Kind
from eventd.audit.report.report import Limitation, TreeReport
from eventd.audit.segments.leaf_comparison import (
    LEAVES,
    MOST_LEAVES,
    MOST_OTHERS,
    ComparedSegment,
    CutRange,
    LeafTask,
    OtherRow,
)
from eventd.audit.segments.own_digests import DatedDigest
from eventd.audit.segments.tree_leaves import LeafRun, TreeLeaves
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from federation.event import micros
from federation.history.merkle import HASH_SIZE
from federation.history.tiles import TILE_WIDTH

_CHANGED = frozenset({Kind.REWRITTEN, Kind.FORK})
_INCOMPLETE = frozenset({Kind.ERASED, Kind.ROLLED_BACK, Kind.CORRUPT})
_Parts = list[tuple[int, int, Segment]]
"""Leaves of a tree from an index to before another one that a segment may have."""
_TreeKey = tuple[str, str, str]
"""The node, the group and the id of a tree. Ids are no secret: another node may name a tree of its own alike."""


def plan_leaf_tasks(segments: Sequence[tuple[Segment, TreeLeaves]], trees: Iterable[TreeReport]) -> Iterator[LeafTask]:
    """Yield the tasks that compare the rows of other nodes with those of the node of each tree, as far as it is proven.

    A tree that is signed with another key than that of the policy proves nothing.
    """
    proven: dict[_TreeKey, TreeReport] = {
        (one.node, one.group, one.tree): one for one in trees if one.key != "other" and one.proven
    }
    owners: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for node, group, tree in sorted(proven):
        owners[group, tree].append(node)
    runs: defaultdict[_TreeKey, list[tuple[LeafRun, Segment]]] = defaultdict(list)
    others: defaultdict[_TreeKey, _Parts] = defaultdict(list)
    for segment, leaves in segments:
        node = segment.manifest.node
        for run in leaves.runs:
            if (node, run.group, run.tree) in proven:
                runs[node, run.group, run.tree].append((run, segment))
        for claim in leaves.claims:
            for owner in owners.get((claim.group, claim.tree), ()):
                if owner != node:
                    others[owner, claim.group, claim.tree].append((claim.first, claim.last + 1, segment))
    for key, parts in sorted(others.items(), key=lambda one: one[0]):
        yield from _join_tasks(_tasks(proven[key], runs[key], parts))


def _join_tasks(tasks: Iterable[LeafTask]) -> Iterator[LeafTask]:
    """Yield the tasks of a tree; those that follow each other and read the same segments are one."""
    held: LeafTask | None = None
    for task in tasks:
        if held is not None and _continues(task, held):
            held = held._replace(end=task.end, skipped=(*held.skipped, *task.skipped))
            continue
        if held is not None:
            yield held
        held = task
    if held is not None:
        yield held


def _continues(task: LeafTask, before: LeafTask) -> bool:
    is_next = before.end == task.first and task.end - before.first <= MOST_LEAVES
    return is_next and (before.origin, before.others) == (task.origin, task.others)


def _tasks(tree: TreeReport, runs: Sequence[tuple[LeafRun, Segment]], parts: _Parts) -> Iterator[LeafTask]:
    """Yield a task for each range with a claim. Of the node's own segments it has those near the claims only."""
    by_range: defaultdict[int, _Parts] = defaultdict(list)
    for first, end, segment in parts:
        for at in range(first // LEAVES, -(-min(end, tree.proven) // LEAVES)):
            by_range[at].append((first, end, segment))
    for at, each in sorted(by_range.items(), key=lambda one: one[0]):
        span = at * LEAVES, min((at + 1) * LEAVES, tree.proven)
        near = max(span[0], min(part[0] for part in each)), min(span[1], max(part[1] for part in each))
        origin = _within(((run.first, run.end, segment) for run, segment in runs), near)
        if origin:
            skipped = _unchecked_tiles((run for run, _ in runs), span)
            yield LeafTask(tree.group, tree.node, tree.tree, *span, origin, _within(each, span), skipped)


def _unchecked_tiles(runs: Iterable[LeafRun], span: tuple[int, int]) -> tuple[int, ...]:
    """Return the tiles whose roots do not follow from all of their rows: hashes that the node shipped stand in for
    them, so that these rows may be other ones than the node signed."""
    first, end = span
    base, tiles = first // TILE_WIDTH, -(-end // TILE_WIDTH)
    there = np.zeros((tiles - base) * TILE_WIDTH, bool)
    there[end - first :] = True  # without a proof
    if first == 0:
        there[0] = True  # the opening, which is no row of an event
    skipped = np.zeros(tiles - base, bool)
    for run in runs:
        if run.first < end and run.end > first:
            there[max(run.first - first, 0) : run.end - first] = True
            hashes = np.frombuffer(run.tiles, np.uint8).reshape(-1, HASH_SIZE)
            tile = -(-run.first // TILE_WIDTH) + np.flatnonzero(~hashes.any(axis=1)) - base
            skipped[tile[(tile >= 0) & (tile < len(skipped))]] = True
    skipped |= ~there.reshape(-1, TILE_WIDTH).all(axis=1)
    return tuple((base + np.flatnonzero(skipped)).tolist())


def _within(parts: Iterable[tuple[int, int, Segment]], span: tuple[int, int]) -> list[ComparedSegment]:
    near = {one.place.name: one for first, end, one in parts if first < span[1] and end > span[0]}
    return [ComparedSegment(name, near[name].manifest) for name in sorted(near)]


def task_name(task: LeafTask) -> str:
    """Return the name under which an audit remembers that a task has found nothing."""
    return f"{task.node}/{task.tree}/{task.first}"


def task_basis(task: LeafTask) -> str:
    """Return a digest of all that the result of a task depends on."""
    files = [[(one.name, one.manifest.sha256) for one in some] for some in (task.origin, task.others)]
    return hashlib.sha256(msgspec.msgpack.encode((task[:5], task.skipped, files))).hexdigest()[:32]


def find_equal(tasks: Mapping[str, LeafTask], found: Iterable[OtherRow]) -> Iterator[str]:
    """Yield the names of the tasks that have found none of these rows."""
    differ = {(row.node, row.tree, row.leaf // LEAVES) for row in found}
    for name, task in tasks.items():
        ranges = range(task.first // LEAVES, -(-task.end // LEAVES))
        if not any((task.node, task.tree, at) in differ for at in ranges):
            yield name


def limit_comparison(cut: Iterable[CutRange]) -> Iterator[Limitation]:
    """Yield a limitation for each range of leaves of which not all differing rows were looked for."""
    for one in sorted(cut):
        message = (
            f"of the leaves from {one.first:,} on, more than {MOST_OTHERS:,} rows differ from the leaf that they name;"
            f" only the first {MOST_OTHERS:,} were searched for, so more events may be forged"
        )
        hint = f"look at the nodes that the events of {one.node} came through: they state false leaves, or forge events"
        yield Limitation(kind="unproven", where=f"eventd/{one.group}/{one.node}/{one.tree}", message=message, hint=hint)


def judge_leaves(
    others: Sequence[OtherRow],
    find_own: Callable[[Sequence[DatedDigest]], Collection[bytes]],
    findings: Sequence[Finding],
    coverage: Coverage,
    unread: Collection[str] = (),
) -> list[Discrepancy]:
    """Return the rows that are forged: no node has admitted an event with their digest, and their source ships all.

    A false statement of a leaf accuses no row: its event may have another leaf. So nothing is said of a source whose
    rows are not all in the lake, as far as the event may be one of these. `findings`: those that are known. What is
    forged by them is not named again; what is altered is, because the tree proves which of two contents is the true
    one. `find_own` returns those of some digests that are of an own event of any node. `unread`: nodes of which not
    all rows were read.
    """
    changed = _changed_leaves(findings)
    incomplete = {one.source for one in findings if one.kind in _INCOMPLETE and not one.peer} | {*unread}
    named = {(one.group, one.peer, id) for one in findings if one.kind is Kind.FORGED for id in one.ids}
    doubtful = [
        row
        for row in others
        if row.source == row.node
        and row.node not in incomplete
        and (row.group, row.peer, row.id) not in named
        and not any(first <= row.leaf <= last for first, last in changed.get((row.node, row.tree), ()))
        and not _is_hidden(row, coverage)
    ]
    admitted = find_own([*_dated(doubtful, findings)]) if doubtful else ()
    return [
        Discrepancy(Kind.FORGED, row.group, row.node, row.peer, 0, row.id, NOT_IN_TREE, Evidence(at=row.event_at))
        for row in doubtful
        if row.digest not in admitted
    ]


def _dated(rows: Iterable[OtherRow], findings: Iterable[Finding]) -> Iterator[DatedDigest]:
    """Yield the digests of rows with the times of their events: those that the rows say, and those at the source."""
    digests: defaultdict[tuple[str, str, str, str], list[bytes]] = defaultdict(list)
    for row in rows:
        digests[row.group, row.source, row.peer, row.id].append(row.digest)
        yield DatedDigest(row.event_at, row.digest)
    for one in (one for one in findings if one.kind is Kind.ALTERED):
        for entry in (entry for entry in one.evidence if entry.at):
            for digest in digests.get((one.group, one.source, one.peer, entry.id), ()):
                yield DatedDigest(micros(datetime.fromisoformat(entry.at)), digest)


def _changed_leaves(findings: Iterable[Finding]) -> Mapping[tuple[str, str], list[tuple[int, int]]]:
    """Return by node and tree the leaves whose rows are not those that the node signed."""
    found: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for one in findings:
        if one.kind in _CHANGED and one.ids:
            found[one.source, one.ids[0].partition("/")[0]].append((one.first, one.last))
    return found


def _is_hidden(row: OtherRow, coverage: Coverage) -> bool:
    """Return whether the event may be one of the rows of its source that are not in the lake.

    Its source recorded it before the peer did. When it was observed is only its publisher's word, which may be a time
    in the future. Clocks may differ.
    """
    if row.node in coverage.contested or row.recorded_at + coverage.margin >= coverage.until.get(row.node, 0):
        return True
    since = min(row.event_at, row.recorded_at) - coverage.margin
    until = row.recorded_at + coverage.margin
    spots = coverage.blind_spots.get((row.node, Ledger.EVENTS), ())
    return any(spot.times[0] <= until and since <= spot.times[1] for spot in spots)
