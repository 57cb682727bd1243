"""Measures what tracing costs a node: `python -m tests.bench.tracing [options]`.

Each round measures two nodes in turns with `routerctl bench ingest`: one without tracing, and one that makes a span of
each request and commit and whose collector is down. The order alternates. The measurement verifies that each event
was stored.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path

from eventd.bench.children import free_ports
from tests.bench.rounds import run_rounds
from tests.support.declared import group
from tests.support.processes import Processes
from tests.support.running import NodeProcess

NAMES = ("plain", "traced")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tracing")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=256, help="events of a request")
    parser.add_argument("--window", type=int, default=0, help="single events by the client, so many at a time")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    orders = itertools.cycle([NAMES, NAMES[::-1]])
    run_rounds(vars(options), options.rounds, lambda: _round(options, next(orders)))


def _round(options: argparse.Namespace, order: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as folder:
        for name in order:
            found[f"{name}_events_per_second"] = _measure(options, Path(folder), name)
    return {**found, "traced_to_plain": found["traced_events_per_second"] / found["plain_events_per_second"]}


def _measure(options: argparse.Namespace, folder: Path, name: str) -> float:
    processes = Processes(folder / name)
    [port] = free_ports(1)
    tracing = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    try:
        node = NodeProcess(processes, "a", **(tracing if name == "traced" else {}))
        node.apply(group("a"))
        how = ["--window", str(options.window)] if options.window else ["--batch", str(options.batch)]
        told = processes.control(
            *("bench", "ingest", "--server", f"http://127.0.0.1:{node.process.port}"),
            *("--events", str(options.events), *how, "-o", "json"),
            seconds=600,
        )
        assert told.returncode == 0, told.stderr
        result = json.loads(told.stdout)
        assert result["verified"], result
        node.stop()
        return float(result["events_per_second"])
    finally:
        processes.close()


if __name__ == "__main__":
    main()
