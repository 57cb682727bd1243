"""The nodes of the growth measurements: over filled logs, with the resource usage of their processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventd.bench.children import free_ports
from eventd.bench.nodes import API, OwnNode
from eventd.bench.wire import HttpConnection, now, read_answer
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.rows.registry import announce, put_resource


class FilledNode(OwnNode):
    """A node over a database that was filled with events of its own."""

    async def _require_empty(self) -> None:
        return

    @property
    def pid(self) -> int:
        """Return the pid of its running process."""
        assert self._child is not None
        return self._child.pid

    def cpu(self) -> float:
        """Return the CPU seconds that its threads have used, to the microsecond."""
        return cpu_of(self.pid)

    def peak_mib(self) -> float:
        """Return its peak resident memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of the living threads of a process."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of each of `count` operations at a node: microseconds of CPU and of wall time."""

    count: int
    cpu_us: float
    wall_us: float

    def of(self, each: int) -> Cost:
        """Return the same total cost, divided by another number of operations."""
        share = self.count / each
        return Cost(each, self.cpu_us * share, self.wall_us * share)


class Meter:
    """Reads a node's CPU time before and after."""

    def __init__(self, node: FilledNode) -> None:
        self._node = node
        self._cpu, self._begun = node.cpu(), now()

    def cost(self, count: int) -> Cost:
        """Return what was used since creation, divided by a number of operations."""
        cpu, wall = self._node.cpu() - self._cpu, now() - self._begun
        return Cost(count, cpu / count * 1e6, wall / count * 1e6)


async def ask_all(node: FilledNode, asked: Sequence[bytes]) -> tuple[list[Any], Cost]:
    """Send requests one after the other over one connection: return the answers, and the node's cost for each.

    Raises the node's error. The connection is opened before the clock starts.
    """
    line = await node.client.open(HttpConnection)
    try:
        meter = Meter(node)
        answers = [read_answer(await line.ask(one)) for one in asked]
        cost = meter.cost(len(asked))
    finally:
        line.close()
    return [one.json() for one in answers], cost


@contextmanager
def node_site(home: Path, urls: Sequence[str], names: Sequence[str]) -> Iterator[list[FilledNode]]:
    """Yield nodes over these databases, not started; they are stopped at the end. `home` holds their logs and the
    secret."""
    secret = home / "secret"
    secret.touch(0o600)
    secret.write_text("growth\n")
    ports = iter(free_ports(2 * len(urls)))
    with ExitStack() as stack:
        nodes = []
        for url, name in zip(urls, names, strict=True):
            node = FilledNode(name, home, url, (next(ports), next(ports)), str(secret))
            stack.callback(node.stop)
            nodes.append(node)
        yield nodes


def peer_with(group: str, name: str, port: int, **spec: Any) -> dict[str, Any]:
    """Return a peer on this machine with the default retry intervals."""
    told = {"groupRef": group, "nodeName": name, "endpoint": f"http://127.0.0.1:{port}", **spec}
    return {"apiVersion": API, "kind": "EventPeer", "metadata": {"name": f"{group}-{name}"}, "spec": told}


def declare_down(url: str, *documents: dict[str, Any]) -> None:
    """Apply resources while the node is down: at its start it drops the cursors of peers that are not declared."""
    with closing(Database(url)) as database, database.transaction() as conn:
        for told in documents:
            put_resource(
                conn,
                api_version=told["apiVersion"],
                kind=told["kind"],
                name=told["metadata"]["name"],
                annotations={},
                spec=told["spec"],
                now=SystemClock().now(),
            )
        announce(conn)


async def start_all(nodes: Sequence[FilledNode]) -> None:
    """Start nodes together, and wait until all answer."""
    for node in nodes:
        node.launch()
    await asyncio.gather(*(node.start() for node in nodes))


def group_with(node: OwnNode, name: str, *, listens: bool = False, **spec: Any) -> dict[str, Any]:
    """Return a group of a node; `spec` holds further fields."""
    told: dict[str, Any] = {"nodeName": node.name, "auth": {"secretFile": node.secret}, **spec}
    if listens and node.listen is not None:
        told["listen"] = {"address": node.listen[0], "port": node.listen[1]}
    return {"apiVersion": API, "kind": "EventGroup", "metadata": {"name": name}, "spec": told}
