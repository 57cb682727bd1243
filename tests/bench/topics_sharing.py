"""Compares readers that share one topic with readers that each have a copy of it, made by a router.

First records are written one at a time, each when all readers have the one before: milliseconds from the first byte of
a write until each reader has it, and the node's CPU per written record, including delivery. Then batches are written as
fast as the node accepts them, while no reader is connected, until all copies are there. Bytes are the growth of the
database. Verified: each reader received each record once, in order, and each copy exists.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from eventd.bench import streams as watchers
from eventd.bench.streams import WriteProgress
from tests.bench.topics_site import Figures, Site, cpu_seconds, parts, read_numbers, site, write_of
from tests.bench.topics_watch import write_all
from tests.bench.wire import call, client_of, load, percentile

SOURCE = "source"
BATCH = 100
LONGEST = 120.0


async def measure_sharing(directory: Path, options: argparse.Namespace) -> Figures:
    figures: Figures = {}
    for count in options.readers:
        for name, topics in (("shared", [SOURCE] * count), ("copied", [f"copy-{number}" for number in range(count)])):
            with site(directory / f"{name}-{count}") as at:
                await load(at.port, [[write_of(SOURCE, [0], options.size)]])
                for topic in {*topics} - {SOURCE}:
                    await call(at.port, "PUT", f"/v0/routers/{topic}", {"source": SOURCE, "dest": topic})
                found = await _one_by_one(at, topics, options) | await _in_batches(at, topics, options)
            figures |= {f"{name}_{count}_{key}": value for key, value in found.items()}
    return figures


async def _one_by_one(at: Site, topics: list[str], options: argparse.Namespace) -> Figures:
    turn, numbers = WriteProgress(), range(1, options.told + 1)
    streams = await watchers.open_streams(client_of(at.port), topics, turn, from_seq=0)
    size, cpu = _stored_bytes(at), cpu_seconds(at.node)
    seconds, _, busy = await write_all(
        at.port, turn, lambda number: write_of(SOURCE, [number], options.size), numbers, len(topics)
    )
    cpu, size = cpu_seconds(at.node) - cpu, _stored_bytes(at) - size
    for stream in streams:
        stream.close()
        assert stream.numbers()[-len(numbers) :] == [*numbers], "each record once, in order"
    return {
        "p50_ms": percentile(seconds, 50),
        "p99_ms": percentile(seconds, 99),
        "cpu_us_per_record": round(cpu / len(numbers) * 1e6),
        "bytes_per_record": round(size / len(numbers)),
        "client_busy": round(busy, 2),
    }


async def _in_batches(at: Site, topics: list[str], options: argparse.Namespace) -> Figures:
    first, count = options.told + 1, options.batches * BATCH
    size, cpu = _stored_bytes(at), cpu_seconds(at.node)
    await load(at.port, [[write_of(SOURCE, part, options.size) for part in parts(count, BATCH, first=first)]])
    async with asyncio.timeout(LONGEST):
        while at.ask_file("SELECT count(*) FROM topics WHERE next_seq <= ? AND name LIKE 'copy-%'", count)[0][0]:  # noqa: ASYNC110 another process
            await asyncio.sleep(0.05)
    cpu, size = cpu_seconds(at.node) - cpu, _stored_bytes(at) - size
    for topic in {*topics}:
        assert (await read_numbers(at.port, topic))[-count:] == [*range(first, first + count)], (
            "each copy once, in order"
        )
    return {
        "batched_cpu_us_per_record": round(cpu / count * 1e6, 1),
        "batched_bytes_per_record": round(size / count),
    }


def _stored_bytes(at: Site) -> int:
    pages, free, size = (at.ask_file(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size"))
    return int((pages - free) * size)
