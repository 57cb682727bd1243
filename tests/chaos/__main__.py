"""`python -m tests.chaos --seed N`: run the plans of the seeds from N on until the time is used or one fails."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.faults import Faults
from tests.chaos.load import Emitter, Ledger
from tests.chaos.mesh import Mesh
from tests.chaos.plan import Plan, draw
from tests.chaos.verdict import Verdict
from tests.support.postgres import PostgresServer, find_programs
from tests.support.processes import Processes

_OWN_MOUNTS = "EVENTD_CHAOS_OWN_MOUNTS"


def main() -> None:
    """Exit with status 4 if a check fails."""
    options = _options()
    _enter_own_mounts()
    server = None
    if options.database != "sqlite":
        server = PostgresServer(find_programs())
        server.start()
    try:
        passed = _campaign(options, server)
    finally:
        if server is not None:
            server.stop()
    sys.exit(0 if passed else 4)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; 0 draws one")
    parser.add_argument(
        "--minutes", type=float, default=0, help="continue with further seeds for this time; 0: this one only"
    )
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both", help="both: by turns")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of faults for each seed")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long a round is")
    parser.add_argument("--plan", action="store_true", help="print the plan and do nothing")
    return parser.parse_args()


def _enter_own_mounts() -> None:
    """Move this process into a mount namespace of its own, if that is allowed: its mounts end with it."""
    if _OWN_MOUNTS in os.environ or shutil.which("unshare") is None:
        return
    allowed = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "chaos", "/mnt"], capture_output=True)
    if allowed.returncode == 0:
        os.environ[_OWN_MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, "-m", "tests.chaos", *sys.argv[1:]])


def _campaign(options: argparse.Namespace, server: PostgresServer | None) -> bool:
    seed = options.seed or secrets.randbelow(1 << 31) + 1
    end = time.monotonic() + options.minutes * 60
    while True:
        databases = ["sqlite", "postgres"] if options.database == "both" else [options.database]
        for database in databases:
            plan = draw(seed, database=database, rounds=options.rounds, seconds=options.seconds)
            _say(*plan.lines())
            if not options.plan and not run(plan, server if database == "postgres" else None):
                return False
        seed += 1
        if time.monotonic() >= end:
            return True


def run(plan: Plan, server: PostgresServer | None, *, pause: float = 0.125) -> bool:
    """Carry out a plan and print the result; return whether every check has passed. `pause`: see `Emitter`."""
    directory = Path(tempfile.mkdtemp(prefix=f"eventd-chaos-{plan.seed}-"))
    ledger, processes = Ledger(), Processes(directory)
    mesh = Mesh(plan, processes, server, private_mounts=_OWN_MOUNTS in os.environ)
    faults = Faults(mesh, ledger)
    verdict = Verdict(mesh, ledger, faults.done)
    trouble: list[str] = []
    with ExitStack() as stack:
        try:
            mesh.start(stack)
            trouble = _rounds(mesh, ledger, faults, verdict, pause)
        except AssertionError as error:
            trouble = [str(error)]
        if trouble:
            _keep(mesh, directory)
    if not trouble:
        shutil.rmtree(directory)
    for kind, reason in faults.skipped.items():
        _say(f"skipped: {kind}: {reason}")
    _say(*(f"WRONG: {line}" for line in trouble))
    done = (
        f"{sum(faults.done.values())} faults of nodes, {sum(mesh.hits.values())} of requests of {len(mesh.hits)} kinds"
    )
    acknowledged = sum(1 for _ in ledger.promised())
    again = f"; repeat it with {_command(plan)}; logs and databases: {directory}" if trouble else ""
    _say(
        f"seed {plan.seed} on {plan.database}: {'FAILED' if trouble else 'passed'}: {acknowledged} events acknowledged"
        f" in {ledger.answered} of {ledger.asked} requests, {done}, {verdict.letters} dead letters sent again{again}"
    )
    return not trouble


def _command(plan: Plan) -> str:
    arguments = f"--database {plan.database} --rounds {len(plan.rounds)} --seconds {plan.seconds:g}"
    return f"make chaos SEED={plan.seed} MINUTES=0 ARGS='{arguments}'"


def _rounds(mesh: Mesh, ledger: Ledger, faults: Faults, verdict: Verdict, pause: float) -> list[str]:
    plan = mesh.plan
    for number, its in enumerate(plan.rounds, 1):
        emitters = [
            Emitter(member.running, ledger, f"{number}", f"{plan.seed} {number} {name}", pause=pause)
            for name, member in mesh.members.items()
        ]
        for emitter in emitters:
            emitter.start()
        try:
            faults.run(its, plan.seconds)
        finally:
            for emitter in emitters:
                emitter.finish()
        if trouble := verdict.judge(commands=number == len(plan.rounds)):
            return [f"round {number}: {line}" for line in trouble]
        _say(f"round {number} holds; rest after {verdict.rested:.1f} s, the last of all: {verdict.last or 'at once'}")
    return [] if mesh.hits and ledger.answered else ["nothing happened: no request was spoiled, or none was answered"]


def _keep(mesh: Mesh, directory: Path) -> None:
    """Copy what lies on a temporary file system, which ends with this process."""
    for name in mesh.members:
        if mesh.has_own_disk(name):
            shutil.copytree(directory / name, directory / f"{name}.kept", ignore=shutil.ignore_patterns("ballast"))


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
