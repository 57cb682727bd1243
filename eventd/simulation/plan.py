"""The plan of a run: topology, load and faults, drawn from a seed before anything happens, and readable as JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from eventd.errors import Invalid
from eventd.simulation.faults.fault import LACKING, OF_PATHS, RATES, SQLITE, USUAL, Fault, FaultKind, draw_faults
from eventd.simulation.load.conflicts import CONFLICT
from eventd.simulation.load.kinds import KINDS, draw_load
from eventd.simulation.load.retention import RETENTION
from eventd.simulation.load.step import LoadStep
from eventd.simulation.world.streams import ChanceStreams
from eventd.simulation.world.topology import SHAPE_WEIGHTS, Topology, client_of, draw_topology, with_v1

RESTORABLE: Final = (
    *("emit", "publishing", "write", "follow", "queue", "route", "watch", "socket", "subscription", "callback"),
    *("declare", "renewal"),
)
"""The kinds of load whose checks know what a restore may take: a run with restores has no others. A run with v1 has no
restore: by v1 a sender does not learn that its peer was restored."""


class RunSize(NamedTuple):
    """How large the runs of a share of all seeds are. `seconds`: the lengths of their loads, with `weights`.

    `shapes`: those of their topologies, by weight. `kinds`: the share of them that has a kind of load. `faults`: mean
    numbers of faults if `USUAL_KINDS` kinds are drawn, one for each run; `aimed`: faults at narrow windows.
    """

    share: float
    seconds: Sequence[float]
    weights: Sequence[float]
    shapes: Mapping[str, float] = SHAPE_WEIGHTS
    kinds: float = 0.5
    faults: Sequence[float] = RATES
    aimed: int = 2


SMALL: Final = RunSize(0.8, (5.0,), (1,), shapes={"pair": 1}, kinds=0.2, faults=(4.0,), aimed=1)
"""Most faults need two nodes and a moment: so many small runs find more in the same time than a few large ones."""
USUAL_SIZE: Final = RunSize(0.19, (6.0, 12.0, 30.0), (5, 3, 1))
LONG: Final = RunSize(0.01, (40.0,), (1,))
SIZES: Final = (SMALL, USUAL_SIZE, LONG)


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """All that is decided before a run. `seed` also seeds the chance of nodes, network and disks during it."""

    seed: int
    topology: Topology
    load: list[LoadStep]
    faults: list[Fault]
    store: str = SQLITE
    """What the nodes have their databases on."""

    def to_json(self) -> bytes:
        """Return the plan as JSON, readable by `plan_from_json`."""
        return msgspec.json.format(msgspec.json.encode(self))

    def lines(self) -> list[str]:
        """Return the plan as readable text."""
        links = ", ".join(f"{link.source}>{link.dest}{' relay' * link.relay}" for link in self.topology.links)
        first = f"seed {self.seed}: {self.topology.shape}, history {self.topology.history}, links {links},"
        return [f"{first} {len(self.load)} steps of load", *(str(fault) for fault in self.faults)]


def draw_plan(
    seed: int, kinds: Collection[str] = (), size: RunSize | None = None, store: str = SQLITE
) -> SimulationPlan:
    """Return the plan of a seed for nodes on a `store`: the same on every machine.

    With `kinds`, it has these kinds of load, and otherwise only what is `USUAL`, in size, too: for tests that know
    what to look for. `size`: that of the run, if the seed does not draw it.
    """
    streams = ChanceStreams(seed)
    if size is None:
        size = USUAL_SIZE if kinds else streams.of("size").choices(SIZES, [each.share for each in SIZES])[0]
    topology = draw_topology(streams.of("topology"), size.shapes)
    if not kinds:
        topology = with_v1(streams.of("v1"), topology)
    seconds = streams.of("length").choices(size.seconds, size.weights)[0]
    load = draw_load(streams, topology, seconds, kinds, share=size.kinds)
    among = USUAL if kinds else FaultKind
    faults = draw_faults(streams, topology, seconds, among, rates=size.faults, aimed=size.aimed, store=store)
    if topology.speaks_v1:
        faults = [fault for fault in faults if fault.kind != FaultKind.RESTORE]
    if any(fault.kind == FaultKind.RESTORE for fault in faults):
        load = [step for step in load if step.kind in RESTORABLE]
    if any(step.kind == RETENTION for step in load):  # of an evicted event nothing shows which source it was of
        load = [step for step in load if step.kind != CONFLICT]
    return SimulationPlan(seed, topology, load, faults, store)


def plan_from_json(text: bytes) -> SimulationPlan:
    """Return the plan that `to_json` has written; a kept one says more of itself.

    Raises `msgspec.DecodeError`, also for a negative time, and `Invalid` for a kind or a node that does not exist.
    """
    plan = msgspec.json.decode(text, type=SimulationPlan)
    for place, found, known, what in _names_in(plan):
        if found not in known:
            raise Invalid(f"{place}: '{found}' is not {what}", hint=f"write one of {', '.join(known)}")
    return plan


def _names_in(plan: SimulationPlan) -> Iterator[tuple[str, str, Collection[str], str]]:
    """Yield the kinds and nodes that a plan names: where, the name, those that exist, and what it has to be."""
    nodes, stores = plan.topology.nodes, [*LACKING]
    yield "store", plan.store, stores, "a database of nodes"
    faults = [each for each in FaultKind if each not in LACKING.get(plan.store, ())]
    kind, node, other = "a kind of load", "a node of the topology", "a node of the topology or its client"
    for number, link in enumerate(plan.topology.links):
        yield f"topology.links[{number}].source", link.source, nodes, node
        yield f"topology.links[{number}].dest", link.dest, nodes, node
    for number, step in enumerate(plan.load):
        yield f"load[{number}].kind", step.kind, KINDS, kind
        yield f"load[{number}].host", step.host, nodes, node
    for number, fault in enumerate(plan.faults):
        yield f"faults[{number}].kind", fault.kind, faults, f"a kind of fault on {plan.store}"
        yield f"faults[{number}].target", fault.target, nodes, node
        if fault.other or fault.kind in OF_PATHS:
            yield f"faults[{number}].other", fault.other, [*nodes, *map(client_of, nodes)], other
