"""routerctl doctor: checks the node, suggests remedies, and with `--fix` applies the safe ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.gateway.selecting import GroupsOption
from eventd.cli.gateway.session import Session, connected, only_calls
from eventd.cli.program.exits import ExitCode
from eventd.cli.terminal.output import GAP, Column, note, text

CHECKS = (
    Column("AREA", text("area")),
    Column("STATUS", text("status")),
    Column("CHECK", text("name")),
    Column("CODE", lambda row: row.get("code", "-"), wide=True),
    Column("DETAIL", lambda row: row.get("detail", "-"), wraps=True),
    Column("REMEDY", lambda row: row.get("remedy", "-"), wraps=True),
)
_TARGETS = (
    Column("GROUP", lambda row: row.get("targetGroup", "-")),
    Column("PEER", lambda row: row.get("targetPeer", "-")),
    Column("RESOURCE", lambda row: row.get("targetResource", "-")),
)
PLAN = (
    Column("ACTION", text("action")),
    *_TARGETS,
    Column("SAFE", lambda row: "yes" if row["safe"] else "no"),
    Column("APPROVAL", lambda row: "yes" if row["requiresOperatorApproval"] else "no"),
    Column("REASON", text("reason"), wraps=True),
    Column("REMEDY", lambda row: row.get("remedy", "-"), wraps=True),
)
DONE = (
    Column("ACTION", text("action")),
    *_TARGETS,
    Column("CHANGED", lambda row: "yes" if row["changed"] else "no"),
    Column("RESULT", text("result"), wraps=True),
)

PAUSE = 2.0
"""Seconds between two runs of the checks with `--watch`."""


@connected
@only_calls
async def doctor(
    session: Session,
    area: Annotated[str, typer.Argument(metavar="[AREA]", help="Area to check: federation (default: all).")] = "",
    group: GroupsOption = "",
    remediation_plan: Annotated[
        bool, typer.Option("--remediation-plan", help="Add a remediation plan; change nothing.")
    ] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Apply the safe actions of the plan, and report each.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep watching, and report when a check changes (Ctrl-C stops).")
    ] = False,
) -> None:
    """Check the node and its links; without --watch, exits with status 4 if a check fails."""
    if watch and fix:
        raise typer.BadParameter("--watch and --fix exclude each other: leave one out")
    asked = {"area": area, "group": group, "remediation_plan": remediation_plan}
    if watch:
        await _watch(session, asked)
        return
    answer = await session.call("doctor.fix" if fix else "doctor.examine", **asked)
    _show(session, answer)
    if session.out.has_wrapped:
        note("note: with -o wide, each remedy is on one line, with whole commands")
    if session.out.is_table and not session.serving():
        note("note: no node serves this database now; this is the state that the last node left")
    if answer["summary"]["fail"]:
        note("doctor found failing checks")
        raise typer.Exit(ExitCode.CHECK_FAILED)


async def _watch(session: Session, asked: dict[str, Any]) -> None:
    from asyncio import CancelledError

    from eventd.runtime.clock import SystemClock

    show = session.out.stream_rows((), name=lambda row: str(row["summary"]["overall"]))
    clock, seen = SystemClock(), None
    try:
        while True:
            answer = await session.call("doctor.examine", **asked)
            found = [(check["name"], check.get("code"), check["status"]) for check in answer["checks"]]
            if found != seen:
                if session.out.is_table:
                    _show(session, answer)
                    session.out.line()
                    sys.stdout.flush()
                else:
                    show([answer])
            seen = found
            await clock.sleep(PAUSE)
    except CancelledError:
        return  # Ctrl-C is how it ends


def _show(session: Session, answer: Mapping[str, Any]) -> None:
    out = session.out
    if out.is_document:
        out.value(dict(answer))
        return
    if out.is_table:
        counts = answer["summary"]
        numbers = GAP.join(f"{name}={counts[name]}" for name in ("pass", "warn", "fail", "skip"))
        out.line(GAP.join(("DOCTOR", counts["overall"].upper(), numbers)))
    out.rows(CHECKS, answer["checks"], name=lambda row: str(row["name"]))
    if not out.is_table:
        return
    for columns, rows in ((PLAN, answer.get("remediationPlan", {}).get("actions")), (DONE, answer.get("fix"))):
        if rows is not None:
            out.line()
            out.rows(columns, rows, name=str)
