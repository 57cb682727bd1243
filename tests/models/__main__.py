"""`make models`: explores the large spaces, takes random walks, and tries the seeded bugs.

Prints a line for each, and writes the figures to build/models.json. Exits with status 1 if an invariant is broken, or a
seeded bug is not found, and with status 2 if `--only` is part of no title.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.models.bugs import ALL
from tests.models.explorer import Exploration
from tests.models.spaces import SMALL, WALKS, WHOLE
from tests.reliability.provenance import describe_run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models", description="Explore the models of the protocols.")
    parser.add_argument("--only", default="", help="only what has this text in its title")
    parser.add_argument("--most", type=int, default=5_000_000, help="maximum number of states of a space")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the random walks")
    parser.add_argument("--output", type=Path, default=Path("build/models.json"), help="where to write the figures")
    options = parser.parse_args(arguments)
    titles = [each.title for each in [*SMALL, *WHOLE, *WALKS, *ALL]]
    if not any(options.only in title for title in titles):
        parser.error(f"--only: no title has the text '{options.only}' in it; the titles:\n" + "\n".join(titles))
    spaces, failed = list[dict[str, Any]](), False
    for space in [*SMALL, *WHOLE]:
        if options.only in space.title:
            result = space._replace(most=options.most).explore()
            spaces.append(_show(space.title, result))
            failed = failed or result.found is not None
    walks = []
    for each in WALKS:
        if options.only in each.title:
            result = each.explore(options.seed)
            walks.append(_show(f"random walks: {each.title}", result))
            failed = failed or result.found is not None
    bugs = []
    for bug in ALL:
        if options.only in bug.title:
            result = bug.explore()
            caught = result.found is not None and result.found.invariant == bug.invariant
            print(f"{'caught' if caught else 'MISSED'} in {result.states} states: {bug.title}", flush=True)
            bugs.append({"bug": bug.title, "invariant": bug.invariant, "states": result.states, "caught": caught})
            failed = failed or not caught
    figures = {"run": describe_run(), "spaces": spaces, "walks": walks, "bugs": bugs}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(figures, indent=2) + "\n")
    return int(failed)


def _show(title: str, result: Exploration) -> dict[str, Any]:
    extent = "whole space" if result.whole else "part of the space"
    print(f"{title}: {extent}, {result.states} states, {result.edges} steps, {result.seconds:.0f} s", flush=True)
    if result.found is not None:
        print(result.found, flush=True)
    return {
        "title": title,
        "whole": result.whole,
        "states": result.states,
        "steps": result.edges,
        "seconds": round(result.seconds, 1),
        "broken": "" if result.found is None else str(result.found),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
