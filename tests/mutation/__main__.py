"""Run the tests of a module against each of a sample of its mutants: `python -m tests.mutation --count 100`.

A mutant that fails no test survives. Some survivors are equivalent to the original; each of the others shows behaviour
that no test covers. With `--simulate SEEDS`, simulated runs judge survivors, too; a run kills a mutant only if it
violates an invariant, and none does so without a change. Tests run in copies of the project,
one for each job, so that nothing is changed here. The figures are written to build/mutants.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.mutation.mutants import Mutant, mutants
from tests.reliability.provenance import describe_run

ROOT = Path(__file__).parents[2]
TARGETS = {
    "federation": ("tests/unit/federation", "tests/contract/federation/test_vector_files.py"),
    "eventd/log/core": ("tests/unit/log/core", "tests/contract/log/core"),
    "eventd/log/cursors": ("tests/contract/log/cursors", "tests/contract/egress/loop"),
    "eventd/ingress": (
        "tests/unit/ingress",
        "tests/contract/ingress",
        "tests/integration/ingress/test_federation_refusals.py",
    ),
    "eventd/egress/loop/consumer.py": ("tests/contract/egress/loop",),
}
"""Folders and files, and the tests that must notice a change of them."""
_COPIED = ("eventd", "federation", "migrations", "tests", "docs", "deploy", "pyproject.toml", "README.md")
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc")
_PATIENCE = 4.0
"""A run that takes this many times as long as without a change is in an endless loop."""
_LEAST_SECONDS = 30.0
_SEED_SECONDS = 20.0
"""Seconds after which a simulated run is in an endless loop."""
_VIOLATED = 4
"""The exit status of a simulated run that violates an invariant."""
KILLED, TIMEOUT, SURVIVED, SIMULATED = "killed", "timeout", "survived", "killed by the simulation"


def main() -> int:
    options = read_options(sys.argv[1:])
    targets = dict(options.target) if options.target else TARGETS
    tests = {path: named.split(",") if isinstance(named, str) else list(named) for path, named in targets.items()}
    rng = random.Random(options.seed)
    made = [mutant for path in tests for mutant in _of(path)]
    sample = sorted(rng.sample(made, min(options.count, len(made))), key=lambda mutant: (mutant.path, mutant.start))
    print(f"{len(sample)} of {len(made)} mutants, --seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(_copy(Path(folder) / str(number)))
        seconds = {path: _unchanged(copies, path, found) for path, found in tests.items()}
        if options.simulate and (status := _simulate(Path(folder) / "0", options.simulate)) != 0:
            sys.exit(f"the simulated runs fail without a change: status {status}")
        with ThreadPoolExecutor(options.jobs) as pool:
            jobs = [pool.submit(_judge, copies, mutant, tests, seconds, options.simulate) for mutant in sample]
            ends = [job.result() for job in jobs]
    _report(sample, ends)
    figures = {"run": describe_run(), "seed": options.seed, "simulatedSeeds": options.simulate, "of": len(made)}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(figures | _figures(sample, ends), indent=1) + "\n")
    return 0


def read_options(arguments: list[str]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="size of the sample")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="repeats a sample")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants are judged at the same time")
    parser.add_argument(
        "--target", type=_target, action="append", default=[], metavar="PATH=TESTS,…", help="instead of the usual"
    )
    parser.add_argument(
        "--simulate", type=int, default=0, metavar="SEEDS", help="play so many simulated runs with each survivor"
    )
    parser.add_argument("--output", type=Path, default=Path("build/mutants.json"), help="where to write the figures")
    return parser.parse_args(arguments)


def _target(text: str) -> tuple[str, str]:
    """Return a path and its tests. Raises `ArgumentTypeError`."""
    path, _, tests = text.partition("=")
    for name in (path, *tests.split(",")):
        if not name or not (ROOT / name.partition("::")[0]).exists():
            usual = ", ".join(TARGETS)
            raise argparse.ArgumentTypeError(f"'{name}' in '{text}' is not a file or folder; the usual paths: {usual}")
    return path, tests


def _of(path: str) -> list[Mutant]:
    place = ROOT / path
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return [found for file in files for found in mutants(file.relative_to(ROOT).as_posix(), file.read_bytes())]


def _copy(folder: Path) -> Path:
    folder.mkdir()
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=_NOT_COPIED)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def _unchanged(copies: SimpleQueue[Path], target: str, tests: Sequence[str]) -> float:
    """Return how long the tests take without a change. Exits if they fail, because they are then no measure."""
    copy = copies.get()
    try:
        started = time.monotonic()
        done = _run(copy, tests, seconds=1800)
        if done is None or done.returncode:
            sys.exit(f"the tests of {target} fail without a change:\n{done.stdout[-4000:] if done else 'no end'}")
        taken = time.monotonic() - started
        print(f"{target}: {taken:.0f} s unchanged", flush=True)
        return taken
    finally:
        copies.put(copy)


def _judge(
    copies: SimpleQueue[Path], mutant: Mutant, tests: dict[str, list[str]], seconds: dict[str, float], seeds: int
) -> str:
    """Return the end of a mutant: `KILLED`, `TIMEOUT`, `SIMULATED` or `SURVIVED`."""
    target = next(path for path in tests if mutant.path == path or mutant.path.startswith(f"{path}/"))
    copy = copies.get()
    file = copy / mutant.path
    source = file.read_bytes()
    try:
        file.write_bytes(mutant.apply(source))
        done = _run(copy, tests[target], seconds=max(_LEAST_SECONDS, seconds[target] * _PATIENCE))
        end = TIMEOUT if done is None else KILLED if done.returncode else SURVIVED
        if end == SURVIVED and seeds and _simulate(copy, seeds) == _VIOLATED:
            end = SIMULATED
        print(f"{end}: {mutant}", flush=True)
        return end
    finally:
        file.write_bytes(source)
        copies.put(copy)


def _simulate(copy: Path, seeds: int) -> int | None:
    """Return the exit status of simulated runs from seed 1 on; None if they do not end in time."""
    command = [sys.executable, "-m", "eventd.cli.routerd_eventd", "simulate", "--seeds", str(seeds)]
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, timeout=_SEED_SECONDS * seeds)
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _run(copy: Path, tests: Sequence[str], *, seconds: float) -> subprocess.CompletedProcess[str] | None:
    """Run the tests; return None if they had not ended after `seconds`."""
    options = ["-q", "-x", "-m", "not postgres and not spark", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command = [sys.executable, "-m", "pytest", *options, "--hypothesis-seed=0", "--timeout", "60", *tests]
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def _report(sample: Sequence[Mutant], ends: Sequence[str]) -> None:
    survivors = [str(mutant) for mutant, end in zip(sample, ends, strict=True) if end == SURVIVED]
    print("\nsurvivors:", *survivors, sep="\n  ")
    for folder, counts in [*_by_folder(sample, ends).items(), ("all", Counter(ends))]:
        killed = counts.total() - counts[SURVIVED]
        print(f"{folder}: {killed} of {counts.total()} killed ({killed / counts.total():.0%})")


def _by_folder(sample: Sequence[Mutant], ends: Sequence[str]) -> dict[str, Counter[str]]:
    folders: dict[str, Counter[str]] = {}
    for mutant, end in zip(sample, ends, strict=True):
        folders.setdefault(mutant.path.rpartition("/")[0], Counter())[end] += 1
    return folders


def _figures(sample: Sequence[Mutant], ends: Sequence[str]) -> dict[str, Any]:
    folders = [
        {
            "folder": folder,
            "mutants": counts.total(),
            "killed": counts[KILLED] + counts[TIMEOUT],
            "killedBySimulation": counts[SIMULATED],
        }
        for folder, counts in _by_folder(sample, ends).items()
    ]
    survivors = [str(mutant) for mutant, end in zip(sample, ends, strict=True) if end == SURVIVED]
    return {"folders": folders, "survivors": survivors}


if __name__ == "__main__":
    sys.exit(main())
