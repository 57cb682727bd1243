"""Measures plugins: `python -m tests.bench.plugins [--events N] [--batch N] [--concurrency N] [--size N]`.

A plugin returns one resource for each event, as a host process and as a program; all are counted and compared with
their events. Nothing is stored: this is the cost of the plugin alone.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from eventd.plugins.contract.contract import MANUAL_TRIGGER, Outcome, RunRequest
from eventd.plugins.run.plugins import Plugins
from eventd.resources.plugin_configuration import PluginConfig
from eventd.runtime.clock import SystemClock
from eventd.testing import event
from tests.bench.rounds import run_rounds
from tests.support.plugins import plugin_config, write_package, write_program

FUNCTION = """
from eventd.plugins import Resource
def plugin(event):
    yield Resource("net.example/v1", "IPv4Route", event.id, {"destination": event.subject, "gateway": "10.99.0.6"})
"""
PROGRAM = """
import json, sys
resources = [
    {"apiVersion": "net.example/v1", "kind": "IPv4Route", "metadata": {"name": event["id"]},
     "spec": {"destination": event["subject"], "gateway": "10.99.0.6"}}
    for event in json.load(sys.stdin)["spec"].get("events", [])
]
head = {"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "PluginResult"}
print(json.dumps({**head, "status": {"ttl": "10m", "resources": resources}}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.plugins")
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--size", type=int, default=350, help="bytes of each event, about")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
        run_rounds(vars(options), options.rounds, lambda: asyncio.run(_measure(Path(directory), options)), digits=1)


async def _measure(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    plugins = Plugins(SystemClock(), environment={"PATH": "/usr/local/bin:/usr/bin:/bin"})
    common = {"concurrency": options.concurrency}
    function = plugin_config(name="f", entry_point="sample", env=write_package(folder, FUNCTION), **common)
    program = plugin_config(name="p", executable=write_program(folder, PROGRAM), **common)
    try:
        begun = time.perf_counter()
        await plugins.run(function, _request([]))
        start = time.perf_counter() - begun
        return {
            "host_start_ms": round(start * 1000, 1),
            "host_one_event_ms": round(await _alone(plugins, function) * 1000, 2),
            "program_one_event_ms": round(await _alone(plugins, program) * 1000, 2),
            "host_events_per_s": round(await _throughput(plugins, function, options)),
            "program_events_per_s": round(await _throughput(plugins, program, options)),
        }
    finally:
        await plugins.close()


async def _alone(plugins: Plugins, config: PluginConfig) -> float:
    """Return the median seconds of a run over one event."""
    times = []
    for number in range(50):
        begun = time.perf_counter()
        _verify(await plugins.run(config, _request([number])), [number])
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


async def _throughput(plugins: Plugins, config: PluginConfig, options: argparse.Namespace) -> float:
    """Return events per second in full batches. The resources are compared with the events after the clock
    has stopped."""
    padding = "x" * max(0, options.size - 220)
    batches = [
        range(first, min(first + options.batch, options.events)) for first in range(0, options.events, options.batch)
    ]
    requests = [_request(batch, padding) for batch in batches]
    begun = time.perf_counter()
    outcomes = await asyncio.gather(*[plugins.run(config, request) for request in requests])
    took = time.perf_counter() - begun
    for outcome, batch in zip(outcomes, batches, strict=True):
        _verify(outcome, batch)
    return options.events / took


def _request(numbers: Sequence[int], padding: str = "") -> RunRequest:
    events = [event(f"e{number}", subject=f"s{number}", payload={"text": padding}) for number in numbers]
    return RunRequest(plugin="bench", trigger=MANUAL_TRIGGER, topic="", now=SystemClock().now(), events=events)


def _verify(outcome: Outcome, numbers: Sequence[int]) -> None:
    found = [(one["metadata"]["name"], one["spec"]["destination"]) for one in outcome.result.resources]
    expected = [(f"e{number}", f"s{number}") for number in numbers]
    if found != expected:
        raise SystemExit(f"what came back is not what was given: {found[:3]} instead of {expected[:3]}")


if __name__ == "__main__":
    main()
