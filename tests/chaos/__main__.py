"""`python -m tests.chaos --seed N`: run the plans of the seeds from N on until the time is used or one fails.
`python -m tests.chaos restores --moments N` runs a table of restores instead."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path

from tests.chaos import namespaces, restores
from tests.chaos.kinds import NODE_FAULTS
from tests.chaos.plan import LOADS, Axes, FaultWithoutTarget, draw
from tests.chaos.report import CampaignReport
from tests.chaos.run import run, say
from tests.support.option_values import names_of
from tests.support.postgres import PostgresServer, find_programs


def main() -> None:
    """Exit with status 4 if a check fails, and with status 2 for faults and loads that do not exist."""
    if sys.argv[1:2] == ["restores"]:
        sys.exit(restores.main(sys.argv[2:]))
    options = read_options(sys.argv[1:])
    if not options.plan:
        namespaces.enter()
    server = None
    if options.database != "sqlite" and not options.plan:
        server = PostgresServer(find_programs())
        server.start()
    try:
        passed = _campaign(options, server)
    except FaultWithoutTarget as error:
        sys.stderr.write(f"python -m tests.chaos: error: {error}\n")
        sys.exit(2)
    finally:
        if server is not None:
            server.stop()
    sys.exit(0 if passed else 4)


def read_options(arguments: list[str]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; 0 draws one")
    parser.add_argument(
        "--minutes", type=float, default=0, help="continue with further seeds for this time; 0: this one only"
    )
    parser.add_argument("--kills", type=int, default=0, help="continue until this number of kills with -9 instead")
    parser.add_argument("--failures", type=int, default=1, help="end after this number of seeds that fail")
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both", help="both: by turns")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of faults for each seed")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long a round is")
    parser.add_argument("--workers", type=int, help="processes of one node, instead of what the seed draws")
    parser.add_argument("--standby", choices=["yes", "no"], help="whether one node on Postgres is a pair")
    loads = f"what one node does besides its events: {','.join(LOADS)}, or none"
    parser.add_argument("--loads", type=names_of("load", ["none", *LOADS]), help=loads)
    only = "kinds of faults of nodes, separated by commas: no others"
    parser.add_argument("--only", type=names_of("fault of nodes", NODE_FAULTS), default=(), help=only)
    parser.add_argument("--report", type=Path, help="write what was run to this file, as JSON")
    parser.add_argument("--plan", action="store_true", help="print the plan and do nothing")
    options = parser.parse_args(arguments)
    options.axes = _axes(options)
    return options


def _axes(options: argparse.Namespace) -> Axes:
    loads = None
    if options.loads is not None:
        loads = tuple(word for word in options.loads if word != "none")
    standby = None if options.standby is None else options.standby == "yes"
    return Axes(workers=options.workers, standby=standby, loads=loads, only=options.only)


def _campaign(options: argparse.Namespace, server: PostgresServer | None) -> bool:
    seed = options.seed or secrets.randbelow(1 << 31) + 1
    end = time.monotonic() + options.minutes * 60
    report = CampaignReport(options.report)
    while True:
        databases = ["sqlite", "postgres"] if options.database == "both" else [options.database]
        for database in databases:
            plan = draw(seed, database=database, rounds=options.rounds, seconds=options.seconds, axes=options.axes)
            say(*plan.lines())
            if not options.plan:
                run(plan, server if database == "postgres" else None, report=report)
                report.write()
            if report.failures >= options.failures:
                return False
        seed += 1
        if report.kills >= options.kills if options.kills and not options.plan else time.monotonic() >= end:
            return not report.failures


if __name__ == "__main__":
    main()
