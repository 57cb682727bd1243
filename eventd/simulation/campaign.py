"""A campaign: many runs one after the other, and what they found together."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eventd.runtime.clock import cpu_seconds
from eventd.simulation.checks.violation import Violation
from eventd.simulation.plan import SimulationPlan, draw_plan
from eventd.simulation.run import SimulationResult, play
from eventd.simulation.world.sqlite_library import load_library


@dataclass(slots=True)
class CampaignResult:
    """The sums over the runs of a campaign; those that did not count are in `runs` and in `idle`."""

    runs: int = 0
    idle: int = 0
    acknowledged: int = 0
    kills: int = 0
    power_losses: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    branches: dict[str, int] = field(default_factory=dict)
    violations: list[tuple[int, Violation]] = field(default_factory=list)
    """Each with its seed."""
    sums: dict[int, int] = field(default_factory=dict)
    """What identifies the steps of each run, by seed."""
    cpu_seconds: float = 0.0

    def add(self, result: SimulationResult) -> None:
        """Add one run."""
        self.runs += 1
        self.idle += not (result.counts or result.violations)
        self.acknowledged += result.acknowledged
        self.kills += result.kills
        self.power_losses += result.power_losses
        self.violations += [(result.seed, violation) for violation in result.violations]
        self.sums[result.seed] = result.sum
        for kind, count in result.faults.items():
            self.faults[kind] = self.faults.get(kind, 0) + count
        for name, count in result.branches.items():
            self.branches[name] = self.branches.get(name, 0) + count

    @property
    def runs_per_cpu_minute(self) -> float:
        """Return how many runs a minute of processor time takes."""
        return 60 * self.runs / self.cpu_seconds if self.cpu_seconds else 0.0

    def to_object(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "runs": self.runs,
            "idleRuns": self.idle,
            "acknowledgedEvents": self.acknowledged,
            "kills": self.kills,
            "powerLosses": self.power_losses,
            "faults": dict(sorted(self.faults.items())),
            "branches": self.branches,
            "violations": [
                {"seed": seed, "invariant": each.invariant, "node": each.host, "at": each.at, "detail": each.detail}
                for seed, each in self.violations
            ],
            "sums": {str(seed): f"{number:08x}" for seed, number in self.sums.items()},
            "runsPerCpuMinute": round(self.runs_per_cpu_minute, 1),
        }


def require_machine() -> None:
    """Raise `SimulationUnavailable` unless the simulation can be the disk of this machine's SQLite."""
    load_library()


def run_campaign(
    seeds: Iterable[int], within: Path | None = None, report: Callable[[SimulationResult], None] = lambda _: None
) -> CampaignResult:
    """Play the plans of these seeds; `report` is called after each. `within`: the folder for the nodes' files."""
    found = CampaignResult()
    gc.collect()
    gc.freeze()  # what is imported lives as long as the process: the collection after each run need not look at it
    begun = cpu_seconds()
    for seed in seeds:
        result = play(draw_plan(seed), within=within)
        found.add(result)
        found.cpu_seconds = cpu_seconds() - begun
        report(result)
    return found


def trace_plan(plan: SimulationPlan, write: Callable[[str], None], within: Path | None = None) -> SimulationResult:
    """Play a plan, with a line for the plan, each fault and each step; return what was found."""
    for line in plan.lines():
        write(line)
    return play(plan, write, within)


def failure_lines(result: SimulationResult) -> Iterator[str]:
    """Yield a line for each violation of a run, with the command that repeats it."""
    for violation in result.violations:
        yield f"seed {result.seed}: {violation}; routerd-eventd simulate --seed {result.seed} --trace"
