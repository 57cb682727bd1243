"""Measures what shipping to a lake costs a node, and how fast a backlog is shipped.

`python -m tests.bench.shipping push` sends events from one node to another, with shipping alternately off and on within
the same run. `… behind` fills a node's ledger while nothing is shipped, then starts it with a lake. Both verify the
lake.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from tests.bench.nodes import BenchNode, make_drafts, verify
from tests.bench.rounds import run_rounds


def main() -> None:
    options = _options()
    measure = _push if options.what == "push" else _behind

    def one() -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
            return asyncio.run(measure(Path(directory), options))

    run_rounds(vars(options), options.rounds, one)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shipping")
    parser.add_argument("what", choices=["push", "behind"])
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--size", type=int, default=350)
    parser.add_argument("--turns", type=int, default=3, help="of push: how often each is measured in a round")
    parser.add_argument("--nice", default="19", help="of the shipping process")
    parser.add_argument("--both", action="store_true", help="of push: the receiver ships, too, on the same machine")
    parser.add_argument("--rows", type=int, default=100_000, help="of behind: rows of a segment")
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args()


async def _pair(directory: Path, options: argparse.Namespace) -> tuple[BenchNode, BenchNode]:
    directory.mkdir(parents=True)  # noqa: ASYNC240 nothing else waits for it
    (directory / "key").write_text("bench-secret")
    a, b = BenchNode("a", directory, None), BenchNode("b", directory, None)
    for node, other in ((a, b), (b, a)):
        node.declare(directory / "key", [other])
    await a.fill(make_drafts("a", options.events, options.size))
    return a, b


async def _push(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return events per second from one node to the other, with or without shipping."""
    rates: dict[str, list[float]] = {"off": [], "on": []}
    rows = 0
    for turn in range(options.turns):
        for what in ("off", "on") if turn % 2 == 0 else ("on", "off"):
            place = directory / f"{turn}-{what}"
            lake = str(place / "lake") if what == "on" else ""
            rate = await _push_once(place, lake, options)
            rates[what].append(rate)
            print(f"{what} {rate:,.0f}/s", flush=True)
            rows = _rows(lake)[Ledger.DELIVERIES] if lake else rows
    off, on = statistics.median(rates["off"]), statistics.median(rates["on"])
    return {
        "events_per_second_off": round(off),
        "events_per_second_on": round(on),
        "cost_percent": round(100 * (1 - on / off), 1),
        "deliveries_in_the_lake_at_the_end": rows,
    }


async def _push_once(place: Path, lake: str, options: argparse.Namespace) -> float:
    a, b = await _pair(place, options)
    b.start(EVENTD_LAKE=lake if options.both else "", EVENTD_LAKE_NICE=options.nice)
    a.start(EVENTD_LAKE=lake, EVENTD_LAKE_NICE=options.nice)
    try:
        first = 0
        while first <= 0:
            first = b.stored()
        begun = time.perf_counter()
        await _until(lambda: b.stored() >= options.events)
        seconds = time.perf_counter() - begun
        if lake:
            await _until(lambda: _rows(lake)[Ledger.DELIVERIES] >= options.events)
    finally:
        a.stop()
        b.stop()
    verify(a, b, options.events)
    return (options.events - first) / seconds


async def _behind(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return rows per second that an otherwise idle node ships from its backlog."""
    a, b = await _pair(directory / "pair", options)
    a.start(), b.start()
    try:
        await _until(lambda: b.stored() >= options.events)
    finally:
        a.stop(), b.stop()
    lake = str(directory / "lake")
    a.start(EVENTD_LAKE=lake, EVENTD_LAKE_NICE=options.nice, EVENTD_LAKE_ROWS=str(options.rows))
    try:
        await _until(lambda: _rows(lake)[Ledger.DELIVERIES] >= options.events)
    finally:
        a.stop()
    rows = _rows(lake)
    assert rows[Ledger.DELIVERIES] == rows[Ledger.EVENTS] == options.events, rows
    return {
        "delivery_rows_per_second": _rate(lake, Ledger.DELIVERIES),
        "event_rows_per_second": _rate(lake, Ledger.EVENTS),
        "delivery_bytes_per_row": round(_bytes(lake, Ledger.DELIVERIES) / rows[Ledger.DELIVERIES], 1),
        "event_bytes_per_row": round(_bytes(lake, Ledger.EVENTS) / rows[Ledger.EVENTS], 1),
    }


def _rate(lake: str, book: Ledger) -> int:
    """Return rows per second from the start times of the segments: extracting, writing and settling in the node
    included."""
    found = [segment.manifest for segment in survey(connect(lake)).segments if segment.place.book is book]
    seconds = (found[-1].written_at - found[0].written_at) / 1e6
    return round(sum(one.rows for one in found[:-1]) / seconds)


async def _until(fact) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 300
    while not fact():
        if time.monotonic() > deadline:
            raise RuntimeError("it did not happen within 300 s")
        await asyncio.sleep(0.1)


def _rows(lake: str) -> dict[Ledger, int]:
    """Return the rows in the lake by ledger table, after a check of its manifests and for gaps."""
    rows = dict.fromkeys(Ledger, 0)
    if not Path(lake, "eventd-lake.json").exists():
        return rows
    found = survey(connect(lake))
    assert not found.troubles, found.troubles
    for segment in found.segments:
        if segment.manifest.node == "a":
            rows[segment.place.book] += segment.manifest.rows
    return rows


def _bytes(lake: str, book: Ledger) -> int:
    return sum(segment.manifest.bytes for segment in survey(connect(lake)).segments if segment.place.book is book)


if __name__ == "__main__":
    sys.exit(main())
