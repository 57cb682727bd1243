"""Damages segments of a written lake where the damage makes no other fault unprovable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from eventd.audit.generate.faults import Fault
from eventd.audit.generate.gap_ledgers import refusals_of
from eventd.audit.generate.pseudo_random import random_of
from eventd.audit.report.findings import Finding, corrupt_segment
from eventd.errors import Invalid
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment
from tests.support.federations.world import FullWorld

_FLIPPED: Final = slice(64, 80)
"""Bytes of a file that are inverted."""


def require_enough(world: FullWorld) -> None:
    """Raise Invalid if there may be fewer segments than are to be damaged."""
    least = sum(1 for node in range(world.settings.nodes) if node not in world.silent for _ in refusals_of(world, node))
    if world.settings.corrupt > least:
        hint = f"there are {least} segments on which nothing else rests; give more nodes, or a longer span"
        raise Invalid(f"--corrupt is {world.settings.corrupt}", hint=hint)


def damage(
    world: FullWorld, faults: Iterable[Fault], storage: Storage, segments: Iterable[Segment]
) -> Iterator[Finding]:
    """Damage segments: those of refusals, and every second one of the nodes that have no part in another fault."""
    involved = {world.names[node] for fault in faults for node in fault.nodes}
    by_name = {one.place.name: one for one in segments}
    random = random_of(world.settings.seed, "corrupt")
    names = [str(name) for name in random.permutation(sorted(by_name))]
    short = [name for name in names if by_name[name].place.book is Ledger.REFUSALS]
    others = [name for name in names if name not in short and by_name[name].manifest.node not in involved]
    for at in range(world.settings.corrupt):
        name = (others if at % 2 and others else short or others).pop()
        place, manifest = by_name[name]
        _damage(storage, by_name[name], at)
        yield corrupt_segment(manifest.node, name, place.after, place.upto, "")


def _damage(storage: Storage, segment: Segment, way: int) -> None:
    """Change the segment, truncate it, or remove its manifest."""
    place = segment.place
    data = storage.read(place.data)
    if way % 3 == 0:
        flipped = bytes(byte ^ 0xFF for byte in data[_FLIPPED])
        storage.put(place.data, data[: _FLIPPED.start] + flipped + data[_FLIPPED.stop :])
    elif way % 3 == 1:
        storage.put(place.data, data[: len(data) // 2])
    else:
        storage.delete([place.manifest])
