"""A campaign: many runs, and what they found together."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

from eventd.runtime.clock import cpu_seconds
from eventd.simulation.faults.fault import POSTGRES, SQLITE
from eventd.simulation.faults.pairs import pairs_on
from eventd.simulation.plan import SimulationPlan, draw_plan
from eventd.simulation.run import SimulationResult, play
from eventd.simulation.world.sqlite_library import load_library
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.store.schema.scratch_databases import ScratchDatabases

RARE_RUNS: Final = 1000
"""From so many runs on, a campaign that has never taken a rare branch has failed."""


class FoundViolation(msgspec.Struct, frozen=True):
    """A violation with the seed of its run; `at` is in virtual seconds since the begin of the run."""

    seed: int
    invariant: str
    node: str
    at: float
    detail: str


class CampaignResult(msgspec.Struct, rename="camel"):
    """The sums over the runs of a campaign, in the form of its JSON.

    Each run either has a violation, or was too idle to count, or counts.
    """

    seeds: list[tuple[int, int]] = []
    """The seeds of the runs, as ranges from the first to the last one, ascending and apart."""
    runs: int = 0
    counted_runs: int = 0
    idle_runs: int = 0
    acknowledged_events: int = 0
    batches: int = 0
    """Batches for which their sender has a receipt."""
    kills: int = 0
    power_losses: int = 0
    shapes: dict[str, int] = {}
    """Runs by the shape of their topology."""
    faults: dict[str, int] = {}
    fault_pairs: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(pairs_on(SQLITE), 0))
    """In how many runs two kinds of faults met."""
    branches: dict[str, int] = {}
    acknowledged_units: dict[str, int] = {}
    """Acknowledged units of load by its kind."""
    violations: list[FoundViolation] = []
    cpu_minutes: float = 0.0
    sum: str = "00000000"
    """Identifies the steps of all runs, in whatever order they were played."""

    def add(self, result: SimulationResult) -> None:
        """Add one run."""
        self._add_seed(result.seed)
        self.runs += 1
        self.idle_runs += not (result.counts or result.violations)
        self.counted_runs += result.counts and not result.violations
        self.acknowledged_events += result.acknowledged
        self.batches += result.batches
        self.kills += result.kills
        self.power_losses += result.power_losses
        self.cpu_minutes += result.cpu_seconds / 60
        self.sum = f"{int(self.sum, 16) + crc32(f'{result.seed} {result.sum}'.encode()) & 0xFFFFFFFF:08x}"
        found = [
            FoundViolation(result.seed, each.invariant, each.host, each.at, each.detail) for each in result.violations
        ]
        self.violations = sorted(self.violations + found, key=lambda each: each.seed)
        _count(self.shapes, {result.shape: 1})
        _count(self.faults, result.faults)
        _count(self.fault_pairs, dict.fromkeys(result.pairs, 1))
        _count(self.branches, result.branches)
        _count(self.acknowledged_units, {kind: done for kind, (_, done) in result.work.items()})

    def _add_seed(self, seed: int) -> None:
        numbers = sorted([*self.seeds, (seed, seed)])
        merged = [numbers[0]]
        for first, last in numbers[1:]:
            if first == merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], last)
            else:
                merged.append((first, last))
        self.seeds = merged

    def has(self, seed: int) -> bool:
        """Return whether the seed was played."""
        return any(first <= seed <= last for first, last in self.seeds)

    @property
    def failed_runs(self) -> int:
        """Return how many runs have violations."""
        return len({each.seed for each in self.violations})

    @property
    def runs_per_cpu_minute(self) -> float:
        """Return how many runs a minute of processor time takes."""
        return self.runs / self.cpu_minutes if self.cpu_minutes else 0.0

    @property
    def never_taken(self) -> list[str]:
        """Return the rare branches that no run has taken."""
        return [name for name, count in self.branches.items() if not count]

    @property
    def never_acknowledged(self) -> list[str]:
        """Return the kinds of load of which runs had units, and no run an acknowledged one."""
        return [kind for kind, count in self.acknowledged_units.items() if not count]

    @property
    def failure(self) -> str:
        """Return why the campaign has failed; empty if it has not."""
        if self.violations:
            return f"{self.failed_runs} of {counted(self.runs, 'run')} failed"
        if self.idle_runs == self.runs:
            what = "the run was" if self.runs == 1 else f"all {self.runs} runs were"
            return f"{what} too idle to count: that proves nothing"
        if self.runs >= RARE_RUNS and self.never_taken:
            return f"{self.runs} runs have never taken: {', '.join(self.never_taken)}"
        if self.runs >= RARE_RUNS and self.never_acknowledged:
            return f"{self.runs} runs have never had an acknowledgement of: {', '.join(self.never_acknowledged)}"
        return ""

    @property
    def hint(self) -> str:
        """Return what to do about the failure."""
        if self.violations:
            return "repeat one with --seed and --trace"
        return "play more seeds with --seeds"

    def to_object(self) -> dict[str, Any]:
        """Return the result as JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found | {"runsPerCpuMinute": round(self.runs_per_cpu_minute, 1)}


def _count(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def require_machine() -> None:
    """Raise `SimulationUnavailable` unless the simulation can be the disk of this machine's SQLite."""
    load_library()


def play_seeds(
    seeds: Iterable[int], within: Path | None = None, server: ScratchDatabases | None = None
) -> Iterator[SimulationResult]:
    """Yield the result of each seed's plan. `within`: the folder for the nodes' files; `server`: their databases."""
    store = SQLITE if server is None else POSTGRES
    gc.collect()
    gc.freeze()  # what is imported lives as long as the process: the collection after each run need not look at it
    for seed in seeds:
        begun = cpu_seconds()
        result = play(draw_plan(seed, store=store), within=within, server=server)
        result.cpu_seconds = cpu_seconds() - begun
        yield result


def result_to_json(result: SimulationResult) -> bytes:
    """Return the result of a run as one line of JSON, for the process that asked for it."""
    return msgspec.json.encode(result)


def result_from_json(line: bytes) -> SimulationResult:
    """Return the result that `result_to_json` has written."""
    return msgspec.json.decode(line, type=SimulationResult)


def trace_plan(
    plan: SimulationPlan,
    write: Callable[[str], None],
    within: Path | None = None,
    server: ScratchDatabases | None = None,
) -> SimulationResult:
    """Play a plan, with a line for the plan, each fault and each step; return what was found."""
    for line in plan.lines():
        write(line)
    return play(plan, write, within, server=server)


def failure_lines(result: SimulationResult, on: str = "") -> Iterator[str]:
    """Yield a line for each violation of a run, with the command that repeats it; `on`: the option for its server."""
    for violation in result.violations:
        yield f"seed {result.seed}: {violation}; routerd-eventd simulate --seed {result.seed}{on} --trace"
