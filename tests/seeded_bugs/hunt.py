"""Looks for a seeded bug in each of its ways, and says what found it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventd.simulation.campaign import trace_plan
from eventd.simulation.plan import SimulationPlan, draw_plan
from eventd.simulation.run import play
from tests.models.bugs import ALL
from tests.seeded_bugs.bug import ByModel, BySimulation, BySuite, ProductBug, Way, planted
from tests.support.source import ROOT

STARTS: Final = (1, 1001, 2001)
"""Where a search begins: the median of several is less a matter of luck than one."""
_FAILED: Final = re.compile(r"^FAILED \S*::(\w+)", re.MULTILINE)
_TESTS_FAILED: Final = 1


@dataclass(frozen=True)
class Catch:
    """What a way has found. `seed` and `runs` are those of a simulation, `states` those of a model."""

    way: str
    invariant: str
    detail: str
    seed: int | None = None
    runs: int = 0
    states: int = 0

    def __str__(self) -> str:
        return f"{self.invariant}, {self.detail}"


def hunt(
    bug: ProductBug, folder: Path | None, *, known: bool, starts: Sequence[int] = STARTS
) -> Iterator[tuple[Way, list[Catch]]]:
    """Yield each way with its catches: none if it misses the bug.

    With `known`, only the first way is tried, and of its seeds the known one.
    """
    for way in bug.ways[:1] if known else bug.ways:
        match way:
            case BySimulation():
                yield way, _simulate(bug, way, folder, known=known, starts=starts)
            case ByModel():
                yield way, _explore(way)
            case BySuite():
                yield way, _run_test(bug, way)


def violated(bug: ProductBug, way: BySimulation, seed: int, folder: Path | None) -> list[str]:
    """Return which of its invariants one run with the bug violates, as their names with details."""
    with planted(bug.patch, way.also):
        found = play(_plan_of(way, seed), within=folder).violations
    return [str(each) for each in found if each.invariant in way.invariants]


def trace_known(bug: ProductBug, way: BySimulation, folder: Path | None, write: Callable[[str], None]) -> bool:
    """Play the run that is known to find the bug, with a line for its plan, each step and each violation.

    Return whether it violates one of the invariants of the bug.
    """
    with planted(bug.patch, way.also):
        found = trace_plan(_plan_of(way, way.known), write, folder).violations
    for each in found:
        write(str(each))
    return any(each.invariant in way.invariants for each in found)


def _plan_of(way: BySimulation, seed: int) -> SimulationPlan:
    plan = draw_plan(seed, way.kinds)
    return way.change(plan) if way.change is not None else plan


def _simulate(
    bug: ProductBug, way: BySimulation, folder: Path | None, *, known: bool, starts: Sequence[int]
) -> list[Catch]:
    """Return a catch of each search; none at all if one of them misses the bug."""
    found = list[Catch]()
    for start in (way.known,) if known else starts:
        for runs, seed in enumerate(range(start, start + (1 if known else way.most)), 1):
            if details := violated(bug, way, seed, folder):
                detail = f"seed {seed}, {runs} run{'s' * (runs > 1)}: {details[0]}"
                found.append(Catch("simulation", details[0].split()[0], detail, seed, runs))
                break
        else:
            return []
    return found


def _explore(way: ByModel) -> list[Catch]:
    """Return a catch of each model; none at all if one of them misses the bug."""
    found = list[Catch]()
    for title in way.titles:
        [modelled] = [each for each in ALL if each.title == title]
        result = modelled.explore()
        if result.found is None or result.found.invariant != modelled.invariant:
            return []
        detail = f"{result.states} states of {title}"
        found.append(Catch("model", modelled.invariant, detail, states=result.states))
    return found


def _run_test(bug: ProductBug, way: BySuite) -> list[Catch]:
    options = ["-q", "-x", "-p", "tests.seeded_bugs.plant", "-p", "no:cacheprovider", "-p", "no:randomly"]
    options += [] if way.needs else ["-m", "not postgres"]
    command = [sys.executable, "-m", "pytest", *options, "--seeded-bug", bug.name, way.test]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    failed = _FAILED.search(done.stdout)
    if done.returncode == _TESTS_FAILED and failed is not None:
        return [Catch("test", way.invariants[0], failed[1])]
    if done.returncode:  # a test that cannot run finds nothing
        raise AssertionError(f"{way.test} does not run with {bug.name}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return []


def known_way(bug: ProductBug) -> Way | None:
    """Return the way by which the bug is replayed; None: it stands, or is not written yet."""
    return bug.ways[0] if bug.ways else None
