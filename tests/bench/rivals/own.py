"""This project's node as a contestant: the measurements of `routerctl bench`, with each node on a core of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import eventd
from eventd.bench.children import free_ports
from eventd.bench.emitting import EmitRun
from eventd.bench.federation import Federation
from eventd.bench.ingest import Ingest
from eventd.bench.latency import Latency
from eventd.bench.nodes import OwnNode
from eventd.bench.result import Show
from eventd.bench.running import Benchmark
from eventd.bench.site import NAMES, BenchPlan, Site
from eventd.bench.wire import LoadResult
from eventd.client import Client
from tests.bench.rivals.contest import (
    BATCH,
    IN_FLIGHT,
    STREAM_BATCH,
    STREAM_IN_FLIGHT,
    WINDOW,
    Figures,
    NotMeasured,
    Stopwatch,
    Task,
    run,
)
from tests.bench.rivals.servers import CORES, cpu_of_family, first_line, on_core
from tests.support.postgres import PostgresMissing, PostgresServer, find_programs

SECRET = "secret"


class PinnedNode(OwnNode):
    """A node pinned to one core, over a new database of a server there, or over SQLite."""

    def __init__(
        self, name: str, folder: Path, ports: tuple[int, int], core: int, server: PostgresServer | None
    ) -> None:
        database = server.create_database() if server else ""
        super().__init__(name, folder, database, ports, str(folder / SECRET))
        self._core, self._server = core, server

    def launch(self) -> None:
        with on_core(self._core):
            super().launch()

    @property
    def cpu_seconds(self) -> float | None:
        """Return the CPU seconds of the node, and of the server of its database."""
        own = super().cpu_seconds
        return own if own is None or self._server is None else own + cpu_of_family(self._server.pid)


@contextmanager
def pinned_site(wanted: BenchPlan, count: int, folder: Path, servers: Sequence[PostgresServer]) -> Iterator[Site]:
    """Yield nodes, A on the first core and B on the second, each with a database server of its own if one is used."""
    secret = folder / SECRET
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(32) + "\n")
    ports = iter(free_ports(2 * count))
    nodes = [
        PinnedNode(name, folder, (next(ports), next(ports)), core, server)
        for name, core, server in zip(NAMES[:count], CORES.values(), servers or (None, None), strict=False)
    ]
    try:
        yield Site(wanted, lambda words, done, of: None, nodes, folder)
    finally:
        for node in nodes:
            node.stop()


class AllAtOnce(EmitRun):
    """All events are created beforehand and passed to the client at once, as for the clients of rivals."""

    async def pour(self, show: Show, words: str) -> LoadResult:
        """Emit the events, and check that all are new."""
        events = [self.target.event(number) for number in self.ledger.take(0, self.wanted.events)]
        client = Client(str(self.client.address), self.client.key)
        async with client, client.publisher(self.target.group, window=self.window) as publisher:
            stopwatch = Stopwatch()
            fates = await publisher.emit_all(events)
            rate, core = stopwatch.told(len(events))
        if others := [fate for fate in fates if fate != "new"]:
            raise NotMeasured(f"{len(others)} events were not stored anew, the first: {others[0]}")
        seconds = len(events) / rate
        return LoadResult([], [seconds], seconds, core)


class Publish(Ingest):
    """An `ingest` with a window, but without a task for each slot."""

    async def prepare(self, site: Site) -> None:
        """Prepare the same group as `ingest`."""
        await super().prepare(site)
        usual = self._pouring
        assert isinstance(usual, EmitRun)
        self._pouring = AllAtOnce(usual.client, usual.target, usual.wanted, usual.window)


class Own:
    """The contestant that all others are compared with."""

    family = "own"
    name = "routerd-eventd"
    durability = "flushed before each acknowledgement, at A and at B"
    settings = "SQLite, as it is installed"

    def version(self) -> str:
        """Return the version of this tree."""
        return eventd.__version__

    def client_version(self) -> str:
        return "our own"

    def measure(self, folder: Path, task: Task) -> Figures:
        """Run one round of four measurements, each with nodes of its own."""
        return self._measure(folder, task, ())

    def _measure(self, folder: Path, task: Task, servers: Sequence[PostgresServer]) -> Figures:
        told = {}
        usual = BenchPlan(events=task.events, size=task.size, batch=BATCH, in_flight=IN_FLIGHT)
        for name, bench, wanted in (
            ("publish", Publish(window=WINDOW), usual),
            ("stream", Ingest(under_way=STREAM_IN_FLIGHT), replace(usual, batch=STREAM_BATCH)),
            ("federation", Federation(), usual),
            ("latency", Latency(), replace(usual, events=task.singles)),
        ):
            home = folder / name
            home.mkdir()
            with pinned_site(wanted, bench.nodes, home, servers) as site:
                told[name] = run(_run(bench, site))
        catch_up, publish, stream = told["federation"], told["publish"], told["stream"]
        return {
            "publish": publish["rate"],
            "core": publish["busy"],
            "through_client": publish["rate"],
            "client_core": publish["busy"],
            "stream": stream["rate"],
            "stream_core": stream["busy"],
            "catch_up": catch_up["rate"],
            "cpu_a": catch_up["sender_cpu_us_per_event"],
            "cpu_b": catch_up["receiver_cpu_us_per_event"],
            "p50": told["latency"]["p50"],
            "p99": told["latency"]["p99"],
        }


class OwnOnPostgres(Own):
    """The same over Postgres, if it is installed: each node has a server on its core."""

    family = "postgres"
    name = "routerd-eventd on Postgres"
    settings = "Postgres, as it is installed, on the core of its node"

    def version(self) -> str:
        """Return the versions of this tree and of Postgres."""
        try:
            programs = find_programs()
        except PostgresMissing as missing:
            raise NotMeasured(str(missing)) from None
        return f"{super().version()}, {first_line([str(programs / 'postgres'), '--version'])}"

    def measure(self, folder: Path, task: Task) -> Figures:
        with ExitStack() as stack:
            return self._measure(folder, task, [stack.enter_context(_server_on(core)) for core in CORES.values()])


@contextmanager
def _server_on(core: int) -> Iterator[PostgresServer]:
    server = PostgresServer(find_programs())
    try:
        with on_core(core):
            server.start()
        yield server
    finally:
        server.stop()


async def _run(bench: Benchmark, site: Site) -> dict[str, Any]:
    await bench.prepare(site)
    measured = await bench.measure(site)
    problems = await bench.verify(site)
    if problems:
        raise NotMeasured("; ".join(problems)[:200])
    shown = measured.figures | {"rate": measured.events / measured.seconds, "busy": measured.busy}
    ordered = sorted(measured.latencies)
    return shown | {f"p{percent}": ordered[len(ordered) * percent // 100] * 1000 for percent in (50, 99)}
