"""`routerd-eventd simulate`: plays the plans of seeds, and reports what does not hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventd.cli.simulate.processes import run_in_processes
from eventd.cli.terminal.output import Format, Output
from eventd.errors import CheckFailed, EventdError
from eventd.settings.environment import scratch_folder, unseeded_environment

if TYPE_CHECKING:  # it loads the node
    from eventd.simulation.plan import SimulationPlan

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


def run_one(seed: int | None, file: Path | None, *, trace: bool, shrink: bool) -> None:
    """Play one plan, of a seed or in a file, and show it; with `trace`, also each step. Raises `CheckFailed`.

    With `shrink`, the smallest plan that fails in the same way is written to a file.
    """
    fix_hash_seed()
    from eventd.simulation.campaign import require_machine, trace_plan
    from eventd.simulation.plan import draw_plan

    require_machine()
    plan = draw_plan(seed or 0) if file is None else _read_plan(file)
    if trace:
        result = trace_plan(plan, print, _folder())
    else:
        print("\n".join(plan.lines()))
        result = trace_plan(plan, lambda _: None, _folder())
    steps = f"{result.steps} steps in {result.seconds:.1f} virtual seconds"
    print(f"{steps}, sum {result.sum:08x}; {result.acknowledged} events acknowledged", flush=True)
    for violation in result.violations:
        print(violation, file=sys.stderr, flush=True)
    if not result.violations:
        return
    if shrink:
        _shrink(plan, result.violations[0].invariant)
    raise CheckFailed(f"seed {plan.seed} failed", hint="the lines above say what does not hold")


def _read_plan(file: Path) -> SimulationPlan:
    import msgspec

    from eventd.simulation.plan import plan_from_json

    try:
        return plan_from_json(file.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise EventdError(f"{file} cannot be read as a plan: {error}", hint="--shrink writes plans") from None


def _shrink(plan: SimulationPlan, invariant: str) -> None:
    from eventd.simulation.shrinking import shrink_failure

    def report(smaller: SimulationPlan) -> None:
        print(f"still violates {invariant}: {_size(smaller)}", file=sys.stderr, flush=True)

    smallest = shrink_failure(plan, invariant, _folder(), report)
    file = Path(f"plan-{plan.seed}.json")
    file.write_bytes(smallest.to_json() + b"\n")
    print(f"{file}: {_size(smallest)}; repeat it with routerd-eventd simulate --plan {file} --trace")


def _size(plan: SimulationPlan) -> str:
    return f"{len(plan.topology.nodes)} nodes, {len(plan.load)} steps of load, {len(plan.faults)} faults"


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
    taken = [f"{count} {name}" for name, count in found["branches"].items() if count]
    yield "rare branches: " + (", ".join(taken) or "none")
    never = [name for name, count in found["branches"].items() if not count]
    if never:
        yield "never taken: " + ", ".join(never)
