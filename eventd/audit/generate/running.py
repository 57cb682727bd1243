"""From settings to a lake and its truth."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Final

import msgspec

from eventd.audit.generate.catalogue import Catalogue
from eventd.audit.generate.planning import findings_of, plan
from eventd.audit.generate.settings import Settings
from eventd.audit.generate.shipping import ship
from eventd.audit.generate.spoiling import require_enough, spoil
from eventd.audit.generate.truth import Truth
from eventd.audit.generate.world import World
from eventd.audit.report.findings import Finding, epoch_change, in_order
from eventd.errors import Conflict, Invalid
from eventd.lake.layout import HEAD
from eventd.lake.manifest import Head, encode
from eventd.lake.schema import Book
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import Segment

MOST_PROCESSES: Final = 64
Told = Callable[[int], None]
"""Is told how many nodes' books have been written."""


def write_lake(settings: Settings, url: str, *, processes: int, told: Told) -> Truth:
    """Write the books of all nodes. Raises Invalid, Conflict, LakeUnavailable, MissingExtra."""
    if not 1 <= processes <= MOST_PROCESSES:
        raise Invalid(f"--processes is {processes}", hint=f"it can be 1 to {MOST_PROCESSES}")
    storage = connect(url)
    if storage.list(""):
        raise Conflict(f"{storage.url} is not empty", hint="generate into a folder of its own")
    world, hidden = plan(settings)
    require_enough(world)
    # Another lake has another id: what an audit keeps of one is of no use for the other.
    lake = hashlib.sha256(msgspec.msgpack.encode(settings)).hexdigest()[:16]
    storage.put(HEAD, encode(Head(id=lake, made_at=settings.start)))
    segments: list[Segment] = []
    for done, written in enumerate(_ship_all(world, storage, url, processes), 1):
        segments += written
        told(done)
    found = [*findings_of(world, hidden), *_epochs(world), *spoil(world, hidden, storage, segments)]
    return Truth(settings=settings, totals=_totals(world, segments, found), findings=tuple(in_order(found)))


def _ship_all(world: World, storage: Storage, url: str, processes: int) -> Iterator[list[Segment]]:
    nodes = [node for node in range(world.settings.nodes) if node not in world.silent]
    if processes == 1:
        catalogue = Catalogue(world)
        yield from (ship(world, catalogue, node, storage) for node in nodes)
        return
    # Each process makes the same plan for itself: that is quicker than handing it over.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (world.settings, url))
    with pool:
        for future in as_completed([pool.submit(_ship_one, node) for node in nodes]):
            yield future.result()


_PLANS: list[tuple[World, Catalogue, Storage]] = []


def _begin(settings: Settings, url: str) -> None:
    world, _ = plan(settings)
    _PLANS.append((world, Catalogue(world), connect(url)))


def _ship_one(node: int) -> list[Segment]:
    world, catalogue, storage = _PLANS[0]
    return ship(world, catalogue, node, storage)


def _epochs(world: World) -> Iterator[Finding]:
    for node in world.turns:
        yield epoch_change(world.names[node], "")


def _totals(world: World, segments: Iterable[Segment], found: Iterable[Finding]) -> dict[str, int]:
    rows: dict[Book, int] = dict.fromkeys(Book, 0)
    for _, manifest in segments:
        rows[manifest.book] += manifest.rows
    told = (history for history in world.histories if not history.ghost and history.node not in world.silent)
    totals = {"events": sum(history.events for history in told), "deliveries": rows[Book.DELIVERIES]}
    return totals | {f"rows_{book.value}": count for book, count in rows.items()} | {"findings": len(list(found))}
