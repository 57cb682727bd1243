"""Looks for a seeded bug in each of its ways, and says what found it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventd.simulation.plan import draw_plan
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


def hunt(bug: ProductBug, folder: Path | None, *, known: bool, starts: Sequence[int] = STARTS) -> Iterator[Catch]:
    """Yield what finds the bug; with `known`, only the first of its ways is tried, and of its seeds the known one."""
    for way in bug.ways[:1] if known else bug.ways:
        match way:
            case BySimulation():
                yield from _simulate(bug, way, folder, known=known, starts=starts)
            case ByModel():
                yield from _explore(way)
            case BySuite():
                yield from _run_test(bug, way)


def violated(bug: ProductBug, way: BySimulation, seed: int, folder: Path | None) -> list[str]:
    """Return which of its invariants one run with the bug violates, as their names with details."""
    plan = draw_plan(seed, way.kinds)
    plan = way.change(plan) if way.change is not None else plan
    with planted(bug.patch, way.also):
        found = play(plan, within=folder).violations
    return [str(each) for each in found if each.invariant in way.invariants]


def _simulate(
    bug: ProductBug, way: BySimulation, folder: Path | None, *, known: bool, starts: Sequence[int]
) -> Iterator[Catch]:
    for start in (way.known,) if known else starts:
        for runs, seed in enumerate(range(start, start + (1 if known else way.most)), 1):
            if told := violated(bug, way, seed, folder):
                detail = f"seed {seed}, {runs} run{'s' * (runs > 1)}: {told[0]}"
                yield Catch("simulation", told[0].split()[0], detail, seed, runs)
                break
        else:
            return  # a bug that a part of the searches does not find is not found


def _explore(way: ByModel) -> Iterator[Catch]:
    for title in way.titles:
        [modelled] = [each for each in ALL if each.title == title]
        result = modelled.explore()
        if result.found is not None and result.found.invariant == modelled.invariant:
            yield Catch("model", modelled.invariant, f"{result.states} states of {title}", states=result.states)


def _run_test(bug: ProductBug, way: BySuite) -> Iterator[Catch]:
    options = ["-q", "-x", "-p", "tests.seeded_bugs.plant", "-p", "no:cacheprovider", "-p", "no:randomly"]
    options += [] if way.needs else ["-m", "not postgres"]
    command = [sys.executable, "-m", "pytest", *options, "--seeded-bug", bug.name, way.test]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    failed = _FAILED.search(done.stdout)
    if done.returncode == _TESTS_FAILED and failed is not None:
        yield Catch("test", way.invariants[0], failed[1])
    elif done.returncode:  # a test that cannot run finds nothing
        raise AssertionError(f"{way.test} does not run with {bug.name}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def known_way(bug: ProductBug) -> Way | None:
    """Return the way by which the bug is replayed; None: it stands, or is not written yet."""
    return bug.ways[0] if bug.ways else None
