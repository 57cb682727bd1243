"""Our node as a contestant: the measurements of `routerctl bench`, with each node on a core of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import eventd
from eventd.bench.children import free_ports
from eventd.bench.federation import Federation
from eventd.bench.ingest import Ingest
from eventd.bench.latency import Latency
from eventd.bench.nodes import OwnNode
from eventd.bench.running import Bench
from eventd.bench.site import NAMES, Site, Wanted
from tests.bench.rivals.contest import BATCH, IN_FLIGHT, Figures, NotMeasured, Task
from tests.bench.rivals.servers import CORES, on_core


class PinnedNode(OwnNode):
    """A node that stays on one core."""

    core = -1

    def launch(self) -> None:
        with on_core(self.core):
            super().launch()


@contextmanager
def pinned_site(wanted: Wanted, count: int, folder: Path) -> Iterator[Site]:
    """So many nodes, A on the first core and B on the second."""
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(32) + "\n")
    ports, nodes = iter(free_ports(2 * count)), []
    for name, core in zip(NAMES[:count], CORES.values(), strict=False):
        node = PinnedNode(name, folder, "", (next(ports), next(ports)), str(secret))
        node.core = core
        nodes.append(node)
    try:
        yield Site(wanted, lambda words, done, of: None, nodes, folder)
    finally:
        for node in nodes:
            node.stop()


class Own:
    """What all others are compared with."""

    family = "own"
    name = "routerd-eventd"
    durability = "flushed before each acknowledgement, at A and at B"
    settings = "SQLite, as it is installed"

    def version(self) -> str:
        """That of this tree."""
        return eventd.__version__

    def measure(self, folder: Path, task: Task) -> Figures:
        """One round of three measurements, each with nodes of its own."""
        told = {}
        publish = Ingest(window=BATCH * IN_FLIGHT)
        for bench, events in ((publish, task.events), (Federation(), task.events), (Latency(), task.singles)):
            wanted = Wanted(events=events, size=task.size, batch=BATCH, in_flight=IN_FLIGHT)
            home = folder / bench.name
            home.mkdir()
            with pinned_site(wanted, bench.nodes, home) as site:
                told[bench.name] = asyncio.run(_run(bench, site))
        catch_up = told["federation"]
        return {
            "publish": told["ingest"]["rate"],
            "client": told["ingest"]["busy"],
            "catch_up": catch_up["rate"],
            "cpu_a": catch_up["sender_cpu_us_per_event"],
            "cpu_b": catch_up["receiver_cpu_us_per_event"],
            "p50": told["latency"]["p50"],
            "p99": told["latency"]["p99"],
        }


async def _run(bench: Bench, site: Site) -> dict[str, Any]:
    await bench.prepare(site)
    measured = await bench.measure(site)
    problems = await bench.verify(site)
    if problems:
        raise NotMeasured("; ".join(problems)[:200])
    shown = measured.figures | {"rate": measured.events / measured.seconds, "busy": measured.busy}
    ordered = sorted(measured.latencies)
    return shown | {f"p{percent}": ordered[len(ordered) * percent // 100] * 1000 for percent in (50, 99)}
