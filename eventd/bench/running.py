"""One run of a measurement: prepare, measure, verify, remove."""

from __future__ import annotations

from typing import Any, Protocol

import eventd
from eventd.api.framework.moments import show_time
from eventd.bench.machine import machine
from eventd.bench.result import Result, Show, UnverifiedResult
from eventd.bench.site import BenchPlan, Site, open_site
from eventd.runtime.clock import SystemClock


class Benchmark(Protocol):
    """The interface of a measurement. `nodes` is the number of nodes that it needs; `verify` returns the problems."""

    @property
    def name(self) -> str: ...

    @property
    def nodes(self) -> int: ...

    def settings(self, site: Site) -> dict[str, object]: ...

    async def prepare(self, site: Site) -> None: ...

    async def measure(self, site: Site) -> UnverifiedResult: ...

    async def verify(self, site: Site) -> list[str]: ...


async def run_bench(bench: Benchmark, wanted: BenchPlan, show: Show, leftover: list[str]) -> Result:
    """Run a measurement and return its result; add to `leftover` a text for each thing left on the nodes."""
    at = machine(None)
    async with open_site(wanted, bench.nodes, show, leftover) as site:
        at |= machine(site.folder if site.are_own and not wanted.database else None) | {"load": at["load"]}
        show("starting", 0, 0)
        await bench.prepare(site)
        measured = await bench.measure(site)
        show("verifying", 0, 0)
        problems = await bench.verify(site)
        settings = _settings(site) | bench.settings(site)
        return Result(
            bench.name, measured, problems, settings, at, str(show_time(SystemClock().now())), eventd.__version__
        )


def _settings(site: Site) -> dict[str, Any]:
    """Return the settings that every measurement shows with its result."""
    wanted = site.wanted
    amount: dict[str, Any] = {"duration": f"{wanted.seconds:g}s"} if wanted.seconds else {"events": wanted.events}
    database = "postgresql" if wanted.database else "sqlite"
    where = {"servers": list(wanted.servers)} if wanted.servers else {"nodes": "own", "database": database}
    return {**amount, "size": wanted.size, "batch": wanted.batch, "in_flight": wanted.in_flight, **where}
