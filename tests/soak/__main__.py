"""`python -m tests.soak --minutes 60`: real nodes under constant load with a fault a minute, and what grows.

Samples each node every few seconds, judges the slopes of the second half, and compares with the begin once the load is
over. Writes the figures to build/soak.json. Exits with status 4 if something grows, does not come back, or is lost, or
if less than 80 % of the load is acknowledged.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.reliability.provenance import describe_run
from tests.soak.nodes import FAULTS, STEADY, SoakClient, SoakNodes
from tests.soak.samples import NodeSampler
from tests.soak.verdict import SOUND, missing_load, rows

SETTLE_SECONDS = 30.0
"""Seconds after the load until the figures are compared with those of the begin."""

Samples = dict[str, dict[str, list[tuple[float, float]]]]


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    directory = Path(tempfile.mkdtemp(prefix="eventd-soak-"))
    soak = SoakNodes(directory)
    wrong = ["the soak did not reach its end"]
    try:
        found, wrong = _run(soak, options)
    finally:
        soak.processes.close()
        if not wrong:
            shutil.rmtree(directory)
    print(f"{found['acknowledged']} events acknowledged, {found['faults']} faults")
    for row in found["slopes"]:
        print(f"{row['node']} {row['figure']}: {row['begin']} to {row['end']}, {row['slope']:+g}/h: {row['verdict']}")
    print(*(f"WRONG: {line}" for line in wrong), *([f"logs and databases: {directory}"] if wrong else []), sep="\n")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    return 4 if wrong else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long the load lasts")
    parser.add_argument("--rate", type=float, default=60.0, help="events per second, of all nodes together")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two samples")
    parser.add_argument("--fault-seconds", type=float, default=60.0, help="seconds between two faults")
    parser.add_argument("--output", type=Path, default=Path("build/soak.json"), help="where to write the figures")
    return parser.parse_args(arguments)


def _run(soak: SoakNodes, options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    samplers = [NodeSampler(node) for node in soak.nodes.values()]
    clients = [SoakClient(node, options.rate / len(soak.nodes)) for node in soak.nodes.values()]
    for client in clients:
        client.start()
    samples: Samples = {}
    try:
        _load(soak, samplers, samples, options)
    finally:
        for client in clients:
            client.finish()
    acknowledged = sum(client.acknowledged for client in clients)
    wrong = list(filter(None, [missing_load(acknowledged, options.rate, options.minutes * 60)]))
    wrong += soak.rest(clients)
    time.sleep(SETTLE_SECONDS)
    after = {sampler.node.name: sampler.sample() for sampler in samplers}
    slopes = list(rows(samples, after))
    wrong += [f"{row['node']}: {row['figure']} {row['verdict']}" for row in slopes if row["verdict"] not in SOUND]
    figures = {
        "run": describe_run(),
        "minutes": options.minutes,
        "eventsPerSecond": options.rate,
        "acknowledged": acknowledged,
        "faults": sum(soak.faults.values()),
        "faultsByKind": soak.faults,
        "slopes": slopes,
        "wrong": wrong,
    }
    return figures, wrong


def _load(soak: SoakNodes, samplers: list[NodeSampler], samples: Samples, options: argparse.Namespace) -> None:
    """Sample and inflict faults until the time is over. The last minute has no fault."""
    begun = time.monotonic()
    end = begun + options.minutes * 60
    faults = itertools.cycle(FAULTS)
    fault_at = begun + options.fault_seconds
    while (now := time.monotonic()) < end:
        for sampler in samplers:
            _take(sampler, now - begun, samples)
        if now >= fault_at and now < end - options.fault_seconds:
            soak.inflict(*next(faults))
            fault_at += options.fault_seconds
        time.sleep(max(0.0, min(now + options.every, end) - time.monotonic()))


def _take(sampler: NodeSampler, at: float, samples: Samples) -> None:
    """Add a sample. Of nodes that are restarted, only figures that outlive a process are kept."""
    name = sampler.node.name
    for figure, value in sampler.sample().items():
        if name == STEADY or "MiB" not in figure or "log" in figure:
            samples.setdefault(name, {}).setdefault(figure, []).append((at, value))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
