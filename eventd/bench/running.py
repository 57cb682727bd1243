"""One run of a measurement from its nodes to its result: made, measured, verified, and cleared away."""

from __future__ import annotations

from typing import Any, Protocol

import eventd
from eventd.api.framework.moments import show_time
from eventd.bench.machine import machine
from eventd.bench.result import Result, Show, UnverifiedResult
from eventd.bench.site import BenchPlan, Site, open_site
from eventd.runtime.clock import SystemClock


class Benchmark(Protocol):
    """What there is to measure. `nodes` says on how many."""

    @property
    def name(self) -> str: ...

    @property
    def nodes(self) -> int: ...

    def settings(self, site: Site) -> dict[str, object]: ...

    async def prepare(self, site: Site) -> None: ...

    async def measure(self, site: Site) -> UnverifiedResult: ...

    async def verify(self, site: Site) -> list[str]: ...


async def run_bench(bench: Benchmark, wanted: BenchPlan, show: Show, leftover: list[str]) -> Result:
    """Run it. `leftover` gets what could not be removed from nodes that are not ours."""
    at = machine(None)
    async with open_site(wanted, bench.nodes, show, leftover) as site:
        at |= machine(site.folder if site.are_own and not wanted.database else None) | {"load": at["load"]}
        show("starting", 0, 0)
        await bench.prepare(site)
        measured = await bench.measure(site)
        show("verifying", 0, 0)
        problems = await bench.verify(site)
        told = _settings(site) | bench.settings(site)
        return Result(bench.name, measured, problems, told, at, str(show_time(SystemClock().now())), eventd.__version__)


def _settings(site: Site) -> dict[str, Any]:
    """What every measurement is asked for: what two runs must share to be compared."""
    wanted = site.wanted
    amount: dict[str, Any] = {"duration": f"{wanted.seconds:g}s"} if wanted.seconds else {"events": wanted.events}
    database = "postgresql" if wanted.database else "sqlite"
    where = {"servers": list(wanted.servers)} if wanted.servers else {"nodes": "own", "database": database}
    return {**amount, "size": wanted.size, "batch": wanted.batch, "in_flight": wanted.in_flight, **where}
