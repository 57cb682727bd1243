"""Plays the seeds of a campaign in several processes, each of which runs the same command on a part of them."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import Any, Final

from eventd.errors import CheckFailed

_SUMS: Final = ("runs", "idleRuns", "acknowledgedEvents", "kills", "powerLosses")


def run_in_processes(first: int, seeds: int, jobs: int) -> dict[str, Any]:
    """Return the result of `seeds` seeds from `first` on as one object. Raises `CheckFailed` if a process fails."""
    share = -(-seeds // jobs)
    parts = [(begin, min(share, first + seeds - begin)) for begin in range(first, first + seeds, share)]
    with ExitStack() as stack:
        running = [stack.enter_context(_start(begin, count)) for begin, count in parts]
        stack.callback(_end, running)
        outputs = [process.communicate()[0] for process in running]
    results = []
    for (begin, count), text in zip(parts, outputs, strict=True):
        try:
            results.append(json.loads(text))
        except ValueError:
            raise CheckFailed(f"the process for seeds {begin} to {begin + count - 1} ended without a result") from None
    return _together(results)


def _start(first: int, seeds: int) -> subprocess.Popen[bytes]:
    words = ["simulate", "--from", str(first), "--seeds", str(seeds), "-o", "json"]
    return subprocess.Popen([sys.executable, "-m", "eventd.cli.routerd_eventd", *words], stdout=subprocess.PIPE)


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.kill()  # does nothing to one that has ended


def _together(results: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: sum(each[name] for each in results) for name in _SUMS}
    faults: dict[str, int] = {}
    for each in results:
        for kind, count in each["faults"].items():
            faults[kind] = faults.get(kind, 0) + count
    minutes = sum(each["runs"] / each["runsPerCpuMinute"] for each in results if each["runsPerCpuMinute"])
    return {
        **found,
        "faults": dict(sorted(faults.items())),
        "violations": [violation for each in results for violation in each["violations"]],
        "sums": {seed: number for each in results for seed, number in each["sums"].items()},
        "runsPerCpuMinute": round(found["runs"] / minutes, 1) if minutes else 0.0,
    }
