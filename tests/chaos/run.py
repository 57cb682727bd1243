"""One run: the plan of a seed on real nodes, and its verdict."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.faults import Faults
from tests.chaos.load import Ledger
from tests.chaos.mesh import Mesh
from tests.chaos.plan import Plan
from tests.chaos.report import CampaignReport
from tests.chaos.verdict import Verdict
from tests.support.postgres import PostgresServer
from tests.support.processes import Processes


def run(
    plan: Plan, server: PostgresServer | None, *, pause: float = 0.125, report: CampaignReport | None = None
) -> bool:
    """Carry out a plan and print the result; return whether every check has passed.

    `pause` is the mean time between two units of a client, in seconds.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"eventd-chaos-{plan.seed}-"))
    ledger = Ledger()
    mesh = Mesh(plan, Processes(directory), server)
    faults = Faults(mesh, ledger)
    verdict = Verdict(mesh, ledger, faults.done)
    trouble: list[str] = []
    with ExitStack() as stack:
        try:
            mesh.start(stack, ledger, pause)
            trouble = _rounds(mesh, ledger, faults, verdict)
        except AssertionError as error:
            trouble = [str(error)]
        if trouble:
            _keep(mesh, directory, trouble)
    if not trouble:
        shutil.rmtree(directory)
    _conclude(plan, mesh, ledger, faults, verdict, trouble, directory)
    if report is not None:
        _report(report, plan, mesh, ledger, faults, trouble)
    return not trouble


def _rounds(mesh: Mesh, ledger: Ledger, faults: Faults, verdict: Verdict) -> list[str]:
    plan = mesh.plan
    clients = [member.client for member in mesh.members.values() if member.client is not None]
    for number, its in enumerate(plan.rounds, 1):
        mesh.work.spoils = True
        for client in clients:
            client.begin(number)
        try:
            faults.run(its, plan.seconds)
        finally:
            for client in clients:
                client.halt()
            mesh.work.spoils = False
        if trouble := verdict.judge(commands=number == len(plan.rounds)):
            return [f"round {number}: {line}" for line in trouble]
        say(f"round {number} holds; rest after {verdict.rested:.1f} s, the last of all: {verdict.last or 'at once'}")
    return [] if mesh.hits and ledger.answered else ["nothing happened: no request was spoiled, or none was answered"]


def _keep(mesh: Mesh, directory: Path, trouble: list[str]) -> None:
    """Write the plan and the verdict, and copy what lies on a temporary file system, which ends with this process."""
    (directory / "plan").write_text("\n".join([*mesh.plan.lines(), *trouble, _command(mesh.plan)]) + "\n")
    for name in mesh.members:
        if mesh.has_own_disk(name):
            shutil.copytree(directory / name, directory / f"{name}.kept", ignore=shutil.ignore_patterns("ballast"))


def _conclude(
    plan: Plan, mesh: Mesh, ledger: Ledger, faults: Faults, verdict: Verdict, trouble: list[str], directory: Path
) -> None:
    for kind, reason in faults.skipped.items():
        say(f"skipped: {kind}: {reason}")
    say(*(f"WRONG: {line}" for line in trouble))
    done = (
        f"{sum(faults.done.values())} faults of nodes, {sum(mesh.hits.values())} of requests of {len(mesh.hits)} kinds"
    )
    acknowledged = sum(1 for _ in ledger.promised())
    again = f"; repeat it with {_command(plan)}; logs and databases: {directory}" if trouble else ""
    say(
        f"seed {plan.seed} on {plan.database}: {'FAILED' if trouble else 'passed'}: {acknowledged} events acknowledged"
        f" in {ledger.answered} of {ledger.asked} requests, {done}, {verdict.letters} dead letters sent again{again}"
    )


def _report(report: CampaignReport, plan: Plan, mesh: Mesh, ledger: Ledger, faults: Faults, trouble: list[str]) -> None:
    workers, pair = max([1, *plan.workers.values()]), "standby" if plan.pairs else "alone"
    report.add("runs", {"failed" if trouble else "passed": 1})
    report.add("axes", {f"{plan.database}, {workers} workers, {pair}": 1})
    report.add("faults", faults.done)
    report.add("requests", dict(mesh.hits))
    report.add("idle", faults.idle)
    load = {"events": sum(1 for _ in ledger.promised()), "asked": ledger.asked, "answered": ledger.answered}
    for own in ledger.nodes.values():
        seqs = sum(len(written.seqs) for written in own.writes.values())
        leases = [*own.leases.values()]
        its = {"records": seqs, "leases": len(leases), "jobs done": sum(1 for each in leases if each.done)}
        its |= {"records watched": len(own.seen)}
        load = {name: load.get(name, 0) + its.get(name, 0) for name in {**load, **its}}
    report.add("load", {**load, "kills": faults.kills})
    report.skip(faults.skipped)
    if trouble:
        report.blame(trouble, command=_command(plan), seed=plan.seed, database=plan.database)


def _command(plan: Plan) -> str:
    arguments = f"--database {plan.database} --rounds {len(plan.rounds)} --seconds {plan.seconds:g}{plan.axes.options}"
    return f"make chaos SEED={plan.seed} MINUTES=0 ARGS='{arguments}'"


def say(*lines: str) -> None:
    """Print at once."""
    for line in lines:
        print(line, flush=True)  # noqa: T201
