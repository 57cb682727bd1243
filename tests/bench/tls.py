"""Measures what TLS costs a link: `python -m tests.bench.tls [options]`.

Each round sends the same events twice, over plain HTTP and over TLS in which both nodes show certificates: first one by
one over a kept connection, then many at once. Every event is compared at the end. The order alternates.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.latency import WARM_UP, node_pair
from tests.bench.nodes import make_drafts
from tests.bench.rounds import run_rounds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tls")
    parser.add_argument("--events", type=int, default=40_000, help="sent at once")
    parser.add_argument("--alone", type=int, default=300, help="sent one by one")
    parser.add_argument("--size", type=int, default=512, help="bytes of an event")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    order = itertools.cycle([(False, True), (True, False)])
    run_rounds(vars(options), options.rounds, lambda: asyncio.run(_round(options, next(order))))


async def _round(options: argparse.Namespace, order: tuple[bool, bool]) -> dict[str, float]:
    found: dict[str, float] = {}
    for tls in order:
        found |= await _measure(options, tls=tls)
    return {
        **dict(sorted(found.items())),
        "tls_to_plain_catch_up": found["tls_events_per_second"] / found["plain_events_per_second"],
        "tls_minus_plain_alone_ms": found["tls_alone_ms"] - found["plain_alone_ms"],
    }


async def _measure(options: argparse.Namespace, *, tls: bool) -> dict[str, float]:
    name = "tls" if tls else "plain"
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
        async with node_pair(Path(directory), lambda: None, tls=tls) as pair:
            drafts = make_drafts("a", WARM_UP + options.alone, options.size)
            rounds = (await pair.send(drafts))[WARM_UP:]
            many = make_drafts("a", options.events, options.size, start=len(drafts))
            begun = time.perf_counter()
            await pair.hold(many)  # stores them here, and waits for the receipts of all
            seconds = time.perf_counter() - begun
    return {
        f"{name}_events_per_second": options.events / seconds,
        f"{name}_alone_ms": 1000 * statistics.median(receipt for _, _, receipt in rounds),
    }


if __name__ == "__main__":
    main()
