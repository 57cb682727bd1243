"""Measures the verification of a peer with many events: its duration, and the latency of events delivered meanwhile.

`python -m tests.bench.verify [--events N]`. Both nodes are processes of their own. Single events are emitted at A over
its API; their latency ends when B's database holds them. The same is measured next to a comparison that runs
throughout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventd.store.engine.database import Database
from eventd.store.schema.tables import blocks
from tests.bench.latency import _first_sight
from tests.bench.nodes import GROUP, BenchNode, make_drafts
from tests.bench.rounds import databases, run_rounds

SINGLES = 300


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verify")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=350)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    options = parser.parse_args()
    with databases(options.database) as make_url:

        def one() -> dict[str, float]:
            with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
                return _measure(Path(directory), make_url, options)

        run_rounds(vars(options), options.rounds, one)


def _measure(directory: Path, make_url: Callable[[], str | None], options: argparse.Namespace) -> dict[str, float]:
    (directory / "key").write_text("bench-secret")
    a, b = BenchNode("a", directory, make_url()), BenchNode("b", directory, make_url())
    a.declare(directory / "key", [b])
    b.declare(directory / "key", [])
    for start in range(0, options.events, 100_000):
        some = make_drafts("a", min(100_000, options.events - start), options.size, start=start)
        asyncio.run(a.fill(some))
    b.start()
    a.start()
    witness = Database(b.url)
    try:
        while b.stored() < options.events:
            time.sleep(0.1)
        time.sleep(2)
        alone = _singles(a, witness, options.events)
        before = [node.cpu_seconds() for node in (a, b)]
        clean = _verify(a)
        asked_s, answered_s = (node.cpu_seconds() - spent for node, spent in zip((a, b), before, strict=True))
        ending = threading.Event()
        beside = threading.Thread(target=_verify_on_and_on, args=(a, ending))
        beside.start()
        busy = _singles(a, witness, options.events + SINGLES)
        ending.set()
        beside.join()
        witness.write_now(_remove_some)
        found = _verify(a)
    finally:
        witness.close()
        a.stop()
        b.stop()
    assert clean["report"]["clean"], clean
    assert found["report"]["events"]["missing"] > 0, found
    return {
        "verify_s": clean["seconds"],
        "cpu_of_a_s": round(asked_s, 2),
        "cpu_of_b_s": round(answered_s, 2),
        "with_a_loss_s": found["seconds"],
        "missing": found["report"]["events"]["missing"],
        "alone_p50_ms": _percentile(alone, 50),
        "alone_p99_ms": _percentile(alone, 99),
        "beside_p50_ms": _percentile(busy, 50),
        "beside_p99_ms": _percentile(busy, 99),
    }


def _remove_some(conn: Any) -> None:
    """Delete one block from the middle, as damage would; its ids stay known, as they may in a damaged database."""
    from eventd.store.engine.statements import execute, fetch

    [(first, records)] = fetch(
        conn, f"SELECT position, records FROM {blocks.name} ORDER BY position LIMIT 1 OFFSET 100"
    )
    execute(conn, "DELETE FROM blocks WHERE position = ?", (first,))
    execute(conn, "DELETE FROM event_ids WHERE position >= ? AND position < ?", (first, first + records))


def _singles(a: BenchNode, witness: Database, before: int) -> list[float]:
    found = []
    for number in range(before + 1, before + SINGLES + 1):
        time.sleep(0.005)
        begun = time.perf_counter()
        _ask(a, "events", {"events": [{"type": "t", "subject": f"s{number}"}]})
        found.append(_first_sight(witness, number) - begun)
    return found


def _verify(a: BenchNode) -> dict[str, Any]:
    begun = time.perf_counter()
    told = _ask(a, "peers/b/verify", {"seconds": 1})
    while not told["done"]:
        told = _ask(a, "peers/b/verify", {"run": told["run"], "seconds": 1})
    return {**told, "seconds": round(time.perf_counter() - begun, 2)}


def _verify_on_and_on(a: BenchNode, ending: threading.Event) -> None:
    while not ending.is_set():
        _verify(a)


def _ask(node: BenchNode, path: str, body: dict[str, Any]) -> Any:
    url = f"http://127.0.0.1:{node.api}/api/v1/groups/{GROUP}/{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _percentile(seconds: list[float], percent: int) -> float:
    return round(statistics.quantiles(seconds, n=100)[percent - 1] * 1000, 2)


if __name__ == "__main__":
    main()
