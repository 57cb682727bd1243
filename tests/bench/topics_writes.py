"""Measures writes to one topic: single ones by one client and by 16, batches of 16; the rival receives the same bytes.

Verified: each batch is there once, at the seqs of its answer. The bare insert is one connection to a SQLite file with
the durability of the node, which inserts the same records, as many in a transaction as all writers send at once.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.bench.topics_site import Figures, Site, cpu_seconds, make_record, parts, site, verify, write_of
from tests.bench.wire import LoadResult, call, compact, load, request

CLIENTS = 16
BATCH = 100
WARM_UP = 20
"""Requests of each client that are not counted."""


async def measure_writes(directory: Path, options: argparse.Namespace) -> Figures:
    figures: Figures = {}
    with site(directory) as at:
        for durability in ("disk", "fsync"):
            for clients in (1, CLIENTS):
                calls = options.writes if clients == 1 else options.writes // 4
                figures |= await _singles(at, f"{durability}_{clients}", durability, clients, calls, options.size)
            figures |= await _batches(at, f"{durability}_batch", durability, options.batches, options.size)
    batch = [make_record(number, options.size) for number in range(BATCH * CLIENTS)]
    bare = bare_insert_rate(directory / "bare.db", batch, options.batches)
    ratio = round(figures["fsync_batch_records_per_second"] / bare, 3)
    return figures | {"bare_insert_per_second": round(bare), "fsync_batch_ratio_to_bare_insert": ratio}


async def _singles(at: Site, name: str, durability: str, clients: int, calls: int, size: int) -> Figures:
    done, rival, _ = await _write(
        at, name, durability, [parts(calls, 1, first=1 + calls * one) for one in range(clients)], size
    )
    return {
        f"{name}_p50_ms": done.percentile(50),
        f"{name}_p99_ms": done.percentile(99),
        f"{name}_per_second": round(done.rate),
        f"{name}_rival_p50_ms": rival.percentile(50),
        f"{name}_p50_to_rival": round(done.percentile(50) / rival.percentile(50), 2),
        f"{name}_rate_to_rival": round(done.rate / rival.rate, 3),
        f"{name}_client_busy": done.busy,
    }


async def _batches(at: Site, name: str, durability: str, batches: int, size: int) -> Figures:
    each = BATCH * batches
    done, rival, cpu = await _write(
        at, name, durability, [parts(each, BATCH, first=1 + each * one) for one in range(CLIENTS)], size
    )
    return {
        f"{name}_records_per_second": round(done.rate * BATCH),
        f"{name}_p50_ms": done.percentile(50),
        f"{name}_p99_ms": done.percentile(99),
        f"{name}_node_cpu_us_per_record": round(cpu / done.calls / BATCH * 1e6, 2),
        f"{name}_rival_records_per_second": round(rival.rate * BATCH),
        f"{name}_rate_to_rival": round(done.rate / rival.rate, 3),
        f"{name}_client_busy": done.busy,
    }


async def _write(
    at: Site, topic: str, durability: str, batches: Sequence[Sequence[range]], size: int
) -> tuple[LoadResult, LoadResult, float]:
    """Write, and send the same to the rival: both results, and the CPU seconds of the node."""
    await call(at.port, "PUT", f"/v0/topics/{topic}", {"durability": durability})
    await _warm_up(at, durability, len(batches), size)
    cpu = cpu_seconds(at.node)
    done = await load(at.port, [[write_of(topic, batch, size) for batch in row] for row in batches])
    cpu = cpu_seconds(at.node) - cpu
    told = done.jsons()
    await verify(at.port, topic, told, batches)
    answer = len(compact(told[0][-1]))
    path = f"/answer/{answer}"
    bodies = [[write_of(topic, batch, size).partition(b"\r\n\r\n")[2] for batch in row] for row in batches]
    rival = await load(at.rival.port, [[request("POST", path, body) for body in row] for row in bodies])
    assert rival.calls == done.calls
    return done, rival, cpu


async def _warm_up(at: Site, durability: str, clients: int, size: int) -> None:
    topic = f"warm_{durability}"
    await call(at.port, "PUT", f"/v0/topics/{topic}", {"durability": durability})
    await load(at.port, [[write_of(topic, [number], size) for number in range(WARM_UP)]] * clients)
    await load(at.rival.port, [[request("POST", "/answer/200", b"{}")] * WARM_UP] * clients)


def bare_insert_rate(file: Path, records: Sequence[object], times: int, *, synchronous: str = "FULL") -> float:
    """Return records per second of SQLite in transactions of all the `records`; FULL flushes each to the disk."""
    with closing(sqlite3.connect(file, isolation_level=None)) as bare:
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute(f"PRAGMA synchronous = {synchronous}")
        bare.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, ts INTEGER, body TEXT)")
        begun = time.perf_counter()
        for _ in range(times):
            texts = [(1, json.dumps(record)) for record in records]
            bare.execute("BEGIN IMMEDIATE")
            bare.executemany("INSERT INTO records (ts, body) VALUES (?, ?)", texts)
            bare.execute("COMMIT")
        seconds = time.perf_counter() - begun
        assert bare.execute("SELECT count(*) FROM records").fetchone() == (len(records) * times,)
    return len(records) * times / seconds
