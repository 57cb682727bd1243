"""Plans the federation and its faults before any row is written, because positions depend on the faults."""

from __future__ import annotations

from collections.abc import Iterable

from eventd.audit.generate.batches import batch_ids, id_of
from eventd.audit.generate.delivery_simulator import DeliverySimulator
from eventd.audit.generate.faults import Fault, FaultInjector
from eventd.audit.generate.log_positions import number_all
from eventd.audit.generate.settings import GeneratorSettings, check
from eventd.audit.generate.world import World
from eventd.audit.report.findings import Discrepancy, Finding, group_findings


def plan(settings: GeneratorSettings) -> tuple[World, list[Fault]]:
    """Return the federation, with all positions set, and its faults. Raises Invalid for settings that cannot be met."""
    check(settings)
    world = World(settings)
    DeliverySimulator(world).connect()
    faults = FaultInjector(world).inject()
    number_all(world)
    return world, faults


def findings_of(world: World, faults: Iterable[Fault]) -> list[Finding]:
    """Return the findings that a correct audit reports for these faults."""
    return group_findings(_discrepancy(world, fault) for fault in faults)


def _discrepancy(world: World, fault: Fault) -> Discrepancy:
    emitter = world.emitters[fault.source]
    parts = (world.groups[fault.group], world.names[emitter.node], world.names[fault.peer])
    if fault.number is None:
        name = str(batch_ids(world, fault.flow)[fault.batch].tobytes(), "ascii")
        return Discrepancy(fault.kind, *parts, 0, name, fault.detail)
    commit = emitter.commit_of(fault.number)
    seq = 0 if emitter.ghost else int(emitter.seq[commit] + fault.number - emitter.first[commit])
    return Discrepancy(fault.kind, *parts, seq, id_of(world, fault.source, fault.number), fault.detail)
