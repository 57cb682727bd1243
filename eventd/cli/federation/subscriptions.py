"""routerctl subscription: list, runs, retry, reset, pause, resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.federation.links import user
from eventd.cli.federation.resets import planned
from eventd.cli.gateway.completion import complete_subscription
from eventd.cli.gateway.selecting import DryRunOption, GroupsOption
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.terminal.output import Column, moment, note, span, text
from eventd.text.plural import counted

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

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=complete_subscription, help="Name of the EventSubscription.")
]


def _state(row: Mapping[str, Any]) -> str:
    return f"{row['state']} ({row['reason']})" if row["reason"] else str(row["state"])


def _last_run(row: Mapping[str, Any]) -> str:
    return str(row["lastRun"]["status"]) if row["lastRun"] else "-"


def _short(words: str) -> str:
    return f"{words[: LONGEST_ERROR - 3]}..." if len(words) > LONGEST_ERROR else words or "-"


@connected
@only_calls
async def list_states(session: Session, group: GroupsOption = "") -> None:
    """List subscriptions with phase, backlog, dead letters and last run."""
    answer = await session.call("subscriptions.list", group=group)
    session.out.rows(STATES, answer["subscriptions"], name=lambda row: str(row["subscription"]))


@connected
@only_calls
async def runs(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the EventSubscription.")] = "",
    subscription: Annotated[
        str,
        typer.Option(
            "--subscription",
            metavar="NAME",
            help="The EventSubscription, as NAME or `EventSubscription/NAME`; instead of the argument.",
        ),
    ] = "",
    group: GroupsOption = "",
    event_id: Annotated[str, typer.Option("--event-id", metavar="ID", help="Only this event.")] = "",
    status: Annotated[
        str,
        typer.Option("--status", metavar="STATUS", help="Only runs with status `pending`, `succeeded` or `failed`."),
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="Maximum number of runs; the newest are shown.")
    ] = 100,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", min=1, help="Only runs earlier than this one.")
    ] = None,
) -> None:
    """List the runs of a subscription, the newest first, one row per event; also those of a deleted subscription."""
    if bool(name) == bool(subscription):
        raise typer.BadParameter("name the subscription once: NAME or --subscription")
    asked: dict[str, Any] = {"group": group, "event_id": event_id, "status": status, "limit": limit}
    if before is not None:
        asked["before"] = before
    answer = await session.call("subscriptions.runs", subscription=name or subscription, **asked)
    session.out.rows(RUNS, answer["runs"], name=lambda row: str(row["id"]))
    if not answer["runs"]:
        await _note_undeclared(session, (name or subscription).removeprefix("EventSubscription/"))
    if answer["next"] is not None:
        note(f"note: there may be more: continue with --before {answer['next']}")


async def _note_undeclared(session: Session, name: str) -> None:
    """Print a note if the name is not declared: it may be misspelt, but runs outlive their subscription."""
    states = (await session.call("subscriptions.list", group=""))["subscriptions"]
    declared = [str(row["subscription"]) for row in states]
    if name not in declared:
        note(f"note: EventSubscription {name} is not declared (declared: {', '.join(declared) or 'none'})")


@connected_without_table
@only_calls
async def retry(
    session: Session,
    name: NameArgument,
    group: GroupsOption = "",
    event_id: Annotated[
        list[str] | None,
        typer.Option("--event-id", metavar="ID", help="Only the dead letter of this event; repeatable."),
    ] = None,
) -> None:
    """End the back-off or block of a subscription, and retry its dead letters."""
    answer = await session.call("subscriptions.retry", subscription=name, group=group, ids=event_id or [])
    session.out.outcome(
        [answer],
        f"{answer['subscription']}: failures cleared; retrying {counted(answer['retried'], 'dead letter')}",
        name=lambda row: str(row["subscription"]),
        notes=[f"note: event {kept['eventId']} stays a dead letter: {kept['reason']}" for kept in answer["kept"]],
    )


@connected_without_table
@only_calls
@may_ask
async def reset(
    session: Session,
    name: NameArgument,
    group: GroupsOption = "",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Start with events stored at or after TIME: RFC 3339, or an age such as 15m.",
        ),
    ] = "",
    latest: Annotated[
        bool, typer.Option("--latest", help="Start after the newest event, which skips the backlog.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Restart a subscription at the oldest stored event, or as --since or --latest says. Deletes the dead letters of
    events that run again.
    """
    answer = await session.call(
        "subscriptions.reset", subscription=name, group=group, since=since, latest=latest, dry_run=dry_run
    )
    if dry_run:
        session.out.outcome([answer], planned(answer, name, "run"), name=lambda row: str(row["subscription"]))
        return
    moved = f"{answer['subscription']}: continues at position {answer['to']}, was at {answer['from']}"
    session.out.outcome([answer], moved, name=lambda row: str(row["subscription"]))


@connected
@only_calls
@may_ask
async def pause(session: Session, name: NameArgument, group: GroupsOption = "") -> None:
    """Pause a subscription; its events wait until it is resumed, unless they expire or are evicted."""
    answer = await session.call("subscriptions.pause", subscription=name, group=group, by=user())
    session.out.rows(STATES, answer["subscriptions"], name=lambda row: str(row["subscription"]))


@connected
@only_calls
async def resume(session: Session, name: NameArgument, group: GroupsOption = "") -> None:
    """Resume a subscription at once, whether it is paused, backing off or blocked."""
    answer = await session.call("subscriptions.resume", subscription=name, group=group)
    session.out.rows(STATES, answer["subscriptions"], name=lambda row: str(row["subscription"]))
