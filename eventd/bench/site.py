"""The site of a measurement: its parameters and its nodes, child processes or given ones."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from eventd.bench.children import free_ports
from eventd.bench.nodes import Node, OwnNode
from eventd.bench.result import Show
from eventd.bench.wire import NodeClient
from eventd.errors import Invalid
from eventd.net.address import Address
from eventd.runtime.chance import SYSTEM
from eventd.tls.files import ClientTlsConfig

NAMES = ("bench-a", "bench-b")


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The parameters that all measurements share. `seconds` replaces `events`, unless it is 0.

    `size` is the bytes of an event, `batch` the events of a request, `in_flight` the number of connections. `tls`
    applies to `servers` with https.
    """

    events: int
    seconds: float = 0.0
    size: int = 350
    batch: int = 256
    in_flight: int = 4
    durability: str = "full"
    database: str = ""
    peer_database: str = ""
    folder: str = ""
    servers: tuple[str, ...] = ()
    key: str = ""
    peer_key: str = ""
    tls: ClientTlsConfig | None = None
    secret_file: str = ""
    peer_listen: tuple[str, int] | None = None


@dataclass(slots=True)
class Site:
    """The nodes, and a name for everything that is declared on them."""

    wanted: BenchPlan
    show: Show
    nodes: Sequence[Node]
    folder: Path
    run: str = field(default_factory=lambda: SYSTEM.token(4).hex())

    @property
    def name(self) -> str:
        """The name of the group and of the topic; several topics have it as their prefix."""
        return f"bench-{self.run}"

    async def start(self) -> None:
        """Start all nodes; child processes start concurrently."""
        for node in self.nodes:
            if isinstance(node, OwnNode):
                node.launch()
        for node in self.nodes:
            await node.start()

    @property
    def are_own(self) -> bool:
        """Whether all nodes are child processes."""
        return all(isinstance(node, OwnNode) for node in self.nodes)


@asynccontextmanager
async def open_site(wanted: BenchPlan, count: int, show: Show, leftover: list[str]) -> AsyncIterator[Site]:
    """Yield a site of `count` nodes, none started yet.

    At the end the nodes are cleared and stopped, and the temporary folder is deleted. A description of each thing that
    could not be removed from the nodes is added to `leftover`.
    """
    async with AsyncExitStack() as stack:
        folder = _make_folder(wanted.folder)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        nodes = _given(wanted, count, folder) if wanted.servers else _own(wanted, count, folder)
        for node in nodes:
            stack.callback(node.stop)

        async def clear() -> None:
            for node in nodes:
                leftover.extend(await node.clear())

        stack.push_async_callback(clear)
        yield Site(wanted, show, nodes, folder)


def _make_folder(inside: str) -> Path:
    if inside and not Path(inside).is_dir():
        raise Invalid(f"--folder {inside}: no such folder", hint="it selects the disk of the nodes")
    return Path(tempfile.mkdtemp(prefix="routerctl-bench-", dir=inside or None)).absolute()


def _own(wanted: BenchPlan, count: int, folder: Path) -> list[Node]:
    databases = [wanted.database, wanted.peer_database][:count]
    if count > 1 and len({bool(url) for url in databases}) > 1:
        raise Invalid("two nodes need two databases", hint="give both: --database URL --peer-database URL")
    if count > len(NAMES) and any(databases):
        raise Invalid(f"a measurement of {count} nodes needs SQLite", hint="leave out --database")
    if databases[0] and len(set(databases)) < len(databases):
        raise Invalid("two nodes cannot share a database", hint="create a second one for --peer-database")
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(SYSTEM.token(32).hex() + "\n")
    ports = iter(free_ports(2 * count))
    names = [*NAMES, *(f"bench-{number}" for number in range(2, count))][:count]
    urls = [*databases, *[""] * count][:count]
    return [
        OwnNode(name, folder, url, (next(ports), next(ports)), str(secret))
        for name, url in zip(names, urls, strict=True)
    ]


def _given(wanted: BenchPlan, count: int, folder: Path) -> list[Node]:
    if len(wanted.servers) != count:
        message = {1: "this measurement needs one node", 2: "this measurement needs two nodes"}.get(count)
        if message is None or len(wanted.servers) > count:
            raise Invalid(
                f"{message or 'this measurement starts nodes of its own'}",
                hint="leave out the servers that it does not need",
            )
        raise Invalid(message, hint="give both: --server URL --peer-server URL")
    addresses = [Address.parse(server) for server in wanted.servers]
    keys = [wanted.key, wanted.peer_key or wanted.key]
    listen, secret = wanted.peer_listen, wanted.secret_file
    if count > 1 and not (listen and secret):
        if any(address.host not in ("127.0.0.1", "localhost", "::1") for address in addresses):
            raise Invalid(
                "nodes of other machines need a secret that both can read, and an address where the second one listens",
                hint="give both: --secret-file PATH --peer-listen HOST:PORT",
            )
        listen = listen or ("127.0.0.1", free_ports(1)[0])
        file = folder / "secret"
        file.touch(0o600)
        file.write_text(SYSTEM.token(32).hex() + "\n")
        secret = secret or str(file)
    return [
        Node(name, NodeClient(address, key, wanted.tls), listen=listen if at else None, secret=secret)
        for at, (name, address, key) in enumerate(zip(NAMES, addresses, keys, strict=False))
    ]
