"""Carries out the faults of a plan. A fault is a generator in the main thread: it yields the seconds until its next
step."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import resource
import signal
import time
from collections.abc import Callable, Generator
from random import Random

from tests.chaos.load import Ledger
from tests.chaos.mesh import FAKETIME, Member, Mesh, mount
from tests.chaos.plan import Fault

Steps = Generator[float, None, None]
_LOOK = 0.05
_PATIENCE = 60.0


class Faults:
    """Runs the faults of a round; `skipped` lists what this machine cannot do, `done` counts the others."""

    def __init__(self, mesh: Mesh, ledger: Ledger) -> None:
        self.mesh = mesh
        self.ledger = ledger
        self.done: dict[str, int] = {}
        self.skipped: dict[str, str] = {}

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
        member = self.mesh.members[fault.target]
        yield from _until(lambda: not member.busy, f"{member.name} to be free for {fault.kind}")
        member.busy = True
        yield from _KINDS[fault.kind](self, member, fault)
        yield from self._up(member)
        member.busy = False
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1

    def _impossible(self, fault: Fault) -> str:
        if fault.kind == "clock step" and FAKETIME is None:
            return "libfaketime is not installed"
        if fault.kind in ("disk full", "read-only at start") and not self.mesh.private_mounts:
            return "may not mount in a namespace of its own"
        return ""

    def _spoil(self, fault: Fault) -> Steps:
        proxy = self.mesh.proxies[fault.target]
        begun = proxy.begin(fault.kind, fault.number)
        yield fault.seconds
        proxy.end(begun)

    def _up(self, member: Member) -> Steps:
        """Wait until the node is up and its resources are applied."""
        if not member.running.process.running:
            member.running.process.start()
        yield from _until(member.ready, f"{member.name} to be ready")
        yield from _until(member.declare, f"{member.name} to take what is declared")

    # --- kinds ----------------------------------------------------------------------------------------------

    def _kill(self, member: Member, fault: Fault) -> Steps:
        member.running.kill9()
        yield fault.seconds

    def _kill_at_start(self, member: Member, fault: Fault) -> Steps:
        chance = Random(fault.number)
        for _ in range(chance.randint(1, 3)):
            member.running.kill9()
            member.running.process.start()
            yield chance.random() * 1.2  # anywhere between nothing done and everything open
        member.running.kill9()

    def _freeze(self, member: Member, fault: Fault) -> Steps:
        member.running.process.send(signal.SIGSTOP)
        yield fault.seconds
        member.running.process.send(signal.SIGCONT)

    def _end_sessions(self, member: Member, fault: Fault) -> Steps:
        assert self.mesh.server is not None
        assert member.database_url is not None
        member.troubled = True
        for _ in range(3):
            self.mesh.server.end_sessions(member.database_url)
            yield fault.seconds / 3

    def _fill_disk(self, member: Member, fault: Fault) -> Steps:
        member.troubled = True
        ballast = member.running.data / "ballast"
        with ballast.open("wb") as file:
            size, step = 0, 1 << 24
            while step >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), size, step)
                    size += step
                except OSError:
                    step //= 2
        yield fault.seconds
        ballast.unlink()

    def _fail_writes(self, member: Member, fault: Fault) -> Steps:
        member.troubled = True
        pid = member.running.process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
        yield fault.seconds
        if member.running.process.running:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))

    def _start_read_only(self, member: Member, fault: Fault) -> Steps:
        member.troubled = True
        member.running.kill9()
        mount("-o", "remount,ro", str(member.running.data))
        try:
            process = member.running.process.start()
            yield fault.seconds
            if process.running:
                assert not member.ready(), f"{member.name} is ready on a read-only disk"
                member.running.kill9()
            else:
                assert process.wait_exit() != 0
        finally:
            mount("-o", "remount,rw", str(member.running.data))

    def _restore(self, member: Member, fault: Fault) -> Steps:
        copy = self.mesh.directory / f"{member.name}.copy"
        begun = time.monotonic()
        if member.database_url is None:
            copy.unlink(missing_ok=True)
            _run(member, "db", "backup", str(copy))
        else:
            assert self.mesh.server is not None
            self.mesh.server.dump(member.database_url, copy)
        yield fault.seconds
        member.running.kill9()
        if member.database_url is None:
            _run(member, "db", "restore", str(copy), "--yes")
        else:
            assert self.mesh.server is not None
            self.mesh.server.restore(member.database_url, copy)
            self.mesh.new_epoch(member)
        self.ledger.lost.append((member.name, begun, time.monotonic()))

    def _rotate(self, member: Member, fault: Fault) -> Steps:
        mesh = self.mesh
        yield from _until(lambda: not mesh.rotating, "the last rotation to be done")
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
                yield from _until(lambda each=each: not each.busy and each.declare(), f"{each.name} to know its keys")  # type: ignore[misc]
            if mesh.old is not None and len(keys) == 2 and keys[1]["state"] == "active":
                mesh.old.secret = mesh.secret(new).encode()
            yield fault.seconds / 3
        for proxy, its in begun:
            proxy.end(its)
        mesh.generation = new
        mesh.rotating = False
        yield from _until(lambda: not member.busy, f"{member.name} to be free again")
        member.busy = True

    def _step_clock(self, member: Member, fault: Fault) -> Steps:
        member.set_clock(Random(fault.number).choice((-3600, 3600, -86_400, 86_400)))
        yield fault.seconds
        member.set_clock(0)


_KINDS: dict[str, Callable[[Faults, Member, Fault], Steps]] = {
    "kill": Faults._kill,
    "kill at start": Faults._kill_at_start,
    "freeze": Faults._freeze,
    "database sessions ended": Faults._end_sessions,
    "disk full": Faults._fill_disk,
    "writes fail": Faults._fail_writes,
    "read-only at start": Faults._start_read_only,
    "restore": Faults._restore,
    "keys rotated under partition": Faults._rotate,
    "clock step": Faults._step_clock,
}


def _until(fact: Callable[[], bool], what: str) -> Steps:
    end = time.monotonic() + _PATIENCE
    while not fact():
        assert time.monotonic() < end, f"waited {_PATIENCE:g} s for {what}"
        yield _LOOK


def _run(member: Member, *arguments: str) -> None:
    done = member.control(*arguments)
    assert done.returncode == 0, f"{member.name}: routerctl {' '.join(arguments)}: {done.stdout}{done.stderr}"
