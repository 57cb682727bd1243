"""Plays the seeds of a campaign in several processes, each of which runs the same command on a part of them."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from eventd.errors import EventdError
from eventd.settings.environment import unseeded_environment

TERMINATE_SECONDS: Final = 10.0
"""How long a process may take to end after a signal."""
_SUMS: Final = ("runs", "idleRuns", "acknowledgedEvents", "kills", "powerLosses")


def run_in_processes(first: int, seeds: int, jobs: int, within: Path | None) -> dict[str, Any]:
    """Return the result of `seeds` seeds from `first` on as one object. Raises `EventdError` if a process fails.

    Their files are in one folder below `within`, which is removed however they end.
    """
    share = -(-seeds // jobs)
    parts = [(begin, min(share, first + seeds - begin)) for begin in range(first, first + seeds, share)]
    with ExitStack() as stack:
        folder = stack.enter_context(
            TemporaryDirectory(prefix="eventd-simulation-", dir=within, ignore_cleanup_errors=True)
        )
        running = list[subprocess.Popen[bytes]]()
        stack.callback(_end, running)
        for begin, count in parts:
            running.append(_start(begin, count, folder))
        outputs = [process.communicate()[0] for process in running]
    results = []
    for (begin, count), text, process in zip(parts, outputs, running, strict=True):
        try:
            results.append(json.loads(text))
        except ValueError:
            raise EventdError(
                f"the process for seeds {begin} to {begin + count - 1} ended with status {process.returncode} and"
                " without a result"
            ) from None
    return _together(results)


def _start(first: int, seeds: int, folder: str) -> subprocess.Popen[bytes]:
    words = ["simulate", "--from", str(first), "--seeds", str(seeds), "-o", "json"]
    command = [sys.executable, "-m", "eventd.cli.routerd_eventd", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=unseeded_environment(folder))


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    """End the processes that have not ended, also in the middle of a run."""
    for process in running:
        process.terminate()  # does nothing to one that has ended
    for process in running:
        try:
            process.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _together(results: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: sum(each[name] for each in results) for name in _SUMS}
    minutes = sum(each["runs"] / each["runsPerCpuMinute"] for each in results if each["runsPerCpuMinute"])
    return {
        **found,
        "faults": dict(sorted(_add_up("faults", results).items())),
        "branches": _add_up("branches", results),
        "violations": [violation for each in results for violation in each["violations"]],
        "sums": {seed: number for each in results for seed, number in each["sums"].items()},
        "runsPerCpuMinute": round(found["runs"] / minutes, 1) if minutes else 0.0,
    }


def _add_up(name: str, results: list[dict[str, Any]]) -> dict[str, int]:
    """Return the sums of counts by their names."""
    found: dict[str, int] = {}
    for each in results:
        for one, count in each[name].items():
            found[one] = found.get(one, 0) + count
    return found
