"""`routerd-eventd simulate`: plays the plans of seeds, and reports what does not hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from eventd.cli.simulate.processes import run_in_processes
from eventd.cli.terminal.output import Format, Output
from eventd.errors import CheckFailed, EventdError
from eventd.settings.environment import scratch_folder, unseeded_environment

MEMORY: Final = Path("/dev/shm")
"""Where the files of nodes are kept, unless TMPDIR says where: in memory, because the simulation is the disk."""


def run_seeds(first: int, seeds: int, *, jobs: int, output: Format) -> None:
    """Play the plans of `seeds` seeds from `first` on, in `jobs` processes. Raises `CheckFailed` for a violation.

    Without one, it raises `CheckFailed` too if no run was busy enough to count.
    """
    fix_hash_seed()
    from eventd.simulation.campaign import failure_lines, require_machine, run_campaign
    from eventd.simulation.run import SimulationResult

    require_machine()
    if jobs > 1:
        found = run_in_processes(first, seeds, jobs, _folder())
    else:

        def report(result: SimulationResult) -> None:
            for line in failure_lines(result):
                print(line, file=sys.stderr, flush=True)

        found = run_campaign(range(first, first + seeds), within=_folder(), report=report).to_object()
    _show(found, output)
    if found["violations"]:
        failed = len({each["seed"] for each in found["violations"]})
        raise CheckFailed(f"{failed} of {found['runs']} runs failed", hint="repeat one with --seed and --trace")
    if found["idleRuns"] == found["runs"]:
        raise CheckFailed(
            f"all {found['runs']} runs were too idle to count: they prove nothing", hint="play more seeds with --seeds"
        )


def run_seed(seed: int, *, trace: bool) -> None:
    """Play the plan of one seed, and show the plan; with `trace`, also each step. Raises `CheckFailed`."""
    fix_hash_seed()
    from eventd.simulation.campaign import trace_seed
    from eventd.simulation.plan import draw_plan

    if trace:
        result = trace_seed(seed, print, _folder())
    else:
        print("\n".join(draw_plan(seed).lines()))
        result = trace_seed(seed, lambda _: None, _folder())
    steps = f"{result.steps} steps in {result.seconds:.1f} virtual seconds"
    print(f"{steps}, sum {result.sum:08x}; {result.acknowledged} events acknowledged")
    for violation in result.violations:
        print(violation, file=sys.stderr, flush=True)
    if result.violations:
        raise CheckFailed(f"seed {seed} failed", hint="the lines above say what does not hold")


def fix_hash_seed() -> None:
    """Start this command again with a fixed hash seed, unless it has one: the order of sets depends on it."""
    if sys.flags.hash_randomization:
        if sys.flags.ignore_environment:
            raise EventdError(
                "Python was started with -E or -I, and so without PYTHONHASHSEED: a seed would not repeat itself",
                hint="start Python without these options",
            )
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], unseeded_environment())


def _folder() -> Path | None:
    if named := scratch_folder():
        return Path(named)
    return MEMORY if os.access(MEMORY, os.W_OK) else None


def _show(found: dict[str, Any], output: Format) -> None:
    out = Output(output, headers=True, colour=False)
    if out.is_document:
        out.value(found)
        return
    for line in _summary(found):
        print(line)


def _summary(found: dict[str, Any]) -> Iterator[str]:
    failed = len({each["seed"] for each in found["violations"]})
    yield (
        f"{found['runs']} runs, {failed} with violations, {found['idleRuns']} too idle to count;"
        f" {found['acknowledgedEvents']} events acknowledged; {found['kills']} kills,"
        f" {found['powerLosses']} power losses; {found['runsPerCpuMinute']:.0f} runs per CPU minute"
    )
    yield "faults: " + ", ".join(f"{count} {kind}" for kind, count in found["faults"].items())
