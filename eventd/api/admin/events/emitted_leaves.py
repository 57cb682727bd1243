"""The leaves that the events of a request got in the tree of their group, in a short form for many events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import AppendResult, LeafRun, Outcome
from eventd.log.history.trees import read_tree
from eventd.store.engine.database import Connection


async def show_leaves(log: EventLog, appended: AppendResult) -> dict[str, Any]:
    """Return the member `leaves` of an answer: one entry for each run of events whose leaves are neighbours.

    Empty for a group that keeps no history or may not sign yet, and if no event of the request is new.
    """
    runs = [(index, run) for index, run in _runs(appended) if run.tree not in log.unsettled_trees]
    if not runs:
        return {}
    origins = log.tree_origins
    if unknown := {run.tree for _, run in runs} - origins.keys():
        origins |= await log.database.read(_read_origins, unknown)
    shown = [
        {"index": index, "count": run.records, "origin": origins[run.tree], "leaf": run.leaf} for index, run in runs
    ]
    return {"leaves": shown}


def _runs(appended: AppendResult) -> Iterator[tuple[int, LeafRun]]:
    """Yield the runs of the request's own records, each with the index of its first event."""
    start, last = 0, LeafRun(0, 0, 0, 0)
    for index, piece in _pieces(appended) if appended.leaves else ():
        end = last._replace(position=last.position + last.records, leaf=last.leaf + last.records)
        if (index, *piece) == (start + last.records, *end._replace(records=piece.records)):
            last = last._replace(records=last.records + piece.records)
            continue
        if last.records:
            yield start, last
        start, last = index, piece
    if last.records:
        yield start, last


def _pieces(appended: AppendResult) -> Iterator[tuple[int, LeafRun]]:
    """Yield pieces of the runs with the index of their first event: of single events, unless all are new."""
    positions = appended.positions
    if isinstance(positions, range):
        for run in appended.leaves:
            first, end = max(run.position, positions.start), min(run.position + run.records, positions.stop)
            if first < end:
                yield first - positions.start, LeafRun(first, end - first, run.tree, run.leaf + first - run.position)
        return
    runs = iter(appended.leaves)
    at = next(runs, None)
    for index, (outcome, position) in enumerate(zip(appended.outcomes, positions, strict=True)):
        if outcome not in (Outcome.NEW, Outcome.REFRESH):
            continue
        while at is not None and position >= at.position + at.records:
            at = next(runs, None)
        if at is not None and position >= at.position:
            yield index, LeafRun(position, 1, at.tree, at.leaf + position - at.position)


def _read_origins(conn: Connection, trees: Iterable[int]) -> dict[int, str]:
    return {tree: read_tree(conn, tree).origin for tree in trees}
