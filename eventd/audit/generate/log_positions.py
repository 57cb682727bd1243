"""The order in which each node recorded its entries: positions, seqs, and the numbers of its ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from eventd.audit.generate.emitters import Emitter
from eventd.audit.generate.flows import Flow
from eventd.audit.generate.pseudo_random import Ints, Mask
from eventd.audit.generate.world import World

OWN: Final = -1
"""Used instead of a flow's uid for the node's own events."""


@dataclass(frozen=True)
class Journal:
    """The entries of a node's log or batch ledger, in the order of the true times `at`.

    Entry i is batch `batch[i]` of the flow with uid `flow[i]`. In a log, each entry is a commit, and `flow[i]` is OWN
    for commit `batch[i]` of the node's own emitter.
    """

    at: Ints
    flow: Ints
    batch: Ints

    def __len__(self) -> int:
        return len(self.at)


def number_all(world: World) -> None:
    """Set positions and seqs in all logs, the heads of the logs, and the counts and ranges of all batches."""
    for flow in world.flows:
        flow.count_events(world.emitters[flow.source].expiring)
    for node in range(world.settings.nodes):
        _number_log(world, node)
    links: dict[tuple[int, int, int], list[Flow]] = {}
    for flow in world.flows:
        links.setdefault((flow.sender, flow.peer, flow.group), []).append(flow)
    for flows in links.values():
        _find_ranges(world, flows)


def log_of(world: World, node: int) -> Journal:
    """Return the commits to a node's log in order: of its own events, and of batches from its peers."""
    emitter = world.emitters[node]
    journals = [Journal(emitter.at, np.full_like(emitter.at, OWN), np.arange(len(emitter.at)))]
    for flow in world.flows:
        if flow.peer == node:
            batches = np.flatnonzero(np.diff(flow.held_at))
            journals.append(Journal(flow.recorded[batches], np.full_like(batches, flow.uid), batches))
    return _merge(journals)


def outbox_of(world: World, node: int) -> Journal:
    """Return the batches in the node's receipts ledger, in the order of acknowledgement."""
    return _merge([_whole(one, one.acked) for one in world.flows if one.sender == node and one.kept])


def inbox_of(world: World, node: int) -> Journal:
    """Return the batches in the node's inbound ledger, in the order of recording."""
    came = [one for one in world.flows if one.peer == node and one.given]
    return _merge([_some(_whole(one, one.recorded), ~one.empty) for one in came])


class RecordPositions(NamedTuple):
    """The positions of events in a node's log, their seqs in the group, and when they were recorded, by its clock."""

    position: Ints
    seq: Ints
    at: Ints


def positions_of(world: World, flow: Flow, numbers: Ints) -> RecordPositions:
    """Return where the log of the flow's sender has the flow's events with these numbers."""
    skew = world.skews[flow.sender]
    if flow.feed is None:
        emitter = world.emitters[flow.source]
        commit = np.searchsorted(emitter.first, numbers, "right") - 1
        within = numbers - emitter.first[commit]
        return RecordPositions(
            emitter.position[commit] + within, emitter.seq[commit] + within, emitter.at[commit] + skew
        )
    feed = flow.feed
    place = np.searchsorted(feed.held, numbers)
    batch = np.searchsorted(feed.held_at, place, "right") - 1
    within = place - feed.held_at[batch]
    return RecordPositions(feed.position[batch] + within, feed.seq[batch] + within, feed.recorded[batch] + skew)


def sizes_of(world: World, journal: Journal, emitter: Emitter) -> Ints:
    """Return the number of events in each commit to a log."""
    sizes = np.zeros(len(journal), np.int64)
    for uid, places in by_flow(journal):
        edges = emitter.first if uid == OWN else world.flows[uid].held_at
        sizes[places] = np.diff(edges)[journal.batch[places]]
    return sizes


def by_flow(journal: Journal) -> list[tuple[int, Ints]]:
    """Return a pair for each flow in a journal: its uid (OWN for own events), and the indexes of its entries."""
    order = np.argsort(journal.flow, kind="stable")
    found, starts = np.unique(journal.flow[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=True)) if len(found) else []


def _number_log(world: World, node: int) -> None:
    emitter = world.emitters[node]
    journal = log_of(world, node)
    sizes = sizes_of(world, journal, emitter)
    position = np.cumsum(sizes) - sizes + 1
    group = np.zeros(len(journal), np.int64)
    for uid, places in by_flow(journal):
        group[places] = emitter.group[journal.batch[places]] if uid == OWN else world.flows[uid].group
    seq = position.copy()
    for each in range(len(world.groups) if len(world.groups) > 1 else 0):
        places = np.flatnonzero(group == each)
        seq[places] = np.cumsum(sizes[places]) - sizes[places] + 1
    for uid, places in by_flow(journal):
        target = emitter if uid == OWN else world.flows[uid]
        target.position, target.seq = np.zeros_like(target.commit_times), np.zeros_like(target.commit_times)
        target.position[journal.batch[places]] = position[places]
        target.seq[journal.batch[places]] = seq[places]
    world.heads.append(int(sizes.sum()))


def _find_ranges(world: World, flows: Sequence[Flow]) -> None:
    """Set the range of each batch in its sender's positions, and the peer's mark after it.

    A regular batch begins where the previous one ended.
    """
    ordinary = [one for one in flows if not (one.alone or one.repair)]
    for one in flows:
        ghost = world.emitters[one.source].ghost
        one.upto = np.zeros(1, np.int64) if ghost else positions_of(world, one, one.last).position
        one.after = one.upto - (0 if one.probe or ghost else 1)
        if one.repair and not one.alone:
            one.after = np.append(0, one.upto[:-1])
    if ordinary:
        ends = np.concatenate([one.upto for one in ordinary])
        order = np.argsort(ends, kind="stable")
        after = np.empty_like(ends)
        after[order] = np.append(0, ends[order][:-1])
        edges = np.cumsum([one.batches for one in ordinary])[:-1]
        for one, begun in zip(ordinary, np.split(after, edges), strict=True):
            one.after, one.mark = begun, one.upto
    known = np.sort(np.concatenate([one.recorded for one in ordinary])) if ordinary else np.zeros(0, np.int64)
    ranks = np.sort(np.concatenate([one.upto for one in ordinary])) if ordinary else known
    for one in flows:
        if one.alone or one.repair:
            one.mark = np.append(0, ranks)[np.searchsorted(known, one.recorded, "right")]
        if one.alone and not one.repair:  # the peer accepts no batch that begins after its mark
            one.mark = np.maximum(one.mark, one.upto)


def _whole(flow: Flow, at: Ints) -> Journal:
    return Journal(at, np.full_like(at, flow.uid), np.arange(len(at)))


def _some(journal: Journal, chosen: Mask) -> Journal:
    return Journal(journal.at[chosen], journal.flow[chosen], journal.batch[chosen])


def _merge(journals: Sequence[Journal]) -> Journal:
    if not journals:
        none = np.zeros(0, np.int64)
        return Journal(none, none, none)
    at, flow, batch = (np.concatenate([getattr(one, name) for one in journals]) for name in ("at", "flow", "batch"))
    order = np.lexsort((batch, flow, at))
    return Journal(at[order], flow[order], batch[order])
