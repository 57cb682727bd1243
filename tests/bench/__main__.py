"""Measure two nodes: `python -m tests.bench [catchup|latency] [options]`. Every run verifies what arrived."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from eventd.log.append import place_new
from eventd.log.head import ensure_topic
from eventd.log.values import Drafts
from eventd.store.database import Database
from eventd.store.migrations import upgrade
from tests.bench.latency import measure_latency
from tests.bench.nodes import BenchNode, make_drafts, verify
from tests.support.postgres import PostgresServer, find_programs


def main() -> None:
    options = _options()
    server = None
    if options.database == "postgres":
        server = PostgresServer(find_programs())
        server.start()
    try:
        make_url: Callable[[], str | None] = server.create_database if server else lambda: None
        print(json.dumps({"settings": _settings(options)}, indent=2))
        rounds = []
        for number in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
                measure = measure_latency if options.what == "latency" else _catch_up
                rounds.append(asyncio.run(measure(Path(directory), make_url, options)))
            print(json.dumps({"round": number + 1, **rounds[-1]}))
        medians = {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}
        print(json.dumps({"medians": medians, "verified": True}, indent=2))
    finally:
        if server is not None:
            server.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("what", choices=["catchup", "latency"], nargs="?", default="catchup")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=350)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> dict[str, object]:
    return vars(options) | {
        "durability": "FULL" if options.database == "sqlite" else "synchronous_commit=on",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "fsync_ms": round(_fsync_ms(), 3),
    }


def _fsync_ms() -> float:
    """Median time of a small write that is made durable, on the disk that is measured."""
    times = []
    with tempfile.NamedTemporaryFile(prefix="eventd-bench-") as file:
        for _ in range(50):
            begun = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)


async def _catch_up(
    directory: Path, make_url: Callable[[], str | None], options: argparse.Namespace
) -> dict[str, float]:
    """A holds events, B none: events per second from B's first to its last."""
    (directory / "key").write_text("bench-secret")
    a, b = BenchNode("a", directory, make_url()), BenchNode("b", directory, make_url())
    for node, other in ((a, b), (b, a)):
        node.declare(directory / "key", [other])
    drafts = make_drafts("a", options.events, options.size)
    bare = _bare_rate(directory, make_url, drafts)
    await a.fill(drafts)
    b.start()
    a.start()
    try:
        first = 0
        while first <= 0:
            first = b.stored()
        begun = time.perf_counter()
        while b.stored() < options.events:  # noqa: ASYNC110 another process: there is nothing to wait for but its answer
            await asyncio.sleep(0.02)
        seconds = time.perf_counter() - begun
        figures = {
            "events_per_second": round((options.events - first) / seconds),
            "seconds": round(seconds, 3),
            "sender_cpu_us_per_event": round(a.cpu_seconds() / options.events * 1e6, 2),
            "receiver_cpu_us_per_event": round(b.cpu_seconds() / options.events * 1e6, 2),
            "sender_resident_mib": round(a.resident_mib(), 1),
            "receiver_resident_mib": round(b.resident_mib(), 1),
            "bare_insert_per_second": round(bare),
        }
    finally:
        a.stop()
        b.stop()
    verify(a, b, options.events)
    return figures | {"ratio_to_bare_insert": round(figures["events_per_second"] / bare, 3)}


def _bare_rate(directory: Path, make_url: Callable[[], str | None], drafts: list) -> float:  # type: ignore[type-arg]
    """The yardstick of the same run: the same events into the same tables, one process, no network, no decoding."""
    database = Database(make_url() or f"sqlite:///{directory / 'bare.db'}")
    try:
        database.write_now(upgrade, now=1)
        topic = database.write_now(ensure_topic, "bare", 1)
        position, begun = 1, time.perf_counter()
        for start in range(0, len(drafts), 1000):
            unit = Drafts.of(drafts[start : start + 1000])
            with database.transaction() as conn:
                position = place_new(conn, topic, [unit], next_position=position, now=1).next_position
        return len(drafts) / (time.perf_counter() - begun)
    finally:
        database.close()
        shutil.rmtree(directory / "bare.db", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
