"""One run: the plan is played in a world of its own, and then everything is checked."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web_app

from eventd.errors import EventdError
from eventd.simulation.checks.answers import AnswerReference
from eventd.simulation.checks.branches import NOT_TAKEN, count_branches
from eventd.simulation.checks.calls import counted_calls
from eventd.simulation.checks.conflicts import ConflictReference
from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.error_lines import ErrorLine, errors_logged
from eventd.simulation.checks.evictions import EvictedEvents
from eventd.simulation.checks.flushes import flush_violations
from eventd.simulation.checks.loads import judge_loads
from eventd.simulation.checks.replays import replay_violations
from eventd.simulation.checks.rest import COMPARISON_SECONDS, GAP_REPORT_SECONDS, NoRest, await_rest, list_all
from eventd.simulation.checks.stored_rows import ServerRows, StoredRows, open_file
from eventd.simulation.checks.tables import StoredTables, differences
from eventd.simulation.checks.topics import losable_epochs
from eventd.simulation.checks.violation import Violation
from eventd.simulation.faults.fault import FaultKind
from eventd.simulation.faults.inflict import Misfortune, NoStart
from eventd.simulation.faults.pairs import pairs_that_met
from eventd.simulation.load.after_restores import compare_links, pull_lost
from eventd.simulation.load.conflicts import without_shared
from eventd.simulation.load.declarations import settle_declarations
from eventd.simulation.load.kinds import count_units, look_at, perform_load, renew_declarations, unrest_of
from eventd.simulation.load.renewals import DELETION
from eventd.simulation.load.retention import retentions_of
from eventd.simulation.plan import SimulationPlan
from eventd.simulation.world.disk import DATABASE
from eventd.simulation.world.loop import BEGIN, Stuck
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import ChanceStreams
from eventd.simulation.world.unwinding import unwinding_quietly
from eventd.simulation.world.world import SimulatedWorld, database_of

if TYPE_CHECKING:
    from eventd.store.schema.scratch_databases import ScratchDatabases

PATH_BYTES = 160
"""The length of the path of a run's folder."""
_FOLDER = "eventd-simulation-"
_RANDOM_BYTES = 8
"""How many characters `tempfile.mkdtemp` adds to a name."""
APPLY_SECONDS = 60.0
"""Virtual seconds in which the nodes must take their resources."""
_ROLLED_BACK = "eventd.history: history finding: rolled_back "
"""What is logged of a node that was restored, before its name."""
_OLDER_COPY = "eventd.history: history is an older copy: "
"""What a node that was restored logs of itself, before the name of the peer that has shown it."""
_REFUSED_TILES = "eventd.history: history tiles refused: "
"""What is logged of an answer with a changed bit, before the name of the peer that sent it."""
LEAST_ACKNOWLEDGED = 0.8
"""The share of the planned units of each kind of load that must be acknowledged for a run to count."""


@dataclass(slots=True)
class SimulationResult:
    """What a run did and found. `sum` identifies its steps; `counts`: whether it was worth its time."""

    seed: int
    violations: list[Violation] = field(default_factory=list)
    acknowledged: int = 0
    units: int = 0
    units_acknowledged: int = 0
    work: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many units of each kind of load were planned, and how many of them were acknowledged."""
    delivered: int = 0
    """Batches that were delivered between two faults."""
    batches: int = 0
    """Batches for which a sender has a receipt."""
    shape: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    pairs: list[str] = field(default_factory=list)
    """The pairs of kinds of faults that met."""
    branches: dict[str, int] = field(default_factory=dict)
    """How often each rare branch was taken."""
    kills: int = 0
    power_losses: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Virtual seconds."""
    sum: int = 0
    cpu_seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Return whether enough was acknowledged and delivered, so that the absence of violations means something."""
        enough = all(done >= LEAST_ACKNOWLEDGED * planned for planned, done in self.work.values())
        return enough and self.units > 0 and (self.delivered > 0 or sum(self.faults.values()) < 2)


class SimulationRun:
    """Plays one plan. `trace` is called with a line for each step; `server`: where the nodes have their databases."""

    def __init__(
        self,
        plan: SimulationPlan,
        folder: Path,
        trace: Callable[[str], None] | None = None,
        server: ScratchDatabases | None = None,
    ) -> None:
        self.plan = plan
        self.result = SimulationResult(plan.seed)
        self.world = SimulatedWorld(plan.topology, ChanceStreams(plan.seed), folder, server)
        self.world.loop.trace = trace
        self.misfortune = Misfortune(self.world, plan.faults)
        clocks = [fault.target for fault in plan.faults if fault.kind == FaultKind.CLOCK]
        self.world.set_retentions(retentions_of(plan.load, clocks))
        self._span = (0.0, 0.0)
        self._server = server

    def play(self) -> SimulationResult:
        """Play the plan, check everything, and return what was found."""
        found = self.result
        with errors_logged() as errors, counted_calls() as calls, self.world.running() as run:
            try:
                final = run(self._live())
                run(self._stop())
                found.violations += self._judge(final)
            except NoRest as error:
                self._violate("V1", "all", f"no rest: {error}")
                found.violations[:0] = self._reference().violations({})  # perhaps the cause
            except (NoStart, Stuck) as error:
                self._violate("V19", "all", str(error))
            except Exception as error:
                self._violate("V31", "all", f"{type(error).__name__}: {error}")
            found.violations += self._unhandled(errors)
            found.branches = self._count_branches(calls)
        self._figures()
        return found

    def _count_branches(self, calls: Counter[str]) -> dict[str, int]:
        found = count_branches(self.world.machines.values(), self.world.journal, calls)
        return {name: count for name, count in found.items() if name not in NOT_TAKEN[self.plan.store]}

    async def _live(self) -> dict[str, list[dict[str, Any]]]:
        """Return the lists of all nodes at rest."""
        world = self.world
        for machine in world.machines.values():
            await machine.start()
        for client in world.clients.values():
            await client.life.start(_apply(world, client))
        for machine in world.machines.values():
            machine.on_ready = self._look
        begin = world.loop.time()
        strikes = world.start(self.misfortune.strike())
        await perform_load(world, self.plan.load)
        await strikes
        self._span = (begin, world.loop.time())
        await self.misfortune.calm()
        await renew_declarations(world, self.plan.load)
        await settle_declarations(world, self.plan.load)
        await await_rest(world, self._unrest_of)
        if world.journal.retentions:
            await world.loop.pause(GAP_REPORT_SECONDS)
            await await_rest(world, self._unrest_of)
        if world.journal.restores:
            await world.loop.pause(COMPARISON_SECONDS)
            await await_rest(world, self._unrest_of)
            await compare_links(world)
            await await_rest(world, self._unrest_of)
            await pull_lost(world)
            await await_rest(world, self._unrest_of)
        for client in world.clients.values():
            await client.life.start(self._look_at_last(client))
        return {name: await client.life.start(_list(world, client)) for name, client in world.clients.items()}

    async def _unrest_of(self, client: ApiClient) -> list[str]:
        return await unrest_of(self.world, client, self.plan.load)

    def _look(self, name: str) -> None:
        """Ask a node that has started again for all of its events."""
        client = self.world.clients[name]
        client.life.start(list_all(self.world, client))
        client.life.start(look_at(self.world, client, self.plan.load))

    async def _look_at_last(self, client: ApiClient) -> None:
        if not await look_at(self.world, client, self.plan.load):
            raise NoRest(f"{client.machine.name} does not list its topics")

    async def _stop(self) -> None:
        for machine in self.world.machines.values():
            await machine.stop()
            self.world.lost += [f"{machine.name} stopped, and left {name}" for name in machine.left_behind]

    def _judge(self, final: dict[str, list[dict[str, Any]]]) -> list[Violation]:
        topology, journal = self.world.topology, self.world.journal
        retentions = journal.retentions
        at = self.world.loop.time() - BEGIN
        losable = losable_epochs(journal, self.plan.load)
        stored = dict[str, StoredTables]()
        for name in topology.nodes:
            epochs = journal.epochs(name) + losable.get(name, 0)
            with self._rows_of(name) as rows:
                stored[name] = StoredTables(
                    name,
                    rows,
                    topology,
                    at,
                    epochs,
                    retentions.get(name),
                    may_have_holes=any(asked.host == name for asked in journal.of(DELETION)),
                )
        contents = EmittedContents(journal)
        evicted = EvictedEvents(stored, topology, retentions, contents)
        found = list(self._reference().violations(without_shared(journal, final), evicted.explain))
        found += ConflictReference(journal, topology, final, stored, BEGIN).violations()
        found += evicted.violations(at)
        found += replay_violations(journal, BEGIN)
        for name in topology.nodes:
            found += judge_loads(journal, name, BEGIN)
        for name, tables in stored.items():
            found += tables.violations()
            if name in self.world.journal.commits:
                found += flush_violations(self.world.journal, tables, name, BEGIN)
            found += tables.changed(contents)
            self.result.delivered += tables.delivered(*self._span)
            self.result.batches += len(tables.settled_batches())
        restored = [name for name in topology.nodes if self.world.journal.is_restored(name)]
        found += differences(stored, topology, at, restored)
        return found

    @contextmanager
    def _rows_of(self, name: str) -> Iterator[StoredRows]:
        if self._server is None:
            with open_file(self.world.machines[name].disk.folder / DATABASE) as rows:
                yield rows
        else:
            with self._server.reading(database_of(name)) as session:
                yield ServerRows(session)

    def _reference(self) -> AnswerReference:
        reference = AnswerReference(self.world.journal, self.world.topology, BEGIN)
        self.result.acknowledged = reference.acknowledged
        return reference

    def _unhandled(self, errors: list[ErrorLine]) -> Iterator[Violation]:
        """Yield the errors that nothing has handled: of the nodes, and of the simulation's own tasks."""
        at = self.world.loop.time() - BEGIN
        yield from (Violation("V31", "all", text, at) for text in self.world.lost)
        # A restored node continues from fewer leaves than its peers have seen: they find that, and so may it itself.
        nodes = self.plan.topology.nodes
        restored = [name for name in nodes if self.world.journal.is_restored(name)]
        true = [f"{_ROLLED_BACK}{name}" for name in restored]
        true += [f"{_OLDER_COPY}{peer}" for peer in nodes if restored]
        true += [f"{_REFUSED_TILES}{peer}" for peer in nodes if FaultKind.FLIP in self.misfortune.inflicted]
        if self.misfortune.bad_servers:
            errors = [line for line in errors if not line.is_of_server]
        if not self.misfortune.bad_disks:
            yield from (Violation("V31", "all", line.text, at) for line in errors if line.text not in true)

    def _violate(self, invariant: str, host: str, detail: str) -> None:
        self.result.violations.append(Violation(invariant, host, detail, self.world.loop.time() - BEGIN))

    def _figures(self) -> None:
        found, world = self.result, self.world
        found.shape = self.plan.topology.shape
        found.work = count_units(world.journal, self.plan.load)
        found.units = sum(planned for planned, _ in found.work.values())
        found.units_acknowledged = sum(done for _, done in found.work.values())
        found.faults, found.pairs = self.misfortune.inflicted, pairs_that_met(self.misfortune.times)
        found.power_losses = sum(machine.boots - 1 for machine in world.machines.values())
        ends = world.journal.count("kill") + world.journal.count("power")
        found.kills = ends - found.power_losses  # on Postgres, the journal has both as kills
        found.steps, found.sum = world.loop.steps, world.loop.sum
        found.seconds = world.loop.time() - BEGIN


async def _apply(world: SimulatedWorld, client: ApiClient) -> None:
    text = "\n---\n".join(msgspec.json.encode(each).decode() for each in world.documents(client.machine.name))
    reply = await client.ask("apply", "POST", "/resources/apply", {"sources": [{"name": "plan", "text": text}]})
    if not reply.is_good:
        raise RuntimeError(f"the resources of {client.machine.name} were refused: {reply}")


async def _list(world: SimulatedWorld, client: ApiClient) -> list[dict[str, Any]]:
    found = await list_all(world, client)
    if found is None:
        raise NoRest(f"{client.machine.name} does not list its events")
    return found


def play(
    plan: SimulationPlan,
    trace: Callable[[str], None] | None = None,
    within: Path | None = None,
    watch: Callable[[SimulationRun], None] | None = None,
    server: ScratchDatabases | None = None,
) -> SimulationResult:
    """Play a plan in a new folder below `within`, which is removed afterwards; return what was found.

    `watch` gets the run before it begins. With `server`, the nodes have databases on it, which are dropped afterwards.
    Raises `EventdError` if the folder has no room.
    """
    folder = _make_folder(within)
    was_on = gc.isenabled()
    gc.disable()
    try:
        try:
            run = SimulationRun(plan, folder, trace, server)
        except OSError as error:
            what = f"the files of simulated nodes cannot be written in {folder.parent}: {error.strerror}"
            raise EventdError(what, hint="free some space, or name another folder with TMPDIR") from None
        try:
            return _watched(run, watch).play()
        finally:
            run.world.drop_databases()
            del run
    finally:
        _forget_applications()
        with unwinding_quietly():
            gc.collect()
            gc.collect()  # what the first one has unwound
        if was_on:
            gc.enable()
        shutil.rmtree(folder, ignore_errors=True)


def _make_folder(within: Path | None) -> Path:
    """Return a new folder below `within`, by a path of a fixed length unless `within` alone is too long for it.

    Nodes write paths into answers and errors, whose lengths decide in how many pieces they arrive: with paths of other
    lengths, a seed would have other steps.
    """
    inside = Path(within or tempfile.gettempdir()).resolve()
    missing = PATH_BYTES - len(os.fsencode(inside / _FOLDER)) - _RANDOM_BYTES
    return Path(tempfile.mkdtemp(prefix=_FOLDER + "-" * missing, dir=inside))


def _watched(run: SimulationRun, watch: Callable[[SimulationRun], None] | None) -> SimulationRun:
    if watch is not None:
        watch(run)
    return run


def _forget_applications() -> None:
    """Empty the cache in which aiohttp keeps applications, and with them all that is left of a run."""
    cached = getattr(web_app, "_cached_build_middleware", None)
    if cached is not None:
        cached.cache_clear()
