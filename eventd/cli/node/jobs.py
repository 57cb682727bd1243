"""routerctl job: start, list, get, wait, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from eventd.cli.gateway.completion import complete_group
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.program.values import Duration
from eventd.cli.terminal.confirm import confirm_number
from eventd.cli.terminal.output import Column, moment, note, text
from eventd.errors import CheckFailed
from eventd.text.plural import counted

FINAL: Final = ("done", "cancelled", "failed")
POLL_SECONDS: Final = 0.5


def _owner(row: Mapping[str, Any]) -> str:
    if row["callback"]:
        return f"callback {row['callback']}"
    if row["subscription"]:
        return f"subscription {row['subscription']}"
    return f"peer {row['group']}/{row['peer']}" if row["peer"] else f"group {row['group']}"


def _total(row: Mapping[str, Any]) -> str:
    return f"{'' if row['exact'] else 'about '}{row['total']}"


def _results(row: Mapping[str, Any]) -> str:
    return "; ".join(f"{each['count']} {each['outcome']}: {each['reason']}" for each in row["results"]) or "-"


JOBS = (
    Column("NUMBER", text("number")),
    Column("STATE", text("state")),
    Column("ACTION", text("action")),
    Column("OF", _owner),
    Column("DONE", text("done")),
    Column("TOTAL", _total),
    Column("DETAIL", text("detail")),
    Column("STARTED", moment("startedAt")),
    Column("FINISHED", moment("finishedAt")),
    Column("STARTED_BY", text("startedBy"), wide=True),
    Column("RESULTS", _results, wide=True),
)
RESULTS = (
    Column("OUTCOME", text("outcome")),
    Column("REASON", text("reason")),
    Column("COUNT", text("count")),
)

NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="Number of the job, as `list` shows it.")]
GroupFilter = Annotated[
    str, typer.Option("--group", "-g", metavar="NAME", autocompletion=complete_group, help="Only of this group.")
]


@connected_without_table
@only_calls
async def start(
    session: Session,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="`retry` or `drop`.")],
    group: Annotated[
        str,
        typer.Option("--group", "-g", metavar="NAME", help="Dead letters of the group's peers, or its subscription's."),
    ] = "",
    peer: Annotated[str, typer.Option("--peer", metavar="NODE", help="Only of this peer, by its node name.")] = "",
    subscription: Annotated[
        str, typer.Option("--subscription", metavar="NAME", help="Dead letters of this subscription.")
    ] = "",
    callback: Annotated[str, typer.Option("--callback", metavar="NAME", help="Dead letters of this callback.")] = "",
    reason: Annotated[
        list[str] | None, typer.Option("--reason", metavar="REASON", help="Only with this reason; repeatable.")
    ] = None,
    type: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only events of this type, or prefix such as `order.*`; repeatable."
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="Only dead letters since TIME: RFC 3339, or an age such as 15m."),
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Only dead letters until TIME.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show how many dead letters match.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Retry or drop all dead letters that match, with a job in the node."""
    if action not in ("retry", "drop"):
        raise typer.BadParameter(f"the action is retry or drop, not {action!r}")
    if not (group or subscription or callback):
        raise typer.BadParameter("choose dead letters: --group, --subscription or --callback")
    filters = {"reasons": reason or [], "types": type or [], "since": since, "until": until}
    owner = {"group": group, "peer": peer, "subscription": subscription, "callback": callback}
    plan = await session.call("jobs.plan", action=action, **owner, **filters)
    many = f"{'' if plan['exact'] else 'about '}{counted(plan['count'], 'dead letter')} of {_owner(plan)}"
    if dry_run or (plan["exact"] and not plan["count"]):
        session.out.outcome([plan], f"would {action} {many}", name=lambda row: str(row["count"]))
        return
    if not yes:
        confirm_number(f"{action} {many}?", plan["count"])
    job = (await session.call("jobs.start", token=plan["token"]))["job"]
    words = f"started job {job['number']}: {action} {many}"
    session.out.outcome([job], words, name=lambda row: str(row["number"]))
    if not session.serving():
        note("note: no node runs on this database: the job waits until one does")


@connected
@only_calls
async def list_jobs(
    session: Session,
    group: GroupFilter = "",
    state: Annotated[
        str,
        typer.Option(
            "--state", metavar="STATE", help="Only `waiting`, `running`, `done`, `cancelled` or `failed` ones."
        ),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of jobs.")] = 100,
    after: Annotated[int, typer.Option("--after", metavar="NUMBER", min=0, help="Show jobs older than this one.")] = 0,
) -> None:
    """List bulk jobs, the newest first."""
    answer = await session.call("jobs.list", group=group, state=state, limit=limit, after=after)
    session.out.rows(JOBS, answer["jobs"], name=lambda row: str(row["number"]))
    if answer["next"] is not None:
        note(f"note: there are older jobs: continue with --after {answer['next']}")


@connected
@only_calls
async def get(session: Session, number: NumberArgument) -> None:
    """Show a bulk job and its progress; -o wide adds its results by reason."""
    job = (await session.call("jobs.get", number=number))["job"]
    session.out.rows(JOBS, [job], name=lambda row: str(row["number"]))


@connected
async def wait(
    session: Session,
    number: NumberArgument,
    give_up_after: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="Give up after this time, such as 5m.")
    ] = "",
) -> None:
    """Wait for the end of a bulk job, and show its results; exits with status 4 unless it is done."""
    from eventd.runtime.clock import SystemClock

    clock = SystemClock()
    ends = clock.monotonic() + Duration.read(give_up_after) / 1e6 if give_up_after else float("inf")
    while (job := (await session.call("jobs.get", number=number))["job"])["state"] not in FINAL:
        if clock.monotonic() >= ends:
            raise CheckFailed(f"job {number} is still {job['state']}: {job['done']} of {_total(job)} done")
        await clock.sleep(POLL_SECONDS)
    session.out.rows(RESULTS, job["results"], name=lambda row: str(row["count"]))
    if job["state"] != "done":
        raise CheckFailed(f"job {number} is {job['state']}: {job['detail']}")


@connected
@only_calls
@may_ask
async def cancel(session: Session, number: NumberArgument) -> None:
    """Cancel a bulk job before its next step; what it has done stays done."""
    job = (await session.call("jobs.cancel", number=number))["job"]
    session.out.rows(JOBS, [job], name=lambda row: str(row["number"]))
