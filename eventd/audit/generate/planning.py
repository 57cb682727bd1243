"""What is decided before a row is written, in the order in which one thing follows from the other."""

from __future__ import annotations

from collections.abc import Iterable

from eventd.audit.generate.batches import batch_ids, id_of
from eventd.audit.generate.faults import Fault, Planter
from eventd.audit.generate.log_positions import number_all
from eventd.audit.generate.routes import Routes
from eventd.audit.generate.settings import Settings, check
from eventd.audit.generate.world import World
from eventd.audit.report.findings import Discrepancy, Finding, group_findings


def plan(settings: Settings) -> tuple[World, list[Fault]]:
    """The federation, and its faults. Raises Invalid for settings that cannot be."""
    check(settings)
    world = World(settings)
    Routes(world).connect()
    faults = Planter(world).plant()
    number_all(world)
    return world, faults


def findings_of(world: World, faults: Iterable[Fault]) -> list[Finding]:
    """The findings of a correct audit."""
    return group_findings(_fact(world, fault) for fault in faults)


def _fact(world: World, fault: Fault) -> Discrepancy:
    history = world.histories[fault.source]
    parts = (world.groups[fault.group], world.names[history.node], world.names[fault.peer])
    if fault.number is None:
        name = str(batch_ids(world, fault.flow)[fault.batch].tobytes(), "ascii")
        return Discrepancy(fault.kind, *parts, 0, name, fault.detail)
    commit = history.commit_of(fault.number)
    seq = 0 if history.ghost else int(history.seq[commit] + fault.number - history.first[commit])
    return Discrepancy(fault.kind, *parts, seq, id_of(world, fault.source, fault.number), fault.detail)
