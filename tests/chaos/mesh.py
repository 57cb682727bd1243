"""The nodes of a plan as processes, and a proxy in front of each link that injects faults."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from random import Random
from typing import Any

from tests.chaos import namespaces
from tests.chaos.client import ClientProcess
from tests.chaos.kinds import OWN_DISK
from tests.chaos.link_faults import LINK_FAULTS
from tests.chaos.load import Ledger
from tests.chaos.member import Member
from tests.chaos.mounts import small_disk
from tests.chaos.plan import OLD, Link, Plan
from tests.chaos.work import Work, wait_topics
from tests.support.flaky_peer import Deed, FlakyPeer, Forward, ReceivedRequest
from tests.support.fresh import create_current
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.processes import DAEMON, Processes
from tests.support.running import SECRET
from tests.support.v1_node import V1Receiver


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


class Mesh:
    """Everything that runs for one plan."""

    def __init__(self, plan: Plan, processes: Processes, server: PostgresServer | None) -> None:
        self.plan = plan
        self.processes = processes
        self.server = server
        self.directory = processes.directory
        self.faults = [fault for faults in plan.rounds for fault in faults]
        self.hits: Counter[str] = Counter()
        self.proxies: dict[str, LinkProxy] = {}
        self.members: dict[str, Member] = {}
        self.old: V1Receiver | None = None
        self.generation = 0
        self.rotating = False
        self.work = Work(self.directory)

    def key(self, generation: int, state: str = "active") -> dict[str, Any]:
        """Return a key of the keyring that all nodes share."""
        file = self.directory / f"key-{generation}"
        if not file.exists():
            file.write_text(self.secret(generation))
        return {"id": f"k{generation}", "owner": "*", "state": state, "secretFile": str(file)}

    def secret(self, generation: int) -> str:
        """Return the secret of a key."""
        return f"{SECRET}{generation}"

    def start(self, stack: ExitStack, ledger: Ledger, pause: float) -> None:
        """Start all nodes and their clients, and apply the mesh; `stack` closes everything."""
        for name in self.plan.nodes:
            database_url = None
            if self.server is not None:
                database_url = create_current(self.server)
                stack.callback(self.server.drop_database, database_url)
            elif self.has_own_disk(name):
                stack.enter_context(small_disk(self.directory / name))
            self.members[name] = Member(self, name, database_url)
            self.members[name].keys = [self.key(0)]
        stack.callback(self._close)
        ports = {name: member.port for name, member in self.members.items()}
        if any(link.dest == OLD for link in self.plan.links):
            self.old = stack.enter_context(V1Receiver(free_port(), self.secret(0).encode()))
            ports[OLD] = self.old.port
        for link in self.plan.links:
            proxy = self.proxies[link.name] = LinkProxy(link, ports[link.dest], self.hits)
            stack.callback(proxy.peer.close)
        for member in self.members.values():
            self.work.prepare(member, Random(f"{self.plan.seed} {member.name}"), stack)
            member.running.apply(*member.documents())
            if any(link.dest == member.name for link in self.plan.links):
                member.running.wait_listening()
            wait_topics(member, self.work)
            member.share_history_key()
        for link in self.plan.links:  # `auto` has detected the peer's protocol before a fault can disguise it
            self.members[link.source].running.wait_link(link.dest, "running")
        for member in self.members.values():
            files = [each.process.port_file for each in member.instances]
            member.client = ClientProcess(member.name, files, member.loads, ledger, self.plan.seed, pause)
            stack.callback(member.client.close)

    def _close(self) -> None:
        for each in (each for member in self.members.values() if member.is_pair for each in member.instances):
            if not each.process.running:
                each.process.wait_exit()  # it lost its claim, which is no failure
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
        return self.server is None and namespaces.has_mounts() and bool(kinds & OWN_DISK)

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
