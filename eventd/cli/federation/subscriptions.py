"""routerctl subscription: list, runs, retry, reset, pause, resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.federation.links import user
from eventd.cli.gateway.selecting import GroupsOption
from eventd.cli.gateway.session import Session, connected
from eventd.cli.terminal.output import Column, count, moment, note, span, text

STATES = (
    Column("GROUP", text("group")),
    Column("SUBSCRIPTION", text("subscription")),
    Column("PLUGIN", text("plugin")),
    Column("PHASE", text("phase")),
    Column("STATE", lambda row: _state(row)),
    Column("WAITING", text("waitingEvents")),
    Column("OLDEST", span("waitingSeconds")),
    Column("DEAD_LETTERS", text("deadLetters")),
    Column("LAST_RUN", lambda row: _last_run(row)),
    Column("LAST_ERROR", text("lastError"), wide=True),
    Column("RETRY_AT", moment("retryAt"), wide=True),
)
RUNS = (
    Column("ID", text("id")),
    Column("SUBSCRIPTION", text("subscription")),
    Column("EVENT_ID", text("eventId")),
    Column("GROUP", text("group")),
    Column("PLUGIN", text("plugin")),
    Column("STATUS", text("status")),
    Column("ATTEMPTS", text("attempts")),
    Column("STARTED", moment("startedAt")),
    Column("COMPLETED", moment("completedAt")),
    Column("ERROR", lambda row: _short(row["error"]), uncut=text("error")),
    Column("OUTCOME", text("outcome"), wide=True),
    Column("SOURCE", text("dynamicSource"), wide=True),
    Column("GEN", text("dynamicGeneration"), wide=True),
)
LONGEST_ERROR = 60

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The EventSubscription.")]


def _state(row: Mapping[str, Any]) -> str:
    return f"{row['state']} ({row['reason']})" if row["reason"] else str(row["state"])


def _last_run(row: Mapping[str, Any]) -> str:
    return str(row["lastRun"]["status"]) if row["lastRun"] else "-"


def _short(words: str) -> str:
    return f"{words[: LONGEST_ERROR - 3]}..." if len(words) > LONGEST_ERROR else words or "-"


@connected
async def list_states(session: Session, group: GroupsOption = "") -> None:
    """Show each subscription: its phase, what waits, what was parked, its last run."""
    answer = await session.call("subscriptions.list", group=group)
    session.out.rows(STATES, answer["subscriptions"], name=lambda row: str(row["subscription"]))


@connected
async def runs(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="The EventSubscription; here or with --subscription.")
    ] = "",
    subscription: Annotated[
        str, typer.Option("--subscription", metavar="NAME", help="The same; `EventSubscription/NAME` is one, too.")
    ] = "",
    group: GroupsOption = "",
    event_id: Annotated[str, typer.Option("--event-id", metavar="ID", help="Only of this event.")] = "",
    status: Annotated[
        str, typer.Option("--status", metavar="STATUS", help="Only `pending`, `succeeded` or `failed`.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="The newest so many runs.")] = 100,
    before: Annotated[int | None, typer.Option("--before", metavar="ID", min=1, help="Runs before this one.")] = None,
) -> None:
    """Show what became of each event, the newest run first; also of a subscription that was deleted."""
    if bool(name) == bool(subscription):
        raise typer.BadParameter("say which subscription, once: NAME or --subscription")
    asked: dict[str, Any] = {"group": group, "event_id": event_id, "status": status, "limit": limit}
    if before is not None:
        asked["before"] = before
    answer = await session.call("subscriptions.runs", subscription=name or subscription, **asked)
    session.out.rows(RUNS, answer["runs"], name=lambda row: str(row["id"]))
    if not answer["runs"]:
        await _tell_stranger(session, (name or subscription).removeprefix("EventSubscription/"))
    if answer["next"] is not None:
        note(f"note: there may be more; go on with --before {answer['next']}")


async def _tell_stranger(session: Session, name: str) -> None:
    """Runs outlive their subscription, so a name that is declared nowhere is no error; it may be misspelt, though."""
    states = (await session.call("subscriptions.list", group=""))["subscriptions"]
    declared = [str(row["subscription"]) for row in states]
    if name not in declared:
        note(f"note: there is no EventSubscription {name} (declared: {', '.join(declared) or 'none'})")


@connected
async def retry(
    session: Session,
    name: NameArgument,
    group: GroupsOption = "",
    event_id: Annotated[
        list[str] | None, typer.Option("--event-id", metavar="ID", help="Only this parked event; repeat it.")
    ] = None,
) -> None:
    """Try at once what is held up, and once more what was parked."""
    answer = await session.call("subscriptions.retry", subscription=name, group=group, ids=event_id or [])
    if not session.out.is_table:
        session.out.rows((), [answer], name=lambda row: str(row["subscription"]))
        return
    session.out.line(f"{answer['subscription']}: tried at once; {count(answer['retried'], 'parked event')} once more")
    for kept in answer["kept"]:
        note(f"note: event {kept['eventId']} stays parked: {kept['reason']}")


@connected
async def reset(
    session: Session,
    name: NameArgument,
    group: GroupsOption = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Begin with what was recorded then: RFC 3339, or 15m ago.")
    ] = "",
    latest: Annotated[bool, typer.Option("--latest", help="Pass over everything that waits.")] = False,
) -> None:
    """Run a subscription anew from the oldest event there is, or from elsewhere."""
    answer = await session.call("subscriptions.reset", subscription=name, group=group, since=since, latest=latest)
    if session.out.is_table:
        session.out.line(f"{answer['subscription']}: goes on at position {answer['to']}, was at {answer['from']}")
    else:
        session.out.rows((), [answer], name=lambda row: str(row["subscription"]))


@connected
async def pause(session: Session, name: NameArgument, group: GroupsOption = "") -> None:
    """Stop running a subscription's plugin; its events wait."""
    answer = await session.call("subscriptions.pause", subscription=name, group=group, by=user())
    session.out.rows(STATES, answer["subscriptions"], name=lambda row: str(row["subscription"]))


@connected
async def resume(session: Session, name: NameArgument, group: GroupsOption = "") -> None:
    """Run a subscription's plugin again, at once."""
    answer = await session.call("subscriptions.resume", subscription=name, group=group)
    session.out.rows(STATES, answer["subscriptions"], name=lambda row: str(row["subscription"]))
