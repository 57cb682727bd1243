"""The world of one run: a loop, a network, and machines with their disks and clients, all from one seed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventd.simulation.world.clock import EPOCH, WallTime
from eventd.simulation.world.disk import Disk
from eventd.simulation.world.journal import PLUGIN_RUN, Asked, Journal
from eventd.simulation.world.life import Life
from eventd.simulation.world.loop import BEGIN, VirtualLoop
from eventd.simulation.world.machine import Machine
from eventd.simulation.world.network import Network
from eventd.simulation.world.pools import SimulatedPool
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.retention import SmallRetention
from eventd.simulation.world.sqlite_disk import sqlite_disks
from eventd.simulation.world.streams import ChanceStreams
from eventd.simulation.world.topology import Topology, client_of, peer_document, write_secrets
from eventd.simulation.world.unwinding import unwinding_quietly

if TYPE_CHECKING:  # they need psycopg
    from eventd.simulation.world.postgres_sessions import NodeSessions
    from eventd.store.schema.scratch_databases import ScratchDatabases

SKEW_SECONDS: Final = 1.0
"""By how much the wall times of machines without a fault differ at most, from the true one."""


class SimulatedWorld:
    """The machines of one topology. `lost` collects errors that nothing in a node has handled.

    With `server`, each node has a database on it, which `drop_databases` drops.
    """

    def __init__(
        self, topology: Topology, streams: ChanceStreams, folder: Path, server: ScratchDatabases | None = None
    ) -> None:
        self.topology = topology
        self.streams = streams
        self.folder = folder
        self.journal = Journal()
        self.lost: list[str] = []
        self.loop = VirtualLoop()
        self.network = Network(self.loop, streams)
        self.loop.network = self.network
        self.loop.executor = self._executor
        self.loop.set_exception_handler(self._note_lost)
        self.disks = sqlite_disks()
        self.machines = {name: self._make_machine(name) for name in topology.nodes}
        self.clients = {name: self._make_client(machine) for name, machine in self.machines.items()}
        self.secrets = write_secrets(folder)
        self._server = server
        if server is not None:
            self._create_databases(server)

    def _make_machine(self, name: str) -> Machine:
        clocks = self.streams.of(f"clock {name}")
        wall = WallTime(clocks.uniform(-SKEW_SECONDS, SKEW_SECONDS))
        disk = Disk(self.folder / name, self.streams.of(f"disk {name}"))
        machine = Machine(name, self.network, disk, self.disks, self.streams, wall)
        machine.on_change = self._note_change
        machine.on_run = self._note_run
        return machine

    def _create_databases(self, server: ScratchDatabases) -> None:
        from eventd.simulation.world.postgres_sessions import NodeSessions

        for name, machine in self.machines.items():
            notices = self.streams.of(f"notices {name}")
            end = partial(server.end, database_of(name))
            machine.sessions = NodeSessions(self.loop, notices, name, server.create(database_of(name)), end)
            machine.sessions.kill = machine.kill
            self.journal.commits[name] = machine.sessions.commits

    def drop_databases(self) -> None:
        """Drop the databases of the nodes on Postgres."""
        if self._server is not None:
            for name in self.machines:
                self._server.drop(database_of(name))

    def _make_client(self, machine: Machine) -> ApiClient:
        host = client_of(machine.name)
        return ApiClient(self.loop, Life(host, 1, self.network.add(host)), machine, self.journal)

    def _note_change(self, what: str, machine: Machine) -> None:
        self.journal.changes.append((self.loop.time(), what, machine.name))
        self.loop.note(f"{machine.name} {what}")

    def _note_run(self, host: str, ids: list[str], how: str) -> None:
        now = self.loop.time()
        self.journal.add(Asked(PLUGIN_RUN, host, now, now, 0, ids, how))

    def _note_lost(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.lost.append(f"{context.get('message')}: {error!r}")

    def _executor(self, life: Life | None) -> SimulatedPool:
        assert life is not None, "the simulation itself has no threads"
        return self.machines[life.host].executor()

    def documents(self, node: str) -> list[dict[str, Any]]:
        """Return the resources of a node."""
        links = self.topology.links_from(node)
        return [self.group_document(node), *(peer_document(link, self.address(link.dest)) for link in links)]

    def group_document(self, node: str, stage: int = 0) -> dict[str, Any]:
        """Return the group of a node as a resource; `stage`: how far the replacement of its secret is."""
        document = self.topology.group_document(node, self.address(node), self.secrets, stage)
        if node in self.journal.retentions:
            document["spec"]["retention"] = self.journal.retentions[node].document()
        return document

    def set_retentions(self, retentions: Mapping[str, SmallRetention]) -> None:
        """Let nodes evict events; before they start."""
        self.journal.retentions.update(retentions)
        for node, retention in retentions.items():
            self.machines[node].retention_seconds = retention.interval

    def true_time(self) -> float:
        """Return the true wall time, in seconds since 1970."""
        return EPOCH + self.loop.time() - BEGIN

    def address(self, node: str) -> str:
        """Return the address of a node."""
        return self.machines[node].address

    def start(self, work: Any) -> asyncio.Task[Any]:
        """Start a coroutine of the simulation itself."""
        task: asyncio.Task[Any] = self.loop.create_task(work)
        return task

    @contextmanager
    def running(self) -> Iterator[Callable[[Any], Any]]:
        """Yield a function that runs a coroutine of the simulation to its end; afterwards the world is over."""
        try:
            with self._installed():
                asyncio.set_event_loop(self.loop)
                try:
                    yield self.loop.run_until_complete
                finally:
                    asyncio.set_event_loop(None)
                    for machine in self.machines.values():
                        machine.bury()
                    self.loop.end()
        finally:
            with unwinding_quietly():
                self.loop.unwind()
                for machine in self.machines.values():
                    machine.forget()

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """Be the disk below SQLite, or what psycopg connects by, for the block."""
        if self._server is None:
            with self.disks.installed(self._find_disk, self.streams.of("sqlite")):
                yield
            return
        from eventd.simulation.world.postgres_sessions import PostgresConnector

        with PostgresConnector(self.loop, self._find_sessions).installed():
            yield

    def _find_sessions(self, name: str) -> NodeSessions:
        sessions = self.machines[name].sessions
        assert sessions is not None
        return sessions

    def _find_disk(self, path: str) -> Disk | None:
        folder = Path(path).parent
        machine = self.machines.get(folder.parent.name)
        return machine.disk if machine is not None and machine.disk.folder == folder else None


def database_of(node: str) -> str:
    """Return the label of a node's database: unique among the processes that play runs on one server."""
    return f"{os.getpid()}_{node}"
