"""Measures two nodes: `python -m tests.bench [catchup|latency|previews] [options]`. Every run verifies what arrived.

`python -m tests.bench callbacks` measures callbacks, with options of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from eventd.log.core.append import place_new
from eventd.log.core.topic_row import ensure_topic
from eventd.log.core.values import Drafts
from eventd.store.engine.database import Database
from eventd.store.schema.migrations import upgrade
from tests.bench import callbacks
from tests.bench.latency import measure_latency, measure_previews
from tests.bench.nodes import BenchNode, make_drafts, verify
from tests.bench.rounds import databases, run_rounds


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["callbacks"]:
        callbacks.main(arguments[1:])
        return
    options = _options(arguments)
    durability = {"durability": "FULL" if options.database == "sqlite" else "synchronous_commit=on"}
    measure = {"latency": measure_latency, "previews": measure_previews, "catchup": _catch_up}[options.what]
    with databases(options.database) as make_url:
        orders = itertools.cycle([options.histories, options.histories[::-1]])

        def one() -> dict[str, float]:
            found: dict[str, dict[str, float]] = {}
            for options.history in next(orders):
                with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
                    found[options.history] = asyncio.run(measure(Path(directory), make_url, options))
            if len(found) == 1:
                return found[options.history]
            return {f"{mode}_{name}": value for mode, of_mode in found.items() for name, value in of_mode.items()}

        run_rounds(vars(options) | durability, options.rounds, one)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", epilog="callbacks: see callbacks --help")
    parser.add_argument("what", choices=["catchup", "latency", "previews"], nargs="?", default="catchup")
    parser.add_argument("--events", type=int, help="catchup, previews: default 200000")
    parser.add_argument("--size", type=int, default=350)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--previews", type=int, help="previews: how many at a time; default 3")
    modes = parser.add_argument("--histories", choices=["off", "record"], nargs="+", default=["record"])
    modes.help = "the history.mode of the groups; several are measured in turns"
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    options = parser.parse_args(arguments)
    if options.what == "latency" and options.events is not None:
        parser.error("argument --events: latency measures a fixed number of events")
    if options.what != "previews" and options.previews is not None:
        parser.error("argument --previews: only previews has any")
    options.events, options.previews = options.events or 200_000, options.previews or 3
    return options


async def _catch_up(
    directory: Path, make_url: Callable[[], str | None], options: argparse.Namespace
) -> dict[str, float]:
    """Measure the catch-up of an empty node B with A: events per second from B's first event to its last."""
    (directory / "key").write_text("bench-secret")
    a, b = BenchNode("a", directory, make_url()), BenchNode("b", directory, make_url())
    for node, other in ((a, b), (b, a)):
        node.history = options.history
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
        while b.stored() < options.events:  # noqa: ASYNC110 another process: it can only be polled
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
    """Measure the yardstick of the same run: the same events into the same tables, in one process, without network and
    decoding."""
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
    main(sys.argv[1:])
