"""The nodes of a plan as processes, and a proxy in front of each link that injects faults."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.link_faults import LINK_FAULTS, TIMEOUT_SECONDS
from tests.chaos.load import FAILED
from tests.chaos.plan import OLD, Link, Plan
from tests.support.declared import group, peer
from tests.support.flaky_peer import Deed, FlakyPeer, Forward, ReceivedRequest
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.processes import DAEMON, Processes
from tests.support.running import SECRET, NodeProcess
from tests.support.v1_node import V1Receiver

DISK_MEBIBYTES = 192
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


class LinkProxy:
    """The proxy between a node and a peer. At most one fault is active; the last one that began counts."""

    def __init__(self, link: Link, target: int, hits: Counter[str]) -> None:
        self.link = link
        self.hits = hits
        self._fault: tuple[str, Random] | None = None
        self.peer = FlakyPeer(free_port(), self._behave, target, patience=3.0)

    def begin(self, kind: str, number: int) -> tuple[str, Random]:
        """Inject a fault into requests from now on."""
        self._fault = fault = (kind, Random(number))
        if "reset" in kind or "closed" in kind:
            self.peer.drop_connections()
        return fault

    def end(self, fault: tuple[str, Random]) -> None:
        """End the fault, unless another one has begun meanwhile."""
        if self._fault is fault:
            self._fault = None

    def _behave(self, _: ReceivedRequest) -> Deed:
        self.peer.heard.clear()  # an hour of requests is too much to keep
        if (fault := self._fault) is None:
            return Forward()
        kind, chance = fault
        if chance.random() > 0.7:
            return Forward()
        self.hits[kind] += 1
        return LINK_FAULTS[kind](chance)


class Member:
    """One node of the mesh and its resources."""

    def __init__(self, mesh: Mesh, name: str, database_url: str | None) -> None:
        self.mesh = mesh
        self.name = name
        self.database_url = database_url
        self.busy = False
        self.troubled = False
        """Whether its disk or database failed on purpose: its log may then contain errors."""
        self.keys: list[dict[str, Any]] = []
        self.clock = mesh.directory / f"{name}.clock"
        env = {"EVENTD_LOG_FORMAT": "json", "EVENTD_DRAIN_TIMEOUT": "2s"}
        if FAKETIME and any(fault.kind == "clock step" and fault.target == name for fault in mesh.faults):
            self.set_clock(0)
            env |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                "FAKETIME_CACHE_DURATION": "1",  # it would read its file at each look at the clock
                "DONT_FAKE_MONOTONIC": "1",
            }
        self.running = NodeProcess(mesh.processes, name, database_url=database_url, **env)

    def set_clock(self, seconds: int) -> None:
        """Shift the wall clock of the node."""
        draft = self.clock.with_suffix(".draft")
        draft.write_text(f"{seconds:+d}s\n")
        draft.replace(self.clock)

    def documents(self) -> list[dict[str, Any]]:
        """Return the resources that the node should have now."""
        plan = self.mesh.plan
        protocols = ["v1"] if self.name in plan.v1 else ["v1", "v2"]
        auth = {"keys": self.keys}
        documents = [group(self.name, port=self.running.port, auth=auth, protocols=protocols)]
        for link in plan.links:
            if link.source == self.name:
                spec: dict[str, Any] = {"relay": link.relay, "limits": {"timeout": f"{TIMEOUT_SECONDS}s"}}
                if link.types:
                    spec["types"] = list(link.types)
                documents.append(peer(link.dest, self.mesh.proxies[link.name].peer.port, **spec))
        return documents

    def declare(self) -> bool:
        """Apply the resources; return False while the node is unreachable."""
        try:
            self.running.apply(*self.documents(), prune=True)
        except FAILED:
            return False
        return True

    def ready(self) -> bool:
        """Return whether it is up. Raises AssertionError with its log if it has exited by itself."""
        assert self.running.process.running, f"{self.name} ended:\n{self.running.process.log_tail()}"
        try:
            return self.running.process.get("/readyz", seconds=2.0)[0] == 200
        except FAILED:
            return False

    def control(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `routerctl` on this node's data."""
        env = self.mesh.processes.node_environment(self.name, database_url=self.database_url)
        return self.mesh.processes.control(*arguments, env=env)


class Mesh:
    """Everything that runs for one plan."""

    def __init__(
        self, plan: Plan, processes: Processes, server: PostgresServer | None, *, private_mounts: bool
    ) -> None:
        self.plan = plan
        self.processes = processes
        self.server = server
        self.private_mounts = private_mounts
        self.directory = processes.directory
        self.faults = [fault for faults in plan.rounds for fault in faults]
        self.hits: Counter[str] = Counter()
        self.proxies: dict[str, LinkProxy] = {}
        self.members: dict[str, Member] = {}
        self.old: V1Receiver | None = None
        self.generation = 0
        self.rotating = False

    def key(self, generation: int, state: str = "active") -> dict[str, Any]:
        """Return a key of the keyring that all nodes share."""
        file = self.directory / f"key-{generation}"
        if not file.exists():
            file.write_text(self.secret(generation))
        return {"id": f"k{generation}", "owner": "*", "state": state, "secretFile": str(file)}

    def secret(self, generation: int) -> str:
        """Return the secret of a key."""
        return f"{SECRET}{generation}"

    def start(self, stack: ExitStack) -> None:
        """Start all nodes and apply the mesh; `stack` closes everything."""
        for name in self.plan.nodes:
            database_url = None
            if self.server is not None:
                database_url = self.server.create_database()
                stack.callback(self.server.drop_database, database_url)
            elif self.has_own_disk(name):
                stack.enter_context(_small_disk(self.directory / name))
            self.members[name] = Member(self, name, database_url)
            self.members[name].keys = [self.key(0)]
        stack.callback(self._close)
        ports = {name: member.running.port for name, member in self.members.items()}
        if any(link.dest == OLD for link in self.plan.links):
            self.old = stack.enter_context(V1Receiver(free_port(), self.secret(0).encode()))
            ports[OLD] = self.old.port
        for link in self.plan.links:
            proxy = self.proxies[link.name] = LinkProxy(link, ports[link.dest], self.hits)
            stack.callback(proxy.peer.close)
        for member in self.members.values():
            member.running.apply(*member.documents())
            member.running.wait_listening()
        for link in self.plan.links:  # `auto` has detected the peer's protocol before a fault can disguise it
            self.members[link.source].running.wait_link(link.dest, "running")

    def _close(self) -> None:
        with redirect_stdout(StringIO()):  # it prints all logs, which are in the folder
            self.processes.close()

    def new_epoch(self, member: Member) -> None:
        """Begin a new epoch of a restored database; the node is down."""
        env = self.processes.node_environment(member.name, database_url=member.database_url)
        done = self.processes.run([*DAEMON, "migrate", "--new-epoch"], env=env)
        assert done.returncode == 0, f"{member.name}: migrate --new-epoch: {done.stdout}{done.stderr}"

    def has_own_disk(self, name: str) -> bool:
        """Return whether the node lies on a small file system of its own."""
        kinds = {fault.kind for fault in self.faults if fault.target == name}
        return self.server is None and self.private_mounts and bool(kinds & {"disk full", "read-only at start"})

    def reaches(self, source: str, kind: str) -> set[str]:
        """Return the nodes that receive an event of this type from `source`, itself included."""
        found, waiting = {source}, [source]
        while waiting:
            at = waiting.pop()
            for link in self.plan.links:
                meant = not link.types or kind in link.types
                if link.source == at and link.dest not in found and meant and (link.relay or at == source):
                    found.add(link.dest)
                    waiting.append(link.dest)
        return found


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={DISK_MEBIBYTES}m", "eventd-chaos", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def mount(*arguments: str) -> None:
    """Run the command `mount`. Raises AssertionError with its output."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"mount {' '.join(arguments)}: {done.stderr}"
