"""Generates a lake and its expected findings from settings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from eventd.audit.generate.catalogue import EventCatalogue
from eventd.audit.generate.planning import findings_of, plan
from eventd.audit.generate.settings import GeneratorSettings
from eventd.audit.generate.shipping import ship
from eventd.audit.generate.truth import Truth
from eventd.audit.generate.world import World
from eventd.audit.report.findings import Finding
from eventd.errors import Conflict
from eventd.lake.layout import HEAD
from eventd.lake.manifest import LakeHead, encode
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import Segment


def write_lake(settings: GeneratorSettings, url: str, *, progress: Callable[[int], None]) -> Truth:
    """Write the ledgers of all nodes to an empty lake, and return the findings and totals to expect of an audit.

    Raises Invalid, Conflict, LakeUnavailable and MissingExtra.
    """
    storage = connect_empty(url)
    world, faults = plan(settings)
    write_head(storage, settings)
    catalogue, segments = EventCatalogue(world), []
    for node in range(settings.nodes):
        segments += ship(world, catalogue, node, storage)
        progress(node + 1)
    found = findings_of(world, faults)
    return Truth(settings=settings, totals=totals(world, segments, found), findings=tuple(found))


def connect_empty(url: str) -> Storage:
    """Return the storage at an address. Raises Conflict if it is not empty."""
    storage = connect(url)
    if storage.list(""):
        raise Conflict(f"{storage.url} is not empty", hint="choose an empty folder")
    return storage


def write_head(storage: Storage, settings: GeneratorSettings) -> None:
    """Write the lake's head, with an id derived from the settings: no audit resumes from another lake's state."""
    lake = hashlib.sha256(msgspec.msgpack.encode(settings)).hexdigest()[:16]
    storage.put(HEAD, encode(LakeHead(id=lake, made_at=settings.start)))


def totals(world: World, segments: Sequence[Segment], found: Sequence[Finding]) -> dict[str, int]:
    """Return the numbers of events, deliveries and findings, named as in a report, and of rows, as `rows_LEDGER`."""
    rows: dict[Ledger, int] = dict.fromkeys(Ledger, 0)
    for _, manifest in segments:
        rows[manifest.book] += manifest.rows
    shipped = (emitter for emitter in world.emitters if not emitter.ghost and emitter.node not in world.silent)
    counts = {"events": sum(emitter.events for emitter in shipped), "deliveries": rows[Ledger.DELIVERIES]}
    return counts | {f"rows_{book.value}": count for book, count in rows.items()} | {"findings": len(found)}
