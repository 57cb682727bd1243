"""One node of a mesh as processes: one, or a pair of which one serves and the other stands by."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.client import ClientProcess
from tests.chaos.kinds import PRELOADED
from tests.chaos.link_faults import TIMEOUT_SECONDS
from tests.chaos.load import FAILED
from tests.chaos.plan import QUIET
from tests.chaos.preload import Preload, compiler
from tests.support.child_processes import is_running
from tests.support.declared import group, peer
from tests.support.processes import DAEMON
from tests.support.running import NodeProcess

if TYPE_CHECKING:
    from tests.chaos.mesh import Mesh

IMPATIENT = (
    sys.executable,
    "-c",
    "from eventd.cli import routerd_eventd; from eventd.cli.daemon import standby, workers;"
    " standby.SILENT_SECONDS = 4; workers.SILENT_SECONDS = 8; routerd_eventd.main()",
)
"""The daemon, but it considers a node lost after 4 seconds instead of 15, and a worker hung after 8 instead of 20."""


class Member:
    """A node and its resources. `running` is the process that serves, or served last."""

    def __init__(self, mesh: Mesh, name: str, database_url: str | None) -> None:
        self.mesh = mesh
        self.name = name
        self.database_url = database_url
        self.busy = False
        self.troubled = False
        """Whether its disk or database failed on purpose: its log may then contain errors."""
        self.unsynced = False
        """Whether its database server ended without the commits that do not wait for the disk."""
        self.keys: list[dict[str, Any]] = []
        self.workers = mesh.plan.workers.get(name, 1)
        self.loads = mesh.plan.loads.get(name, ())
        self.preload = self._preload()
        self.running = self._start(name, ready=True)
        self.instances = [self.running]
        if self.is_pair:
            self.instances.append(self._start(f"{name}-2", ready=False))
        self.port = self.running.port
        self.client: ClientProcess | None = None

    @property
    def is_pair(self) -> bool:
        return self.name in self.mesh.plan.pairs

    def _preload(self) -> Preload | None:
        kinds = {fault.kind for fault in self.mesh.faults if fault.target == self.name}
        return Preload(self.mesh.directory, self.name) if kinds & PRELOADED and compiler() else None

    def _start(self, name: str, *, ready: bool) -> NodeProcess:
        env = {"EVENTD_LOG_FORMAT": "json", "EVENTD_DRAIN_TIMEOUT": "2s", "EVENTD_CALLBACK_ALLOW": "127.0.0.1"}
        if self.workers > 1:
            env["EVENTD_WORKERS"] = str(self.workers)
        if self.is_pair:
            env["EVENTD_STANDBY"] = "1"
        if self.preload is not None:
            env |= self.preload.environment
        program = IMPATIENT if self.is_pair or self.workers > 1 else DAEMON
        return NodeProcess(
            self.mesh.processes, name, database_url=self.database_url, ready=ready, program=program, **env
        )

    # --- resources ------------------------------------------------------------------------------------------

    def documents(self) -> list[dict[str, Any]]:
        """Return the resources that the node should have now."""
        plan = self.mesh.plan
        protocols = ["v1"] if self.name in plan.v1 else ["v1", "v2"]
        port = 0 if self.name == QUIET else self.port
        documents = [group(self.name, port=port, auth={"keys": self.keys}, protocols=protocols)]
        for link in plan.links:
            if link.source == self.name:
                spec: dict[str, Any] = {"relay": link.relay, "limits": {"timeout": f"{TIMEOUT_SECONDS}s"}}
                if link.types:
                    spec["types"] = list(link.types)
                documents.append(peer(link.dest, self.mesh.proxies[link.name].peer.port, **spec))
        return [*documents, *self.mesh.work.documents(self)]

    def declare(self) -> bool:
        """Apply the resources; return False while the node is unreachable."""
        try:
            self.running.apply(*self.documents(), prune=True)
        except FAILED:
            return False
        return True

    # --- processes ------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Return whether it serves. Raises AssertionError with the log of a process that has exited by itself.

        The processes of a pair may exit, because they lose their claim; they are started again, as a service manager
        does.
        """
        for each in self.instances:
            if not each.process.running:
                assert self.is_pair, f"{self.name} ended:\n{each.process.log_tail()}"
                revive(each)
        for each in self.instances:
            if is_ready(each):
                self.running = each
                return True
        return False

    def start(self) -> None:
        """Start every process that is not running."""
        for each in self.instances:
            if not each.process.running:
                each.process.start()

    def share_history_key(self) -> None:
        """Give the key of the node's history to the one that stands by, as its operator does: either may serve."""
        for each in self.instances:
            if each is not self.running:
                shutil.copy(self.running.data / "history.key", each.data / "history.key")

    def kill(self) -> None:
        """Kill every process of the node."""
        for each in self.instances:
            if each.process.running:
                each.kill9()

    def pids(self) -> list[int]:
        """Return the process that serves and all below it."""
        main = self.running.process
        return [main.pid, *(pid for pid, _ in descendants(main.pid))] if main.running else []

    def worker_pids(self) -> list[int]:
        """Return the workers of the process that serves."""
        return [pid for pid, command in descendants(self.running.process.pid) if b"daemon.worker" in command]

    def plugin_pids(self) -> list[int]:
        """Return the programs of plugins that run now."""
        program = bytes(self.mesh.work.program(self.name))
        return [pid for each in self.instances for pid, command in _descendants_of(each) if program in command]

    def control(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `routerctl` on this node's data."""
        env = self.mesh.processes.node_environment(self.name, database_url=self.database_url)
        return self.mesh.processes.control(*arguments, env=env)

    def log(self) -> str:
        """Return what all processes of the node have logged."""
        return "".join(each.process.log() for each in self.instances)


def revive(node: NodeProcess) -> None:
    """Start the process again if it has exited by itself."""
    if not node.process.running:
        node.process.wait_exit()
        node.process.start()


def is_ready(node: NodeProcess) -> bool:
    """Return whether this process serves."""
    try:
        return node.process.get("/readyz", seconds=2.0)[0] == 200
    except FAILED:
        return False


def freeze(node: NodeProcess, number: signal.Signals) -> None:
    """Send SIGSTOP or SIGCONT to the process and its workers at once, as a frozen machine does."""
    for pid in (node.process.pid, *(pid for pid, _ in descendants(node.process.pid))):
        if is_running(pid):
            os.kill(pid, number)


def descendants(pid: int) -> Iterator[tuple[int, bytes]]:
    """Yield the processes below a process, with their command lines."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return
    for child in children:
        try:
            yield child, Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        yield from descendants(child)


def _descendants_of(node: NodeProcess) -> Iterator[tuple[int, bytes]]:
    return descendants(node.process.pid) if node.process.running else iter(())
