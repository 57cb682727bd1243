"""`make seeded-bugs`: puts each bug of the table into the product, and looks whether it is found.

Prints a line for each: its number, the bug, and what found it, or that it stands. Writes the figures to
build/seeded-bugs.json; with `--known`, which searches nothing, it writes none. Exits with status 1 if one of a bug's
ways does not find it, and with status 2 for a number that no bug has. `--trace` shows the run that finds one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from eventd.settings.environment import unseeded_environment
from tests.reliability.provenance import describe_run
from tests.seeded_bugs.bug import BySimulation, ProductBug
from tests.seeded_bugs.hunt import STARTS, Catch, hunt, trace_known
from tests.seeded_bugs.table import TABLE

MEMORY = Path("/dev/shm")
_INVARIANT = re.compile(r"\b[VT]\d+")


def main(arguments: list[str]) -> int:
    options = read_options(arguments)
    if sys.flags.hash_randomization:  # a seed repeats itself only with a fixed hash seed
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], unseeded_environment())
    folder = Path(os.environ["TMPDIR"]) if "TMPDIR" in os.environ else MEMORY if MEMORY.is_dir() else None
    return trace(options, folder) if options.trace else search(options, folder)


def trace(options: argparse.Namespace, folder: Path | None) -> int:
    """Show the run that is known to find the one bug that is named; return the status to exit with."""
    [(bug, way)] = [each for each in _simulated() if each[0].number in options.only]
    return int(not trace_known(bug, way, folder, print))


def _simulated() -> list[tuple[ProductBug, BySimulation]]:
    """Return the bugs that the simulation finds, each with how."""
    return [(bug, way) for bug in TABLE for way in bug.ways if isinstance(way, BySimulation)]


def search(options: argparse.Namespace, folder: Path | None) -> int:
    """Look for the bugs; return the status to exit with."""
    rows, missed = _kept_rows(options.output), 0
    for bug in TABLE:
        if options.only and bug.number not in options.only:
            continue
        tried = [*hunt(bug, folder, known=options.known, starts=options.starts)]
        found = [catch for _, catches in tried for catch in catches]
        blind = [way for way, catches in tried if not catches]
        print(
            f"{bug.number:2} {bug.title}: {_words(bug, found)}",
            *(f"   MISSED by {way}" for way in blind),
            sep="\n",
            flush=True,
        )
        missed += len(blind)
        if not options.known:
            rows[bug.number] = row_of(bug, found)
            _write(options.output, rows)
    return int(missed > 0)


def _kept_rows(file: Path) -> dict[int, dict[str, Any]]:
    """Return the rows of earlier searches by number: a search for some bugs leaves the others as they are."""
    if not file.exists():
        return {}
    numbers = {bug.number for bug in TABLE}
    return {row["number"]: row for row in json.loads(file.read_text())["bugs"] if row["number"] in numbers}


def _write(file: Path, rows: dict[int, dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"bugs": [rows[number] for number in sorted(rows)]}, indent=1)
    file.write_text(text + "\n")


def read_options(arguments: list[str]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.seeded_bugs", description="Search for the seeded bugs.")
    numbers = [bug.number for bug in TABLE]
    parser.add_argument(
        "--only", type=int, choices=numbers, action="append", metavar="NUMBER", help="only this bug; repeatable"
    )
    parser.add_argument("--known", action="store_true", help="only the way and the seed that are known to find it")
    parser.add_argument(
        "--starts", type=int, nargs="+", default=STARTS, help="the first seeds of the searches in the simulator"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/seeded-bugs.json"), help="where to write the figures"
    )
    parser.add_argument(
        "--trace", action="store_true", help="with one --only: show the simulated run that is known to find it"
    )
    options = parser.parse_args(arguments)
    simulated = [bug.number for bug, _ in _simulated()]
    if options.trace and not (options.only and len(options.only) == 1 and options.only[0] in simulated):
        parser.error(f"--trace: write one --only, of a bug that the simulation finds: {', '.join(map(str, simulated))}")
    return options


def _words(bug: ProductBug, found: list[Catch]) -> str:
    if not found:
        return f"stands: {bug.stands}" if bug.stands else "not found"
    return "; ".join(map(str, found))


def row_of(bug: ProductBug, found: Sequence[Catch]) -> dict[str, Any]:
    """Return the figures of a bug, as the page on reliability reads them."""
    runs = [each.runs for each in found if each.way == "simulation"]
    searches = [way.conditions for way in bug.ways if isinstance(way, BySimulation)]
    return {
        "number": bug.number,
        "bug": bug.title,
        "where": bug.where,
        "ways": sorted({each.way for each in found}),
        "invariants": sorted({name for each in found for name in _INVARIANT.findall(each.invariant)}),
        "medianRuns": median(runs) if runs else None,
        "mostRuns": max(runs, default=None),
        "searchedWith": searches[0] if runs else "",
        "states": max((each.states for each in found), default=0) or None,
        "tests": [each.detail for each in found if each.way == "test"],
        "stands": bug.stands if not found else "",
        "run": describe_run(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
