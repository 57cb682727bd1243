"""Measures one topic with no, 1, 10, 100 and 1,000 routers, each into a topic of its own, all over HTTP.

One client writes single records as fast as it can while the routers work: p50 and p99 of its writes, and copies per
second from the first write to the last copy. `one_ms`: from a write into an idle node to its last copy. The copies are
counted in the node's file, so that no request disturbs the node. The bare insert is as many rows into one table as
there are copies. Verified: each topic holds each record once, in order. `kills` has routers too.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path

from tests.bench.topics_site import (
    Figures,
    Site,
    cpu_seconds,
    make_record,
    parts,
    read_numbers,
    resident_mib,
    site,
    write_of,
)
from tests.bench.topics_writes import bare_insert_rate
from tests.bench.wire import LoadResult, call, load, open_line, request

SOURCE = "source"
FEWEST, MOST = 200, 2000
"""The least and the most writes; in between, as many as make the wanted number of copies."""
ONES = 10
BARE_RECORDS = 250
LONGEST = 600.0


async def measure_routers(directory: Path, options: argparse.Namespace) -> Figures:
    figures: Figures = {}
    for count in options.routers:
        with site(directory / str(count)) as at:
            figures |= await _routers(at, count, options)
        figures |= _compare(figures, count, directory, options)
    return figures


def _compare(figures: Figures, count: int, directory: Path, options: argparse.Namespace) -> Figures:
    """Compare with the same measurement without routers, and with a bare insert."""
    name = f"routers_{count}"
    compared: Figures = {}
    if "routers_0_write_p50_ms" in figures and count:
        ratio = figures[f"{name}_write_p50_ms"] / figures["routers_0_write_p50_ms"]
        compared[f"{name}_write_p50_to_none"] = round(ratio, 2)
    if count:
        records = [make_record(number, options.size) for number in range(BARE_RECORDS)]
        copies = count * writes_for(count, options.copies)
        flush = "FULL" if options.durability == "fsync" else "NORMAL"
        bare = bare_insert_rate(
            directory / f"bare-{count}.db", records, max(1, copies // BARE_RECORDS), synchronous=flush
        )
        compared[f"{name}_bare_insert_per_second"] = round(bare)
        compared[f"{name}_copies_to_bare_insert"] = round(figures[f"{name}_copies_per_second"] / bare, 3)
    return compared


def writes_for(routers: int, copies: int) -> int:
    """Return how many records are written to a source with this number of routers."""
    return min(MOST, max(FEWEST, copies // max(1, routers)))


async def _routers(at: Site, count: int, options: argparse.Namespace) -> Figures:
    await call(at.port, "PUT", f"/v0/topics/{SOURCE}", {"durability": options.durability})
    made = await _declare(at, count, options)
    writes, size, name = writes_for(count, options.copies), options.size, f"routers_{count}"
    before, cpu, begun = resident_mib(at.node), cpu_seconds(at.node), time.perf_counter()
    done = await load(at.port, [[write_of(SOURCE, [number], size) for number in range(1, writes + 1)]])
    written = time.perf_counter()
    await _all_copied(at, count, writes)
    seconds = time.perf_counter() - begun
    figures = {
        f"{name}_write_p50_ms": done.percentile(50),
        f"{name}_write_p99_ms": done.percentile(99),
        f"{name}_writes_per_second": round(done.rate),
        f"{name}_client_busy": done.busy,
    }
    if count:
        cpu = cpu_seconds(at.node) - cpu
        figures |= {
            f"{name}_declared_per_second": round(made.rate),
            f"{name}_copies_per_second": round(count * writes / seconds),
            f"{name}_after_last_write_ms": round((time.perf_counter() - written) * 1000, 1),
            f"{name}_node_cpu_us_per_copy": round(cpu / (count * writes) * 1e6, 1),
            f"{name}_one_ms": await _one_by_one(at, count, writes, size),
            f"{name}_grown_mib": round(resident_mib(at.node) - before, 1),
        }
    await _verify(at, count, writes + (ONES if count else 0))
    return figures


async def _declare(at: Site, count: int, options: argparse.Namespace) -> LoadResult:
    for number in range(count):
        await call(at.port, "PUT", f"/v0/topics/dest-{number}", {"durability": options.durability})
    bodies = [{"source": SOURCE, "dest": f"dest-{number}", "guarantee": options.guarantee} for number in range(count)]
    made = await load(
        at.port, [[request("PUT", f"/v0/routers/r-{number}", body) for number, body in enumerate(bodies)]]
    )
    assert all(one["created"] for one in made.jsons()[0])
    return made


async def _all_copied(at: Site, count: int, records: int, *, every: float = 0.02) -> None:
    """Wait until each destination has this number of records."""
    sql = "SELECT coalesce(min(next_seq), ?) FROM topics WHERE name LIKE 'dest-%'"
    async with asyncio.timeout(LONGEST):
        while count and at.ask_file(sql, records + 1)[0][0] <= records:  # noqa: ASYNC110 another process
            await asyncio.sleep(every)


async def _one_by_one(at: Site, count: int, before: int, size: int) -> float:
    """Return the median milliseconds from one write to its last copy."""
    taken = []
    line = await open_line(at.port)
    for number in range(before + 1, before + ONES + 1):
        await asyncio.sleep(0.1)
        begun = time.perf_counter()
        await line.ask(write_of(SOURCE, [number], size))
        await _all_copied(at, count, number, every=0.001)
        taken.append((time.perf_counter() - begun) * 1000)
    line.close()
    return round(statistics.median(taken), 2)


async def _verify(at: Site, count: int, records: int) -> None:
    expected = [number for part in parts(records, records) for number in part]
    assert await read_numbers(at.port, SOURCE) == expected, "the source has what was written"
    for number in range(count):
        assert await read_numbers(at.port, f"dest-{number}") == expected, "each copy once, in order"
