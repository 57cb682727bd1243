"""Inflicts the planned faults on the machines of a world, and restarts nodes as a service manager does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from eventd.errors import EventdError
from eventd.simulation.faults.adversary import Adversary
from eventd.simulation.faults.fault import Fault, FaultKind
from eventd.simulation.world.disk import DiskFault
from eventd.simulation.world.journal import Restore
from eventd.simulation.world.machine import JOB_SECONDS, PEER_PORT, Died, Machine
from eventd.simulation.world.network import MEAN_SECONDS
from eventd.simulation.world.path import Path, Wall
from eventd.simulation.world.session_failures import SessionFailure
from eventd.simulation.world.world import SimulatedWorld

if TYPE_CHECKING:  # it needs psycopg
    from eventd.simulation.world.postgres_sessions import NodeSessions

AGAIN_SECONDS: Final = 1.0
"""Seconds after which a node that did not start is started again."""

MOST_TRIES: Final = 30
"""How often a node with a bad disk is started in a row."""


class NoStart(Exception):
    """A node does not start although its disk is sound."""


class Misfortune:
    """The faults of one run."""

    def __init__(self, world: SimulatedWorld, faults: Sequence[Fault]) -> None:
        self.inflicted: dict[str, int] = {}
        """How many faults of each kind had an effect."""
        self.times: list[tuple[float, str]] = []
        """When each of them began, and its kind."""
        self.bad_disks: dict[str, None] = {}
        """The machines whose disks have failed."""
        self.bad_servers: dict[str, None] = {}
        """The machines whose statements on Postgres have failed."""
        self._world = world
        self._faults = faults
        self._adversary = Adversary(world) if any(each.kind == FaultKind.REPLAY for each in faults) else None
        self._keeping: dict[str, None] = {}  # machines that are down on purpose

    async def strike(self) -> None:
        """Inflict every fault at its time; return when the last one is over, and every node runs."""
        tasks = [self._world.start(self._suffer(fault)) for fault in self._faults]
        for task in tasks:
            await task

    async def calm(self) -> None:
        """End every fault, and start every node that does not run."""
        self._world.network.calm()
        for machine in self._world.machines.values():
            machine.disk.fault = DiskFault.NONE
            if machine.sessions is not None:
                machine.sessions.judges.clear()
                machine.sessions.outages = 0
            machine.job_seconds = JOB_SECONDS
            machine.wall.correct()
            machine.on_job = _ignore
            machine.thaw()
            if not machine.is_running and machine.name not in self._keeping:
                await self.start(machine)

    async def start(self, machine: Machine) -> None:
        """Start a node, again whenever it is killed meanwhile, or its disk fails. Raises `NoStart`."""
        self._keeping[machine.name] = None
        tries = 0
        while True:
            try:
                await machine.start()
                break
            except Died:
                await self._world.loop.pause(AGAIN_SECONDS)
            except EventdError as error:
                tries += 1
                machine.kill()
                if tries > MOST_TRIES or machine.name not in self.bad_disks | self.bad_servers:
                    raise NoStart(f"{machine.name} does not start: {error}") from None
                await self._world.loop.pause(AGAIN_SECONDS)
        self._keeping.pop(machine.name, None)

    # --- kinds ----------------------------------------------------------------------------------------------------

    async def _suffer(self, fault: Fault) -> None:
        await self._world.loop.pause(fault.at)
        machine = self._world.machines[fault.target]
        match fault.kind:
            case FaultKind.KILL | FaultKind.POWER | FaultKind.STOP | FaultKind.EPOCH:
                await self._fell(machine, fault.kind, fault)
            case FaultKind.RESTORE:
                await self._restore(machine, fault)
            case FaultKind.REPLAY:
                if self._adversary is not None and await self._adversary.replay(fault):
                    self._count(fault)
            case FaultKind.AT_JOB:
                await self._ambush(machine, fault)
            case FaultKind.AT_ANSWER:
                await self._await_answer(machine, fault)
            case FaultKind.AT_STATEMENT:
                await self._await_statement(machine, fault)
            case _:
                await self._disturb(machine, fault)

    def _count(self, fault: Fault) -> None:
        self._world.loop.note(f"fault {fault}")
        self.times.append((self._world.loop.time(), fault.kind))
        self.inflicted[fault.kind] = self.inflicted.get(fault.kind, 0) + 1

    async def _fell(self, machine: Machine, how: str, fault: Fault) -> None:
        if machine.name in self._keeping or not machine.is_running:
            return
        self._keeping[machine.name] = None
        self._count(fault)
        if how == FaultKind.POWER:
            machine.lose_power()
        elif how in (FaultKind.KILL, FaultKind.EPOCH):
            machine.kill()
            machine.begins_epoch = how == FaultKind.EPOCH
        else:
            with suppress(Died):  # by another fault
                await machine.stop()
        await self._world.loop.pause(fault.seconds)
        await self.start(machine)

    async def _restore(self, machine: Machine, fault: Fault) -> None:
        """Copy the database now, and replace it by the copy when this is as old as the fault says."""
        loop, journal = self._world.loop, self._world.journal
        copy, copied_at, boots = machine.disk.copy(), loop.time(), machine.boots
        await loop.pause(fault.amount)
        while machine.name in self._keeping:
            await loop.pause(AGAIN_SECONDS)
        self._keeping[machine.name] = None
        self._count(fault)
        # After a power loss, the head file may be older than the copy: then only the command begins a new epoch.
        machine.restore(copy, by_hand=fault.mode == "by hand" and machine.boots == boots)
        journal.restores.append(Restore(machine.name, copied_at, loop.time()))
        await loop.pause(fault.seconds)
        await self.start(machine)

    async def _ambush(self, machine: Machine, fault: Fault) -> None:
        """Fell the machine between a job and its answer, also while it starts."""
        loop = self._world.loop
        fallen = loop.create_future()
        left = fault.number

        def count(_pool: str) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not fallen.done():
                fallen.set_result(None)
                machine.on_job = _ignore
                loop.call_soon(self._end, machine, fault, context=self._world.network.context)

        machine.on_job = count
        loop.call_later(10.0, lambda: None if fallen.done() else fallen.cancel())
        await self._raise_again(machine, fault, fallen)

    async def _await_answer(self, machine: Machine, fault: Fault) -> None:
        """Fell the machine at the moment when its client gets an answer to an emit."""
        loop = self._world.loop
        fallen = loop.create_future()
        left = fault.number

        def count(host: str) -> None:
            nonlocal left
            if host != machine.name:
                return
            left -= 1
            if left == 0 and not fallen.done():
                fallen.set_result(None)
                self._world.journal.listeners.remove(count)
                loop.call_soon(self._end, machine, fault, context=self._world.network.context)

        self._world.journal.listeners.append(count)
        loop.call_later(10.0, lambda: None if fallen.done() else fallen.cancel())
        await self._raise_again(machine, fault, fallen)
        if count in self._world.journal.listeners:
            self._world.journal.listeners.remove(count)

    async def _await_statement(self, machine: Machine, fault: Fault) -> None:
        """Let a statement fail, or the process end before it."""
        loop, judges = self._world.loop, _sessions_of(machine).judges
        fallen = loop.create_future()
        left = fault.number

        def judge(commits: bool) -> SessionFailure | None:
            nonlocal left
            left -= commits or fault.mode != SessionFailure.UNANSWERED_COMMIT
            if left > 0 or fallen.done():
                return None
            fallen.set_result(None)
            self._count(fault)
            self.bad_servers[machine.name] = None
            return SessionFailure(fault.mode)

        judges.append(judge)
        loop.call_later(10.0, lambda: None if fallen.done() else fallen.cancel())
        await self._raise_again(machine, fault, fallen)
        if judge in judges:
            judges.remove(judge)

    def _end(self, machine: Machine, fault: Fault) -> None:
        if machine.life is None or machine.life.is_dead:
            return
        self._count(fault)
        if fault.mode == "power":
            machine.lose_power()
        else:
            machine.kill()

    async def _raise_again(self, machine: Machine, fault: Fault, fallen: asyncio.Future[None]) -> None:
        try:
            await fallen
        except asyncio.CancelledError:
            return
        await self._world.loop.pause(fault.seconds)
        if not machine.is_running and machine.name not in self._keeping:
            await self.start(machine)

    async def _disturb(self, machine: Machine, fault: Fault) -> None:
        """Inflict a fault that the process survives, and end it after its time."""
        undo = self._begin(machine, fault)
        await self._world.loop.pause(fault.seconds)
        undo()

    def _begin(self, machine: Machine, fault: Fault) -> Callable[[], None]:
        self._count(fault)
        network = self._world.network
        match fault.kind:
            case FaultKind.WALL:
                ways = [(machine.name, fault.other)] + [(fault.other, machine.name)] * bool(fault.amount)
                paths = [network.path(*way) for way in ways]
                for path in paths:
                    path.wall = Wall(fault.mode)
                if fault.mode == "refuse":
                    network.break_present(machine.name, fault.other)
                return lambda: _tear_down(paths)
            case FaultKind.CUT:
                path = network.path(machine.name, fault.other)
                path.cut = fault.amount
                return lambda: setattr(path, "cut", 0.0)
            case FaultKind.SLOW:
                path = network.path(machine.name, fault.other)
                path.mean = fault.amount
                return lambda: setattr(path, "mean", MEAN_SECONDS)
            case FaultKind.FLIP:
                path = network.path(machine.name, fault.other)
                path.flip = fault.amount
                return lambda: setattr(path, "flip", 0.0)
            case FaultKind.PROXY:
                way = machine.name, fault.other, PEER_PORT
                network.proxies[way] = fault.mode
                network.break_present(machine.name, fault.other)
                return lambda: network.end_proxy(*way)
            case FaultKind.SLOW_DISK:
                machine.job_seconds = fault.amount
                return lambda: setattr(machine, "job_seconds", JOB_SECONDS)
            case FaultKind.DISK:
                machine.disk.fault = DiskFault(fault.mode)
                self.bad_disks[machine.name] = None
                return lambda: setattr(machine.disk, "fault", DiskFault.NONE)
            case FaultKind.STATEMENT:
                return self._fail_statements(machine, fault)
            case FaultKind.SERVER:
                sessions = _sessions_of(machine)
                self.bad_servers[machine.name] = None
                sessions.outages += 1
                sessions.break_all()
                return lambda: setattr(sessions, "outages", max(0, sessions.outages - 1))
            case FaultKind.CLOCK:
                machine.wall.offset += fault.amount
                return lambda: setattr(machine.wall, "offset", machine.wall.offset - fault.amount)
            case FaultKind.FREEZE:
                machine.freeze()
                return machine.thaw
        raise ValueError(f"{fault.kind!r} is not a kind of fault")

    def _fail_statements(self, machine: Machine, fault: Fault) -> Callable[[], None]:
        self.bad_servers[machine.name] = None
        judges, stream = _sessions_of(machine).judges, self._world.streams.of(f"statements {machine.name}")

        def judge(_commits: bool) -> SessionFailure | None:
            return SessionFailure(fault.mode) if stream.random() < fault.amount else None

        judges.append(judge)
        return lambda: judges.remove(judge) if judge in judges else None


def _sessions_of(machine: Machine) -> NodeSessions:
    assert machine.sessions is not None, "a plan for Postgres is played on Postgres"
    return machine.sessions


def _tear_down(paths: Sequence[Path]) -> None:
    for path in paths:
        path.wall = Wall.NONE


def _ignore(_pool: str) -> None:
    """Do nothing after a job."""
