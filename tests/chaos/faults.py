"""Carries out the faults of a plan. A fault is a generator in the main thread: it yields the seconds until its next
step."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import signal
import time
from collections.abc import Callable
from random import Random

from tests.chaos import disk_faults, namespaces
from tests.chaos.kinds import NETWORK, NODE_FAULTS, OWN_DISK, PRELOADED, SERVER
from tests.chaos.load import Ledger
from tests.chaos.member import Member, freeze, is_ready, revive
from tests.chaos.mesh import Mesh
from tests.chaos.plan import Fault
from tests.chaos.preload import compiler
from tests.chaos.steps import Steps, run_control, until
from tests.support.postgres import PostgresServer

_TAKEN_OVER_SECONDS = 30.0


class Faults:
    """Runs the faults of a round; `skipped` lists what this machine cannot do, `done` counts the others."""

    def __init__(self, mesh: Mesh, ledger: Ledger) -> None:
        self.mesh = mesh
        self.ledger = ledger
        self.done: dict[str, int] = {}
        self.skipped: dict[str, str] = {}
        self.idle: dict[str, int] = {}
        """How often a fault found nothing to happen to, such as a plugin that did not run."""

    @property
    def kills(self) -> int:
        """The number of times that `kill -9` ended a process."""
        return sum(count for kind, count in self.done.items() if NODE_FAULTS[kind].kills)

    def run(self, faults: tuple[Fault, ...], seconds: float) -> None:
        """Return when all faults are over and the round's time has passed."""
        begun, order = time.monotonic(), itertools.count()
        waiting = [(begun + fault.at, next(order), self._fault(fault)) for fault in faults]
        heapq.heapify(waiting)
        while waiting:
            due, _, steps = heapq.heappop(waiting)
            time.sleep(max(0.0, due - time.monotonic()))
            with contextlib.suppress(StopIteration):
                heapq.heappush(waiting, (time.monotonic() + next(steps), next(order), steps))
        time.sleep(max(0.0, begun + seconds - time.monotonic()))

    def _fault(self, fault: Fault) -> Steps:
        if ">" in fault.target:
            yield from self._spoil(fault)
            return
        if reason := self._impossible(fault):
            self.skipped[fault.kind] = reason
            return
        members = [*self.mesh.members.values()]
        if fault.target not in (SERVER, NETWORK):
            members = [self.mesh.members[fault.target]]
        yield from until(lambda: not any(each.busy for each in members), f"{fault.target} to be free for {fault.kind}")
        for each in members:
            each.busy = True
        idle = self.idle.get(fault.kind, 0)
        if fault.kind in _SHARED:
            yield from _SHARED[fault.kind](self, fault)
        else:
            yield from _KINDS[fault.kind](self, members[0], fault)
        for each in members:
            yield from self._up(each)
            each.busy = False
        if idle == self.idle.get(fault.kind, 0):
            self.done[fault.kind] = self.done.get(fault.kind, 0) + 1

    def _impossible(self, fault: Fault) -> str:
        if fault.kind in PRELOADED and compiler() is None:
            return "there is no C compiler"
        if fault.kind in OWN_DISK and not namespaces.has_mounts():
            return "may not mount in a namespace of its own"
        if fault.target == NETWORK and not namespaces.has_network():
            return "may not have a network namespace of its own"
        return ""

    def _spoil(self, fault: Fault) -> Steps:
        proxy = self.mesh.proxies[fault.target]
        begun = proxy.begin(fault.kind, fault.number)
        yield fault.seconds
        proxy.end(begun)

    def _up(self, member: Member) -> Steps:
        """Wait until the node is up and its resources are applied."""
        member.start()
        yield from until(member.ready, f"{member.name} to be ready")
        yield from until(member.declare, f"{member.name} to take what is declared")

    def note_idle(self, fault: Fault) -> None:
        """Count a fault that found nothing to happen to."""
        self.idle[fault.kind] = self.idle.get(fault.kind, 0) + 1

    # --- processes ------------------------------------------------------------------------------------------

    def _kill(self, member: Member, fault: Fault) -> Steps:
        if member.running.process.running:
            member.running.kill9()
        yield fault.seconds

    def _kill_at_start(self, member: Member, fault: Fault) -> Steps:
        chance = Random(fault.number)
        for _ in range(chance.randint(1, 3)):
            member.kill()
            member.start()
            yield chance.random() * 1.2  # anywhere between nothing done and everything open
        member.kill()

    def _kill_worker(self, member: Member, fault: Fault) -> Steps:
        chance = Random(fault.number)
        for _ in range(chance.randint(1, 3)):
            if pids := member.worker_pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(pids), signal.SIGKILL)
            else:
                self.note_idle(fault)
            yield fault.seconds / 3

    def _kill_plugin(self, member: Member, fault: Fault) -> Steps:
        end, killed = time.monotonic() + fault.seconds, 0
        while time.monotonic() < end and killed < 5:
            for pid in member.plugin_pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            yield 0.01
        if not killed:
            self.note_idle(fault)

    def _freeze(self, member: Member, fault: Fault) -> Steps:
        frozen = member.running
        if Random(fault.number).random() < 0.5:  # the main process alone, whose workers keep running
            frozen.process.send(signal.SIGSTOP)
        else:
            freeze(frozen, signal.SIGSTOP)
        yield fault.seconds
        freeze(frozen, signal.SIGCONT)

    def _freeze_holder(self, member: Member, fault: Fault) -> Steps:
        """Freeze the node that serves until the other one does: when it continues, it must end and write nothing."""
        yield from until(member.ready, f"{member.name} to be ready")
        frozen = member.running
        other = next(each for each in member.instances if each is not frozen)
        freeze(frozen, signal.SIGSTOP)
        end = time.monotonic() + _TAKEN_OVER_SECONDS
        while not is_ready(other) and time.monotonic() < end:
            revive(other)  # it may have lost the claim to the other one a moment ago
            yield 0.1
        assert is_ready(other), f"{other.name} has not taken over from a frozen node:\n{other.process.log_tail()}"
        member.running = other
        yield fault.seconds
        freeze(frozen, signal.SIGCONT)
        end = time.monotonic() + _TAKEN_OVER_SECONDS
        while frozen.process.running:
            assert not is_ready(frozen), f"{frozen.name} is ready, and {other.name} holds its claim"
            assert time.monotonic() < end, f"{frozen.name} has not ended, and {other.name} holds its claim"
            yield 0.02
        assert frozen.process.wait_exit() == 1

    # --- databases ------------------------------------------------------------------------------------------

    def _end_sessions(self, member: Member, fault: Fault) -> Steps:
        assert self.mesh.server is not None
        assert member.database_url is not None
        member.troubled = True
        for _ in range(3):
            self.mesh.server.end_sessions(member.database_url)
            yield fault.seconds / 3

    def _kill_backend(self, fault: Fault) -> Steps:
        server, chance = self._troubled_server(), Random(fault.number)
        url = chance.choice([*self.mesh.members.values()]).database_url
        assert url is not None
        if not server.kill_backend(url):
            self.note_idle(fault)
        yield fault.seconds

    def _kill_server(self, fault: Fault) -> Steps:
        return self._crash_server(fault, signal.SIGKILL)

    def _stop_server(self, fault: Fault) -> Steps:
        return self._crash_server(fault, signal.SIGQUIT)

    def _crash_server(self, fault: Fault, farewell: signal.Signals) -> Steps:
        server = self._troubled_server()
        server.crash(farewell)
        yield fault.seconds
        server.recover()

    def _troubled_server(self) -> PostgresServer:
        assert self.mesh.server is not None
        for each in self.mesh.members.values():
            each.troubled = each.unsynced = True
        return self.mesh.server

    def _restore(self, member: Member, fault: Fault) -> Steps:
        copy = self.mesh.directory / f"{member.name}.copy"
        begun = time.monotonic()
        server = self.mesh.server
        if member.database_url is None:
            copy.unlink(missing_ok=True)
            run_control(member, "db", "backup", str(copy))
        else:
            assert server is not None
            server.dump(member.database_url, copy)
        yield fault.seconds
        member.kill()
        if member.database_url is None:
            run_control(member, "db", "restore", str(copy), "--yes")
        else:
            assert server is not None
            server.restore(member.database_url, copy)
            self.mesh.new_epoch(member)
        self.ledger.lost.append((member.name, begun, time.monotonic()))

    # --- declarations, clocks, networks -----------------------------------------------------------------------

    def _rotate(self, member: Member, fault: Fault) -> Steps:
        mesh = self.mesh
        yield from until(lambda: not mesh.rotating, "the last rotation to be done")
        mesh.rotating = True
        cut = [proxy for proxy in mesh.proxies.values() if member.name in (proxy.link.source, proxy.link.dest)]
        begun = [(proxy, proxy.begin("black hole on the way there", fault.number)) for proxy in cut]
        old, new = mesh.generation, mesh.generation + 1
        member.busy = False
        for keys in (
            [mesh.key(old), mesh.key(new, "pending")],
            [mesh.key(old, "retiring"), mesh.key(new)],
            [mesh.key(new)],
        ):
            for each in mesh.members.values():
                each.keys = keys
                yield from until(lambda each=each: not each.busy and each.declare(), f"{each.name} to know its keys")  # type: ignore[misc]
            if mesh.old is not None and len(keys) == 2 and keys[1]["state"] == "active":
                mesh.old.secret = mesh.secret(new).encode()
            yield fault.seconds / 3
        for proxy, its in begun:
            proxy.end(its)
        mesh.generation = new
        mesh.rotating = False
        yield from until(lambda: not member.busy, f"{member.name} to be free again")
        member.busy = True

    def _step_clock(self, member: Member, fault: Fault) -> Steps:
        assert member.preload is not None
        member.preload.set_clock(Random(fault.number).choice((-3600, 3600, -86_400, 86_400)))
        yield fault.seconds
        member.preload.set_clock(0)

    def _network_down(self, fault: Fault) -> Steps:
        for each in self.mesh.members.values():
            each.troubled = each.troubled or each.database_url is not None
        namespaces.set_network(up=False)
        try:
            yield fault.seconds
        finally:
            namespaces.set_network(up=True)

    def _delay_packets(self, fault: Fault) -> Steps:
        if reason := namespaces.delay_packets(on=True):
            self.skipped[fault.kind] = reason
            self.note_idle(fault)
            return
        try:
            yield fault.seconds
        finally:
            namespaces.delay_packets(on=False)


_KINDS: dict[str, Callable[[Faults, Member, Fault], Steps]] = {
    "kill": Faults._kill,
    "kill at start": Faults._kill_at_start,
    "worker killed": Faults._kill_worker,
    "plugin killed": Faults._kill_plugin,
    "freeze": Faults._freeze,
    "claim lost while frozen": Faults._freeze_holder,
    "database sessions ended": Faults._end_sessions,
    "restore": Faults._restore,
    "keys rotated under partition": Faults._rotate,
    "clock step": Faults._step_clock,
    **{kind: disk_faults.fault(kind) for kind in disk_faults.KINDS},
}
_SHARED: dict[str, Callable[[Faults, Fault], Steps]] = {
    "database backend killed": Faults._kill_backend,
    "database server killed": Faults._kill_server,
    "database server stopped at once": Faults._stop_server,
    "network down": Faults._network_down,
    "packets late and lost": Faults._delay_packets,
}
