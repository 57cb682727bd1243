"""Measures which costs grow with the size of a node's log: `python -m tests.bench.growth WHAT [options]`.

`fill` creates logs of each size and keeps them in a folder; `costs` measures them, in any order and repeatedly. The
other measurements create nodes of their own. Every run reads back what it counted; each appends its results to a file
as a line of JSON, from which `page` makes tables and a picture.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from eventd.bench.machine import machine
from eventd.errors import EventdError
from tests.bench.growth_costs import NotVerified, measure
from tests.bench.growth_groups import measure_bodies, measure_groups, measure_retention
from tests.bench.growth_logs import Ids, Shape, fill
from tests.bench.growth_page import markdown, picture
from tests.bench.growth_peers import measure_peers
from tests.bench.rounds import databases


def main() -> int:
    options = _options()
    if options.what == "page":
        results = [json.loads(line) for line in options.out.read_text().splitlines()]
        options.out.with_suffix(".md").write_text(markdown(results))
        options.out.with_suffix(".svg").write_text(picture(results))
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        _run(options)
    except (EventdError, NotVerified, RuntimeError, OSError) as error:
        print(f"error: the figures are not valid: {error}", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> None:
    logs = list(product(options.ids, options.sizes)) if options.what in ("fill", "costs") else []
    if options.database == "postgres":
        _on_postgres(options, logs)
        return
    for ids, events in logs:
        _fill(options.folder, ids, events)
    for _ in range(options.rounds if options.what != "fill" else 0):
        for ids, events in logs:
            a, b = files(options.folder, ids, events)
            _costs(options, ids, events, (f"sqlite:///{a}", f"sqlite:///{b}"))
        if options.what == "peers":
            for peers, dead in zip(options.peers, options.dead, strict=True):
                _case(options, {"peers": peers, "dead": dead}, lambda home: measure_peers(home, peers, dead))  # noqa: B023
        if options.what == "groups":
            for groups in options.groups:
                told = {"groups": groups, "events": options.events}
                _case(options, told, lambda home: measure_groups(home, groups, options.events))  # noqa: B023
        if options.what == "bodies":
            _case(options, {}, measure_bodies)
        if options.what == "retention":
            _case(options, {}, measure_retention)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth")
    parser.add_argument("what", choices=["fill", "costs", "peers", "groups", "bodies", "retention", "page"])
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp/growth"), help="where logs are kept from run to run"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--ids", choices=["node", "random"], nargs="+", default=["node"])
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite", help="of the costs")
    parser.add_argument("--peers", type=int, nargs="+", default=[1, 100, 100, 1000, 1000])
    parser.add_argument("--dead", type=int, nargs="+", default=[0, 0, 10, 0, 100], help="of those, one for each")
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 200])
    parser.add_argument("--events", type=int, default=40_000, help="of all groups together")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the file that results are added to, and that `page` reads")
    return parser.parse_args()


def files(folder: Path, ids: Ids, events: int) -> tuple[Path, Path]:
    """Return the files of the logs of A and of B."""
    home = folder / f"{ids}-{events}"
    return home / "a.db", home / "b.db"


def _fill(folder: Path, ids: Ids, events: int) -> None:
    """Create the logs of one size if they are missing."""
    a, b = files(folder, ids, events)
    if (a.parent / "whole").exists():
        return
    a.parent.mkdir(parents=True)
    begun = time.perf_counter()
    fill((f"sqlite:///{a}", f"sqlite:///{b}"), events, Shape(ids))
    (a.parent / "whole").touch()
    print(f"filled {a.parent.name} in {time.perf_counter() - begun:.0f} s", flush=True)


def _on_postgres(options: argparse.Namespace, logs: Sequence[tuple[Ids, int]]) -> None:
    """Measure the costs of logs on a Postgres server that is created and filled for this run."""
    with databases("postgres") as make_url:
        for ids, events in logs:
            urls = str(make_url()), str(make_url())
            fill(urls, events, Shape(ids))
            for _ in range(options.rounds):
                _costs(options, ids, events, urls)


def _costs(options: argparse.Namespace, ids: Ids, events: int, urls: tuple[str, str]) -> None:
    settings = {"case": "costs", "ids": ids, "events": events, "database": options.database}
    with tempfile.TemporaryDirectory(prefix="nodes-", dir=options.folder) as home:
        costs, peaks = asyncio.run(measure(urls, Path(home), Shape(ids)))
    told = {name: {"cpu_us": round(cost.cpu_us, 3), "wall_us": round(cost.wall_us, 3)} for name, cost in costs.items()}
    _keep(options, settings | {"costs": told, "figures": peaks})


def _case(
    options: argparse.Namespace,
    told: dict[str, Any],
    measure_it: Callable[[Path], Coroutine[Any, Any, dict[str, float]]],
) -> None:
    with tempfile.TemporaryDirectory(prefix="nodes-", dir=options.folder) as home:
        figures = asyncio.run(measure_it(Path(home)))
    rounded = {name: round(value, 3) for name, value in figures.items()}
    _keep(options, {"case": options.what} | told | {"figures": rounded})


def _keep(options: argparse.Namespace, result: dict[str, Any]) -> None:
    line = json.dumps(result | machine(None))
    print(line, flush=True)
    if options.out is not None:
        with options.out.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
