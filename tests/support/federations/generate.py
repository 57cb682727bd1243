"""Writes a lake and its truth from full settings, in one process or several."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Final

import numpy as np

from eventd.audit.generate.catalogue import EventCatalogue, EventRows
from eventd.audit.generate.emitters import EventColumns
from eventd.audit.generate.faults import Fault
from eventd.audit.generate.flows import Flow
from eventd.audit.generate.lake_writer import connect_empty, totals, write_head
from eventd.audit.generate.log_positions import number_all
from eventd.audit.generate.planning import findings_of
from eventd.audit.generate.pseudo_random import Ints, random_of
from eventd.audit.generate.segments import Block
from eventd.audit.generate.shipping import ship
from eventd.audit.generate.truth import Truth
from eventd.audit.report.findings import epoch_change, in_order
from eventd.errors import Invalid
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import Segment
from tests.support.federations.damage import damage, require_enough
from tests.support.federations.faults import FullFaultInjector
from tests.support.federations.routes import FullDeliverySimulator
from tests.support.federations.settings import FullSettings, check_full
from tests.support.federations.world import FullWorld

MOST_KEPT: Final = 8_000_000
"""The number of events up to which they are kept in memory, at a hundred bytes each; more are made again for each use.
"""


def generate(settings: FullSettings, url: str, *, processes: int = 1) -> Truth:
    """Write the ledgers of all nodes. Raises Invalid, Conflict."""
    storage = connect_empty(url)
    world, faults = _plan(settings)
    require_enough(world)
    write_head(storage, settings)
    segments = [segment for written in _ship_all(world, storage, url, processes) for segment in written]
    epochs = [epoch_change(world.names[node], world.epoch(node, 1), "") for node in world.restarts]
    found = in_order([*findings_of(world, faults), *epochs, *damage(world, faults, storage, segments)])
    return Truth(settings=settings, totals=totals(world, segments, found), findings=tuple(found))


def _plan(settings: FullSettings) -> tuple[FullWorld, list[Fault]]:
    check_full(settings)
    world = FullWorld(settings)
    FullDeliverySimulator(world).connect()
    faults = FullFaultInjector(world).inject()
    shipping = [node for node in range(settings.nodes) if node not in world.silent]
    for node in random_of(settings.seed, "epochs").permutation(shipping)[: settings.epoch].tolist():
        world.restarts[node] = _quiet_moment(world, node)
    number_all(world)
    return world, faults


def _ship_all(world: FullWorld, storage: Storage, url: str, processes: int) -> Iterator[list[Segment]]:
    nodes = [node for node in range(world.settings.nodes) if node not in world.silent]
    if processes == 1:
        catalogue = _catalogue(world)
        yield from (ship(world, catalogue, node, storage) for node in nodes)
        return
    # Each process computes the same plan: that is faster than to send it.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (world.settings, url))
    with pool:
        for future in as_completed([pool.submit(_ship_one, node) for node in nodes]):
            yield future.result()


_PLANS: list[tuple[FullWorld, EventCatalogue, Storage]] = []


def _begin(settings: FullSettings, url: str) -> None:
    world, _ = _plan(settings)
    _PLANS.append((world, _catalogue(world), connect(url)))


def _ship_one(node: int) -> list[Segment]:
    world, catalogue, storage = _PLANS[0]
    return ship(world, catalogue, node, storage)


def _catalogue(world: FullWorld) -> EventCatalogue:
    return EventCatalogue(world) if sum(one.events for one in world.emitters) <= MOST_KEPT else _LargeCatalogue(world)


class _LargeCatalogue(EventCatalogue):
    """Makes events again for each use, because there are too many to keep."""

    def __init__(self, world: FullWorld) -> None:
        self._emitters = world.emitters

    def look_up(self, block: Block, sources: Ints, numbers: Ints) -> EventRows:
        ends = np.cumsum(block.counts)
        first, last = numbers[ends - block.counts], numbers[ends - 1]
        parts, shift, size = [], np.zeros(len(sources), np.int64), 0
        for source in np.unique(sources):
            those = np.flatnonzero(sources == source)
            begin, end = int(first[those].min()), int(last[those].max()) + 1
            parts.append(self._emitters[source].events_of(begin, end))
            shift[those] = size - begin
            size += end - begin
        return EventRows(
            EventColumns(*map(np.concatenate, zip(*parts, strict=True))), numbers + np.repeat(shift, block.counts)
        )


def _quiet_moment(world: FullWorld, node: int) -> int:
    """Return a time at which no event of the node was in transit: it was stopped, copied, and started from the copy."""
    settings = world.settings
    begun, done = [], []
    for flow in world.flows:
        if node in (flow.sender, flow.peer):
            begun.append(_begun(world, flow))
            done.append(flow.acked)
    first = np.concatenate(begun)
    order = np.argsort(first, kind="stable")
    latest = np.maximum.accumulate(np.concatenate(done)[order])
    share = random_of(settings.seed, "turn", node).uniform(0.3, 0.7, 20_000)
    tried = settings.start + (share * settings.span).astype(np.int64)
    before = np.searchsorted(first[order], tried, "right") - 1
    free = tried[(before >= 0) & (latest[before] + 1_000 < tried)]
    if not len(free):
        raise Invalid("no node is ever idle, so none can be restored from a back-up", hint="give a longer span")
    return int(free[0])


def _begun(world: FullWorld, flow: Flow) -> Ints:
    """Return when the sender recorded the first event of each batch."""
    if flow.feed is not None or not len(flow.rows):
        return flow.sent
    emitter = world.emitters[flow.source]
    first = flow.rows[np.minimum(np.searchsorted(flow.rows, flow.edges[:-1]), len(flow.rows) - 1)]
    return np.minimum(flow.sent, emitter.at[np.searchsorted(emitter.first, first, "right") - 1])
