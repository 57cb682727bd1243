"""routerctl callback: list, describe, attempts, test, pause, resume, reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.federation.links import user
from eventd.cli.federation.resets import planned
from eventd.cli.gateway.completion import complete_callback
from eventd.cli.gateway.selecting import DryRunOption, GroupsOption
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.resources.describe import show_waiting, waiting_events
from eventd.cli.terminal.output import Column, moment, note, show_moment, show_span, span, text
from eventd.cli.terminal.sections import pairs, table
from eventd.errors import CheckFailed
from eventd.text.plural import counted
from eventd.text.size import format_size

STATES = (
    Column("NAME", text("callback")),
    Column("ORIGIN", text("origin")),
    Column("URL", text("url")),
    Column("STATE", text("state")),
    Column("REASON", text("reason")),
    Column("WAITING", waiting_events),
    Column("LAG", span("waitingSeconds")),
    Column("LAST_SUCCESS", moment("lastSuccessAt")),
    Column("NEXT_ATTEMPT", moment("retryAt")),
    Column("SOURCE", text("topic"), wide=True),
    Column("FORMAT", text("format"), wide=True),
    Column("DEAD_LETTERS", text("deadLetters"), wide=True),
    Column("LAST_ERROR", text("lastError"), wide=True),
    Column("PAUSED_BY", text("pausedBy"), wide=True),
)
LOSSES = (
    Column("AT", moment("at")),
    Column("FROM", text("from")),
    Column("TO", text("to")),
    Column("COUNT", text("count")),
    Column("REASONS", lambda row: ",".join(row["reasons"])),
)
RESENDS = (
    Column("POSITION", text("position")),
    Column("UNTIL", text("until")),
    Column("STATE", text("state")),
    Column("REASON", text("reason")),
    Column("ATTEMPTS", text("attempts")),
    Column("NEXT_ATTEMPT", moment("retryAt")),
    Column("LAST_ERROR", text("lastError")),
)
ATTEMPTS = (
    Column("AT", moment("at")),
    Column("MESSAGE_ID", text("messageId")),
    Column("EVENTS", text("events")),
    Column("ATTEMPT", text("attempt")),
    Column("STATUS", lambda row: str(row["status"]) if row["status"] else "-"),
    Column("REASON", text("reason")),
    Column("TOOK", lambda row: f"{row['seconds'] * 1000:.0f}ms"),
    Column("NEXT_ATTEMPT", moment("retryAt")),
    Column("REQUESTS", text("requests"), wide=True),
    Column("ADDRESS", text("address"), wide=True),
    Column("KEYS", lambda row: ",".join(row["keys"]) or "-", wide=True),
    Column("ANSWER", text("answer"), wide=True),
    Column("DETAIL", text("detail"), wide=True),
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=complete_callback, help="Name of the callback.")
]


@connected
@only_calls
async def list_callbacks(
    session: Session,
    group: GroupsOption = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep watching for changes (Ctrl-C stops).")] = False,
) -> None:
    """List callbacks with their state, backlog, last success and next attempt."""
    if watch:
        from eventd.cli.callbacks.watch import watch_callbacks

        await watch_callbacks(session, group, STATES)
        return
    answer = await session.call("callbacks.list", group=group)
    session.out.rows(STATES, answer["callbacks"], name=lambda row: str(row["callback"]))


@connected
@only_calls
async def describe(session: Session, name: NameArgument) -> None:
    """Show a callback with its limits, keys and newest attempts."""
    answer = await session.call("callbacks.describe", callback=name)
    if not session.out.is_table:
        session.out.value(answer)
        return
    show_callback(session.out, answer)


def show_callback(out: Any, answer: Mapping[str, Any]) -> None:
    """Print the answer of `callbacks.describe` as text."""
    pairs(out, {**_about(answer), **_condition(answer), **_limits(answer["limits"])})
    if answer["intervals"]:
        columns = (Column("TOPIC", text("topic")), Column("AFTER", text("after")), Column("UPTO", text("upto")))
        table(out, "Intervals", columns, answer["intervals"])
    table(out, "Resends", RESENDS, answer["resends"])
    table(out, "Losses", LOSSES, answer["losses"])
    table(out, "Recent attempts", ATTEMPTS, answer["recentAttempts"])


def _about(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Name": answer["callback"],
        "Origin": answer["origin"],
        "Source": answer["topic"],
        "URL": answer["url"],
        "Format": answer["format"],
        "Order": answer["order"],
        "Keys": ", ".join(f"{key['id']} ({key['state']})" for key in answer["keys"]),
    }


def _condition(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "State": answer["state"] + (f" ({answer['reason']})" if answer["reason"] else ""),
        "Since": show_moment(answer["since"]),
        "Paused by": answer["pausedBy"],
        "Waiting": show_waiting(answer),
        "Last success": show_moment(answer["lastSuccessAt"]),
        "Failing since": show_moment(answer["failingSince"]),
        "Attempts": answer["attempts"],
        "Last error": answer["lastError"],
        "Next attempt": show_moment(answer["retryAt"]),
        "Dead letters": answer["deadLetters"],
        "Resends": len(answer["resends"]),
    }


def _limits(limits: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Batch": f"{counted(limits['maxEvents'], 'event')}, {format_size(limits['maxBytes'])}"
        + (f", {show_span(limits['windowSeconds'])}" if limits["windowSeconds"] else ""),
        "Timeout": f"{show_span(limits['timeoutSeconds'])}, to connect {show_span(limits['connectTimeoutSeconds'])}",
        "In flight": counted(limits["inFlight"], "request"),
        "Per second": counted(limits["perSecond"], "request") if limits["perSecond"] else "no limit",
        "Retry": f"after {show_span(limits['baseBackoffSeconds'])}, doubling to"
        f" {show_span(limits['maxBackoffSeconds'])};"
        f" a search after {counted(limits['isolateAfter'], 'answer')} of refused content",
        "Hold": show_span(limits["holdSeconds"]) if limits["holdSeconds"] else "none",
        "Disable after": show_span(limits["disableAfterSeconds"]) if limits["disableAfterSeconds"] else "never",
    }


@connected
@only_calls
async def attempts(
    session: Session,
    name: NameArgument,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="Maximum number of attempts; the newest are shown.")
    ] = 100,
    before: Annotated[
        str,
        typer.Option("--before", metavar="TIME", help="Only attempts before TIME: RFC 3339, or an age such as 15m."),
    ] = "",
    after: Annotated[str, typer.Option("--after", metavar="TOKEN", help="Show the older attempts after TOKEN.")] = "",
) -> None:
    """List the requests to a callback's endpoint with status and duration, the newest first."""
    answer = await session.call("callbacks.attempts", callback=name, limit=limit, before=before, after=after)
    session.out.rows(ATTEMPTS, answer["attempts"], name=lambda row: str(row["messageId"]))
    if answer["next"] is not None:
        note(f"note: there are older attempts: continue with --after {answer['next']}")


@connected_without_table
@only_calls
async def test(session: Session, name: NameArgument) -> None:
    """Send a signed test message, which is not stored, and show the answer; exits with status 4 unless it is 2xx."""
    answer = await session.call("callbacks.test", callback=name)
    spent = f"{answer['seconds'] * 1000:.0f} ms"
    got = f"{answer['status']} from {answer['address']}" if answer["status"] else answer["reason"]
    lines = [f"{answer['callback']}: {got} after {spent}"]
    lines += [f"{header}: {value}" for header, value in answer["headers"].items()]
    lines += [f"\n{answer['answer']}"] if answer["answer"] else []
    session.out.outcome(answer, *lines, name=lambda row: str(row["messageId"]))
    if not answer["delivered"]:
        raise CheckFailed(f"the test message was not delivered: {answer['detail']}")


@connected
@only_calls
@may_ask
async def pause(session: Session, name: NameArgument) -> None:
    """Pause a callback; its events wait until it is resumed, unless they expire or are evicted."""
    answer = await session.call("callbacks.pause", callback=name, by=user())
    session.out.one(STATES, answer, name=lambda row: str(row["callback"]))


@connected
@only_calls
async def resume(session: Session, name: NameArgument) -> None:
    """Resume a callback at once, whether it is paused, disabled by the node, backing off or blocked."""
    answer = await session.call("callbacks.resume", callback=name)
    session.out.one(STATES, answer, name=lambda row: str(row["callback"]))
    note_unserved(session)


@connected_without_table
@only_calls
@may_ask
async def reset(
    session: Session,
    name: NameArgument,
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
    """Move a callback to the oldest stored event, or to where --since or --latest points. Deletes the dead letters of
    events that are sent again.
    """
    if since and latest:
        raise typer.BadParameter("choose a position in one way: --since, or --latest")
    answer = await session.call("callbacks.reset", callback=name, since=since, latest=latest, dry_run=dry_run)
    if dry_run:
        session.out.outcome(answer, planned(answer, name, "be sent"), name=lambda row: str(row["callback"]))
        return
    moved = f"{answer['callback']}: continues at position {answer['to']}, was at {answer['from']}"
    session.out.outcome(answer, moved, name=lambda row: str(row["callback"]))
    note_unserved(session)


def note_unserved(session: Session) -> None:
    """Print a note if no node runs: the action of the command is stored, and waits until a node starts."""
    if session.out.is_table and not session.serving():
        note("note: no node serves this database now; events are sent when one starts")
