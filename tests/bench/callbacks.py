"""Measures callbacks: `python -m tests.bench callbacks [PART …]`, each part with a node and receivers of its own.

The node has the Routemaster surface, and one process plays all subscribers, over TLS. Every event has to arrive at
every subscriber that is alive once and in order; at one that was dead, when it is back.

`fan`: the rate of healthy subscribers with dead and slow ones among them, and without; the node when nothing happens.
`tail`: the latency of a live subscriber with dead ones beside it, and without. `publishing`: the cost of publishing by
the number of subscribers whose batches are open. `latency`: from publishing to the callback, without a time-out.
`recovery`: outages, beside the reference's law in simulation.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import uvloop

from tests.bench.callback_recovery import RecoveryMeasurement, reference_figures
from tests.bench.callback_site import CallbackSite, callback_site
from tests.bench.rounds import run_rounds
from tests.bench.topics_site import Figures
from tests.bench.wire import percentile

Measure = Callable[[], Awaitable[Figures]]
"""Measures one round."""

WARM_UP: Final = 10
FULL: Final = 100
"""Events in a full batch of `fan`."""
PACE_SECONDS: Final = 0.02
SLOW_SECONDS = 2.0
DEAD_SECONDS = 2.0
"""How long subscribers are dead before anything is measured."""
QUIET_SECONDS = 1.0
"""How long nothing is published before the node is measured without work."""
TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")
"""The least CPU time that the system counts: a run that is too small for it has used some, too."""
SIMULATED = 1000
"""Number of simulated subscribers of the reference."""
OPEN_MS: Final = 3_600_000
OPEN_EVENTS: Final = 10_000
"""The settings `timeout` and `max` of a subscriber whose batch stays open."""


@contextmanager
def fan(directory: Path, options: argparse.Namespace) -> Iterator[Measure]:
    """Yield the comparison of runs with and without dead (10%) and slow (5%) subscribers on one topic."""
    with callback_site(directory) as site:
        bare = site.resident_mib()
        ids = site.add(options.subscribers, timeout=OPEN_MS, max=min(FULL, options.events))
        few = max(2, options.subscribers // 10)
        dead, slow = ids[:few], ids[few : few + max(1, few // 2)]
        runs = _Fan(site, ids, dead, slow, options)
        numbers = count()

        async def measure() -> Figures:
            turns = [runs.all_healthy, runs.some_dead]
            figures = Figures(node_without_subscribers_mib=bare)
            for run in turns if next(numbers) % 2 == 0 else reversed(turns):
                figures |= await run()
            ratios = {
                f"beside_dead_to_all_healthy_{unit}": figures[f"beside_dead_{unit}"] / figures[f"all_healthy_{unit}"]
                for unit in ("each_per_s", "cpu_us")
            }
            return figures | ratios | await runs.idle()

        yield measure


class _Fan:
    """The runs of `fan`: what one node sends to many subscribers, in full batches, so that all runs have as many."""

    def __init__(
        self,
        site: CallbackSite,
        ids: Sequence[int],
        dead: Sequence[int],
        slow: Sequence[int],
        options: argparse.Namespace,
    ) -> None:
        self._site = site
        self._all = ids
        self._dead = dead
        self._slow = slow
        self._healthy = ids[len(dead) + len(slow) :]
        self._batch = min(FULL, options.events)
        self._events: int = options.events - options.events % self._batch
        self._seconds: float = options.idle_seconds

    async def all_healthy(self) -> Figures:
        await self._site.publish(self._batch)
        await self._site.all_there(self._all)
        await asyncio.sleep(DEAD_SECONDS)  # as in the other run
        return await self._rate("all_healthy", self._all)

    async def some_dead(self) -> Figures:
        """Measure the healthy ones, then the dead alone, and then let all of them have everything."""
        site = self._site
        site.kill(self._dead)
        site.tell("delay", ids=[*self._slow], seconds=SLOW_SECONDS)
        await asyncio.sleep(DEAD_SECONDS)  # a full batch is sent at once, to where the node knows the subscriber
        await site.publish(self._batch)
        await site.all_there(self._healthy)
        await asyncio.sleep(DEAD_SECONDS)
        figures = await self._rate("beside_dead", self._healthy)
        await site.all_there(self._slow)
        attempts, cpu = await self._quiet()
        figures |= {
            "attempts_per_s_of_each_dead": attempts / len(self._dead),
            "node_cpu_with_dead_alone": cpu,
            "node_beside_dead_mib": site.resident_mib(),
        }
        site.tell("delay", ids=[*self._slow], seconds=0)
        site.subscribe(self._dead, site.ports[0])
        await site.all_there(self._all)
        return figures

    async def _rate(self, name: str, ids: Sequence[int]) -> Figures:
        """Publish; return the events per second that arrived at these and at each, the CPU for one, and the time to
        publish."""
        cpu = self._site.cpu_seconds()
        told = await self._site.publish(self._events)
        states = await self._site.all_there(ids)
        seconds = max(state["last_at"] for state in states) - told.begun
        arrived = len(ids) * self._events
        return {
            f"{name}_per_s": arrived / seconds,
            f"{name}_each_per_s": self._events / seconds,  # the runs differ in the number of subscribers
            f"{name}_cpu_us": max(TICK_SECONDS, self._site.cpu_seconds() - cpu) / arrived * 1e6,
            f"{name}_publishing_p50_ms": told.p50_ms,
        }

    async def idle(self) -> Figures:
        attempts, cpu = await self._quiet()
        return {
            "idle_attempts": attempts * self._seconds,
            "idle_node_cpu": cpu,
            "idle_node_mib": self._site.resident_mib(),
        }

    async def _quiet(self) -> tuple[float, float]:
        """Return the attempts per second and the share of a core of the node while nothing is published."""
        await asyncio.sleep(QUIET_SECONDS)
        attempts, cpu = self._site.attempts(), self._site.cpu_seconds()
        await asyncio.sleep(self._seconds)
        used = self._site.cpu_seconds() - cpu
        return (self._site.attempts() - attempts) / self._seconds, used / self._seconds


@contextmanager
def tail(directory: Path, options: argparse.Namespace) -> Iterator[Measure]:
    """Yield the comparison of one live subscriber alone with one beside dead ones."""
    with callback_site(directory) as site:
        live = site.add(1, timeout=0)
        dead = site.add(options.dead)
        site.unsubscribe(dead)
        numbers = count()

        async def run(name: str) -> Figures:
            if name == "beside_dead":
                site.kill(dead)
            await site.publish(WARM_UP)
            await asyncio.sleep(DEAD_SECONDS)
            took = await _latencies(site, live, options.singles)
            site.unsubscribe(dead if name == "beside_dead" else ())
            return {f"{name}_p50_ms": percentile(took, 50), f"{name}_p99_ms": percentile(took, 99)}

        async def measure() -> Figures:
            turns = ["alone", "beside_dead"]
            figures = Figures()
            for name in turns if next(numbers) % 2 == 0 else reversed(turns):
                figures |= await run(name)
            return figures | {"p99_beside_dead_to_alone": figures["beside_dead_p99_ms"] / figures["alone_p99_ms"]}

        yield measure


async def _latencies(site: CallbackSite, ids: Sequence[int], events: int) -> list[float]:
    """Publish single events at a steady pace; return the seconds from each request to its arrival at a subscriber."""
    await site.all_there(ids)
    site.tell("mark", ids=[*ids], keep=True)
    sent = await site.publish_singly(events, PACE_SECONDS)
    (state,) = await site.all_there(ids)
    return [arrived - begun for begun, arrived in zip(sent, state["arrivals"], strict=True)]


@contextmanager
def publishing(directory: Path, options: argparse.Namespace) -> Iterator[Measure]:
    """Yield the comparison of nodes with more and more subscribers, whose batches stay open."""
    counts = sorted({0, *(max(1, options.subscribers // part) for part in (100, 10, 1))})
    with ExitStack() as stack:
        sites = [stack.enter_context(callback_site(directory / str(place))) for place in range(len(counts))]
        for site, subscribers in zip(sites, counts, strict=True):
            site.add(subscribers, timeout=OPEN_MS, max=OPEN_EVENTS)

        async def measure() -> Figures:
            figures = Figures()
            for site, subscribers in zip(sites, counts, strict=True):
                await site.publish(WARM_UP)
                cpu = site.cpu_seconds()
                told = await site.publish(options.singles)
                figures[f"subscribers_{subscribers}_per_s"] = told.rate
                figures[f"subscribers_{subscribers}_p50_ms"] = told.p50_ms
                figures[f"subscribers_{subscribers}_cpu_us"] = (site.cpu_seconds() - cpu) / options.singles * 1e6
            most, none = (f"subscribers_{subscribers}_p50_ms" for subscribers in (counts[-1], 0))
            return figures | {"p50_with_most_to_none": figures[most] / figures[none]}

        yield measure


@contextmanager
def latency(directory: Path, options: argparse.Namespace) -> Iterator[Measure]:
    """Yield the time from publishing an event to its callback."""
    with callback_site(directory) as site:
        live = site.add(1, timeout=0)

        async def measure() -> Figures:
            await site.publish(WARM_UP)
            took = await _latencies(site, live, options.singles)
            return {f"p{percent}_ms": percentile(took, percent) for percent in (50, 95, 99)}

        yield measure


@contextmanager
def recovery(directory: Path, options: argparse.Namespace) -> Iterator[Measure]:
    """Yield the time until subscribers get everything again after outages."""
    with callback_site(directory, ports=RecoveryMeasurement.ports(options.outages)) as site:
        measured = RecoveryMeasurement(site, options.outages, options.at_each)

        async def measure() -> Figures:
            return await measured.measure() | reference_figures(options.outages, SIMULATED)

        yield measure


PARTS: dict[str, Callable[[Path, argparse.Namespace], AbstractContextManager[Measure]]] = {
    "fan": fan,
    "tail": tail,
    "publishing": publishing,
    "latency": latency,
    "recovery": recovery,
}


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    for part in options.parts or PARTS:
        rounds = 1 if part == "recovery" else options.rounds
        settings = vars(options) | {"parts": part, "rounds": rounds, "durability": "FULL"}
        with (
            tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            PARTS[part](Path(directory), options) as measure,
        ):
            run_rounds(settings, rounds, lambda: runner.run(_rounded(measure)))


async def _rounded(measure: Measure) -> Figures:
    return {name: round(value, 3) for name, value in (await measure()).items()}


def _part(name: str) -> str:
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"{name!r} is not a part; choose from {', '.join(PARTS)}")
    return name


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench callbacks",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", type=_part, nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="of each part but recovery, which has one")
    of_parts = [
        add("--subscribers", type=int, default=1000, help="fan, publishing: the largest number"),
        add("--events", type=int, default=300, help="fan: published for each figure, in batches of 100"),
        add("--idle-seconds", type=float, default=10.0, help="fan: how long the node is left alone"),
        add("--dead", type=int, default=100, help="tail: the number of dead subscribers"),
        add("--singles", type=int, default=300, help="tail, publishing, latency: events one by one"),
        add("--outages", type=float, nargs="+", default=[2.0, 10.0, 60.0], help="recovery: their seconds"),
        add("--at-each", type=int, default=5, help="recovery: subscribers in each outage"),
    ]
    options = parser.parse_args(arguments)
    for option in of_parts if options.parts else []:
        parts = str(option.help).partition(":")[0].split(", ")
        is_given = any(each.partition("=")[0] in option.option_strings for each in arguments)
        if is_given and not {*parts} & {*options.parts}:
            parser.error(f"argument {option.option_strings[0]}: it is for {' and '.join(parts)} alone")
    return options
