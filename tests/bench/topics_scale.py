"""Measures a node with 100 topics and one with 100,000: to create them, list them, write to them, and their resources.

All pages of the list are read, so each topic is listed once; single writes go to random topics. Memory is resident
memory: of the empty node, with all topics created, after the writes, and after a restart.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random

from tests.bench.topics_site import Figures, Site, resident_mib, site, write_of
from tests.bench.wire import call, load, percentile, request

CLIENTS = 16
PAGES = (100, 1000)


async def measure_scale(directory: Path, options: argparse.Namespace) -> Figures:
    figures: Figures = {}
    for count in options.topics:
        with site(directory / str(count)) as at:
            figures |= await _scale(at, count, options)
    few, many = min(options.topics), max(options.topics)
    for each in ("list_100_p50_ms", "write_p50_ms", "write_p99_ms"):
        figures[f"{each}_many_to_few"] = round(figures[f"topics_{many}_{each}"] / figures[f"topics_{few}_{each}"], 2)
    return figures


async def _scale(at: Site, count: int, options: argparse.Namespace) -> Figures:
    name, names = f"topics_{count}", [f"actor.{number:06d}" for number in range(count)]
    at.node.kill9()
    await at.restart()
    empty = resident_mib(at.node)
    made = await load(
        at.port, [[request("PUT", f"/v0/topics/{each}") for each in names[n::CLIENTS]] for n in range(CLIENTS)]
    )
    assert all(one["created"] for answers in made.jsons() for one in answers)
    full = resident_mib(at.node)
    figures = {
        f"{name}_made_per_second": round(made.rate),
        f"{name}_resident_empty_mib": round(empty, 1),
        f"{name}_resident_made_mib": round(full, 1),
        f"{name}_resident_bytes_per_topic": round((full - empty) * 2**20 / count),
    }
    for size in PAGES:
        figures |= await _list(at, f"{name}_list_{size}", names, size)
    figures |= await _write(at, name, names, options)
    figures[f"{name}_resident_written_mib"] = round(resident_mib(at.node), 1)
    at.node.kill9()
    figures[f"{name}_ready_seconds"] = round(await at.restart(), 3)
    anew = resident_mib(at.node)
    figures[f"{name}_resident_anew_mib"] = round(anew, 1)
    figures[f"{name}_resident_anew_bytes_per_topic"] = round((anew - empty) * 2**20 / count)
    return figures


async def _list(at: Site, name: str, names: list[str], size: int) -> Figures:
    found: list[str] = []
    seconds: list[float] = []
    cursor = ""
    while True:
        query = f"?page_size={size}" + (f"&cursor={cursor}" if cursor else "")
        page = await load(at.port, [[request("GET", f"/v0/topics{query}")]])
        seconds += page.latencies
        told = page.jsons()[0][0]
        found += [topic["topic"] for topic in told["topics"]]
        cursor = told.get("next_cursor", "").replace("=", "%3D").replace("+", "%2B").replace("/", "%2F")
        if not cursor:
            break
    assert found == names, "each topic once, by name"
    return {f"{name}_p50_ms": percentile(seconds, 50), f"{name}_p99_ms": percentile(seconds, 99)}


async def _write(at: Site, name: str, names: list[str], options: argparse.Namespace) -> Figures:
    lot = Random(7)
    chosen = [lot.choice(names) for _ in range(options.writes)]
    done = await load(at.port, [[write_of(topic, [number], options.size) for number, topic in enumerate(chosen)]])
    told = done.jsons()[0]
    seen: dict[str, int] = {}
    for topic, answer in zip(chosen, told, strict=True):
        seen[topic] = seen.get(topic, 0) + 1
        assert answer["last_seq"] == seen[topic], "each topic counts for itself"
    for topic in sorted(seen)[:: max(1, len(seen) // 100)]:
        page = await call(at.port, "POST", f"/v0/topics/{topic}/diff", {"limit": 1000})
        numbers = [number for number, each in enumerate(chosen) if each == topic]
        assert [one["data"]["n"] for one in page["records"]] == numbers, "what was written to it"
    return {
        f"{name}_write_p50_ms": done.percentile(50),
        f"{name}_write_p99_ms": done.percentile(99),
        f"{name}_writes_per_second": round(done.rate),
        f"{name}_client_busy": done.busy,
    }
