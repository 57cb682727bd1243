"""Measures the console of a node: `python -m tests.bench.console [pages|viewers|streams] [options]`.

`pages`: the time and the size of each page of a node with many events, links, topics and dead letters. `viewers`:
emitting with and without visitors whose pages are kept up to date, and what these cost a node on which nothing happens.
`streams`: the memory of a node after many streams. Each answer is checked for what it must show.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from eventd.bench.wire import percentile
from tests.bench.console_site import ConsoleSite, Figures, Viewer, console_site, signed_in, watching
from tests.bench.growth_logs import GROUP, Shape
from tests.bench.rounds import run_rounds
from tests.bench.wire import run_alone

TOPICS_AT_ONCE = 16
VIEWS = ["/", "/links", "/events", "/doctor", "/resources"]
BATCH = 64
"""Events of one request while viewers look on."""
QUIET_SECONDS = 30.0
"""As long as a link rests before it tries again: in a shorter part, all of the 200 links may try, or none."""
SETTLED_SECONDS = 3.0


def main() -> None:
    options = _options()
    measure = {"pages": _pages, "viewers": _viewers, "streams": _streams}[options.what]

    def one() -> Figures:
        with tempfile.TemporaryDirectory(prefix="eventd-bench-") as folder, _site(Path(folder), options) as site:
            return run_alone(measure(site, options))

    run_rounds(vars(options), options.rounds, one)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.console")
    parser.add_argument("what", choices=["pages", "viewers", "streams"], nargs="?", default="pages")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--links", type=int, default=200)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--letters", type=int, default=1_000_000, help="dead letters")
    parser.add_argument("--visits", type=int, default=40, help="pages: how often each is opened")
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5.0, help="viewers: how long each part of a round lasts")
    parser.add_argument("--parts", type=int, default=8, help="viewers: parts with and as many without them")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args()


@contextmanager
def _site(folder: Path, options: argparse.Namespace) -> Iterator[ConsoleSite]:
    many = {"EVENTD_MAX_CONSOLE_STREAMS": "4096", "EVENTD_MAX_TOPICS": "0"}
    with console_site(folder, options.events, options.links, options.letters, **many) as site:
        yield site


# --- pages -----------------------------------------------------------------------------------------------------------


async def _pages(site: ConsoleSite, options: argparse.Namespace) -> Figures:
    """Return for each page two percentiles of its milliseconds, and its kilobytes, plain and compressed."""
    await _make_topics(site, options.topics)
    figures: Figures = {}
    async with signed_in(site) as viewer:
        for path, shows in _paths(options).items():
            seen = [await viewer.visit(path) for _ in range(options.visits)]
            if shows not in seen[-1].text:
                raise RuntimeError(f"{path} does not show {shows!r}: {seen[-1].text[:2000]}")
            seconds = [visit.seconds for visit in seen]
            found = {
                "p50_ms": percentile(seconds, 50),
                "p95_ms": percentile(seconds, 95),
                "kB": seen[-1].bytes / 1000,
                "gzip_kB": seen[-1].compressed / 1000,
            }
            print(path, {name: round(value, 1) for name, value in found.items()}, file=sys.stderr)
            figures |= {f"{path} {name}": round(value, 1) for name, value in found.items()}
    return figures


def _paths(options: argparse.Namespace) -> dict[str, str]:
    """Return the path of each page below /console, with a text that it must show."""
    newest, oldest = Shape().id_of(options.events - 1), Shape().id_of(0)
    paths = {
        "/": GROUP,
        "/links": "peer-000",
        f"/links/{GROUP}/peer-000": "peer-000",
        "/events": newest,
        "/events?type=bench.rare": "bench.rare",
        "/events?subject=nowhere": "earched",
        f"/events/{GROUP}/{oldest}": oldest,
        "/subscriptions": "ubscription",
        "/callbacks": "allback",
        "/dead-letters": "peer-000",
        f"/dead-letters?group={GROUP}&reason=schema": "schema",
        "/jobs": "ob",
        "/resources": GROUP,
        f"/resources/EventGroup/{GROUP}": GROUP,
        "/doctor": "octor",
        "/keys": "ey",
        "/sessions": "ession",
        "/actions": "ction",
        "/settings": "api_listen",
        "/parts": "art",
        "/audits": "udit",
    }
    if options.topics:
        paths |= {"/topics": "bench.000000", "/topics/bench.000000": "bench.000000", "/queues": "ueue"}
    return paths


async def _make_topics(site: ConsoleSite, count: int) -> None:
    names = [f"/v0/topics/bench.{number:06d}" for number in range(count)]
    rows = [[site.client.request("PUT", name) for name in names[n::TOPICS_AT_ONCE]] for n in range(TOPICS_AT_ONCE)]
    if count:
        await site.client.load(rows)


# --- viewers ---------------------------------------------------------------------------------------------------------


async def _viewers(site: ConsoleSite, options: argparse.Namespace) -> Figures:
    """Return the rates of emitting in turn without and with viewers of five views, and the cost of viewers at rest."""
    views = [VIEWS[number % len(VIEWS)] for number in range(options.viewers)]
    alone: list[Emitted] = []
    watched: list[Emitted] = []
    async with signed_in(site) as viewer:
        idle = await _share(site)
        async with watching(viewer, [VIEWS[1]] * options.viewers):
            resting = await _share(site)
        idle = (idle + await _share(site)) / 2
        number = options.events
        for part in range(2 * options.parts):
            # Twice with and twice without viewers: emitting gets slower as the log grows, and no side shall pay for it.
            is_watched = part % 4 in (1, 2)
            async with watching(viewer, views if is_watched else []):
                emitted = await _emit(site, number, options.seconds)
            number += emitted.events
            (watched if is_watched else alone).append(emitted)
        fragments = viewer.fragments
    await _verify(site, number)
    rate, cost = (statistics.median(getattr(one, name) for one in alone) for name in ("rate", "cost"))
    watched_rate, watched_cost = (statistics.median(getattr(one, name) for one in watched) for name in ("rate", "cost"))
    return {
        "idle_cpu_percent": round(idle * 100, 2),
        "viewers_of_one_view_cpu_percent": round((resting - idle) * 100, 2),
        "events_per_second_alone": round(rate),
        "events_per_second_watched": round(watched_rate),
        "watched_to_alone": round(watched_rate / rate, 3),
        "cpu_us_per_event_alone": round(cost * 1e6, 1),
        "cpu_us_per_event_watched": round(watched_cost * 1e6, 1),
        "fragments": fragments,
    }


async def _share(site: ConsoleSite) -> float:
    """Return the share of one core that the node uses while nothing is sent to it."""
    await asyncio.sleep(SETTLED_SECONDS)
    begun, cpu = time.perf_counter(), site.cpu_seconds
    await asyncio.sleep(QUIET_SECONDS)
    return (site.cpu_seconds - cpu) / (time.perf_counter() - begun)


class Emitted(NamedTuple):
    """Events per second, and the CPU seconds of the node for each."""

    events: int
    rate: float
    cost: float


async def _emit(site: ConsoleSite, first: int, seconds: float) -> Emitted:
    """Emit batches from two clients for so many seconds."""
    number, begun, cpu = first, time.perf_counter(), site.cpu_seconds
    while (passed := time.perf_counter() - begun) < seconds:
        rows = [[_batch(site, number + (2 * at + line) * BATCH) for at in range(8)] for line in range(2)]
        await site.client.load(rows)
        number += 16 * BATCH
    events = number - first
    return Emitted(events, events / passed, (site.cpu_seconds - cpu) / events)


def _batch(site: ConsoleSite, first: int) -> bytes:
    body = Shape().request(range(first, first + BATCH), with_ids=True)
    return site.client.request("POST", f"/api/v1/groups/{GROUP}/events", body)


async def _verify(site: ConsoleSite, events: int) -> None:
    told = await site.client.call("GET", "/api/v1/status")
    (group,) = (one for one in told["groups"] if one["group"] == GROUP)
    if group["events"] != events:
        raise RuntimeError(f"the node holds {group['events']} events, and not {events}")


# --- streams ---------------------------------------------------------------------------------------------------------


async def _streams(site: ConsoleSite, options: argparse.Namespace) -> Figures:
    """Return by how many MiB a node grows with so many streams, a hundred at a time, after the first hundred."""
    async with signed_in(site) as viewer:
        await _follow(viewer, 100)
        before = site.resident_mib
        for _ in range(options.streams // 100):
            await _follow(viewer, 100)
        after = site.resident_mib
    return {"before_mib": round(before, 2), "after_mib": round(after, 2), "grown_mib": round(after - before, 2)}


async def _follow(viewer: Viewer, count: int) -> None:
    async with watching(viewer, [VIEWS[number % len(VIEWS)] for number in range(count)]):
        await asyncio.sleep(1.0)
    await asyncio.sleep(1.0)


if __name__ == "__main__":
    main()
