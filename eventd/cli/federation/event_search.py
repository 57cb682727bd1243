"""routerctl federation event: search, find, describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.federation.check_results import describe_check
from eventd.cli.federation.pull import describe_returned
from eventd.cli.gateway.completion import complete_event
from eventd.cli.gateway.selecting import GroupOption, one_group
from eventd.cli.gateway.session import Session, connected, only_calls
from eventd.cli.terminal.output import Column, Output, moment, note, printable_lines, show_moment, text
from eventd.cli.terminal.sections import pairs, table

FOUND = (
    Column("ID", text("id")),
    Column("SOURCE", text("sourceNode")),
    Column("TYPE", text("type")),
    Column("SUBJECT", text("subject")),
    Column("RECORDED", moment("recordedAt")),
    Column("EXPIRED", lambda row: "yes" if row["expired"] else "no"),
    Column("OBSERVED", moment("observedAt"), wide=True),
    Column("SEQ", text("seq"), wide=True),
    Column("VIA", lambda row: ",".join(row["path"]) or "-", wide=True),
    Column("BYTES", text("bytes"), wide=True),
)
PLACES = (
    Column("GROUP", text("group")),
    Column("STORED", lambda row: "yes" if row["stored"] else "no"),
    Column("TYPE", lambda row: row["event"]["type"] if row["stored"] else "-"),
    Column("SUBJECT", lambda row: row["event"]["subject"] or "-" if row["stored"] else "-"),
    Column("RECORDED", lambda row: show_moment(row["event"]["recordedAt"]) if row["stored"] else "-"),
    Column("EVICTED", moment("evictedAt")),
)
DELIVERIES = (
    Column("PEER", text("peer")),
    Column("STATUS", text("status")),
    Column("ATTEMPTS", text("attempts")),
    Column("LAST_ATTEMPT", moment("lastAttemptAt")),
    Column("LAST_ERROR", text("lastError")),
    Column("DELIVERED", moment("deliveredAt")),
    Column("BATCH", lambda row: row["batch"]["id"] if row["batch"] else "-"),
)
NOT_SELECTED = (
    Column("PEER", text("peer")),
    Column("REASON", text("reason")),
    Column("REMEDY", text("remedy")),
)
CALLBACKS = (
    Column("CALLBACK", text("callback")),
    Column("STATUS", text("status")),
    Column("LAST_ERROR", text("lastError")),
    Column("DELIVERED", moment("deliveredAt")),
    Column("FAILED_ATTEMPTS", lambda row: str(sum(one["requests"] for one in row["failedAttempts"]))),
)
RUNS = (
    Column("RUN", text("id")),
    Column("SUBSCRIPTION", text("subscription")),
    Column("STATUS", text("status")),
    Column("STARTED", moment("startedAt")),
    Column("PART", text("dynamicSource")),
    Column("ERROR", text("error")),
)
PARTS = (
    Column("SOURCE", text("source")),
    Column("GENERATION", text("generation")),
    Column("ENDS", moment("endsAt")),
    Column("RESOURCES", lambda row: ",".join(row["resources"]) or "-"),
)
LETTERS = (
    Column("ID", text("id")),
    Column("KIND", text("kind")),
    Column("OWNER", text("owner")),
    Column("REASON", text("reason")),
    Column("DETAIL", text("detail")),
    Column("SINCE", moment("parkedAt")),
)
OTHERS = (
    Column("POSITION", text("position")),
    Column("SOURCE", text("sourceNode")),
    Column("RECORDED", moment("recordedAt")),
    Column("MARK", lambda row: row["mark"]["kind"] if row.get("mark") else "-"),
    Column("DIGEST", text("digest")),
)
MOST = 200
"""The largest page of a search."""


@connected
@only_calls
async def search(
    session: Session,
    group: GroupOption = "",
    type: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only events of this type, or with * at the end of types with this prefix."),
    ] = None,
    subject: Annotated[
        str, typer.Option("--subject", metavar="PREFIX", help="Only subjects that start with PREFIX.")
    ] = "",
    source_node: Annotated[
        str, typer.Option("--source-node", metavar="NODE", help="Only events with this source node.")
    ] = "",
    payload: Annotated[
        list[str] | None,
        typer.Option("--payload", metavar="KEY=VALUE", help="Only events with this member in the payload; repeatable."),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Only events stored here at or after TIME, or an age.")
    ] = "",
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="Only events stored here at or before TIME.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST, help="Maximum number of events.")] = 50,
    after: Annotated[
        str, typer.Option("--after", metavar="TOKEN", help="Continue the search that printed TOKEN.")
    ] = "",
) -> None:
    """Search the events of a group, the newest first."""
    name = await one_group(session, group)
    answer = await session.call(
        "events.search",
        group=name,
        type=type or [],
        subject_prefix=subject,
        source=source_node,
        payload=payload or [],
        since=since,
        until=until,
        limit=limit,
        after=after,
    )
    session.out.rows(FOUND, answer["events"], name=lambda row: str(row["id"]))
    if answer["gap"]:
        note(f"gap: group {name}: {answer['gap']['message']}")
    if answer["next"]:
        back = show_moment(answer["searchedBackTo"]) if answer["searchedBackTo"] else "its beginning"
        note(f"note: searched back to {back}: continue with --group {name} --after {answer['next']}")


IdArgument = Annotated[str, typer.Argument(metavar="ID", autocompletion=complete_event, help="Id of the event.")]


PositionOption = Annotated[
    int | None,
    typer.Option(
        "--position",
        min=1,
        help="Its record at this position of the log, for example one whose id was released (default: the latest).",
    ),
]


@connected
@only_calls
async def find(session: Session, id: IdArgument) -> None:
    """Find an event by its id in all groups."""
    answer = await session.call("events.find", id=id)
    session.out.rows(PLACES, answer["groups"], name=lambda row: str(row["group"]))


@connected
@only_calls
async def describe(session: Session, id: IdArgument, group: GroupOption = "", position: PositionOption = None) -> None:
    """Show an event with its payload, deliveries, runs, parts and dead letters."""
    answer = await session.call("events.describe", group=await one_group(session, group), id=id, position=position)
    if not session.out.is_table:
        session.out.value(answer)
        return
    _show(session.out, answer)


def _describe_mark(mark: Mapping[str, Any]) -> str:
    at, leaf = show_moment(mark["at"]), mark["leaf"]
    if mark["kind"] == "released":
        return f"released at {at}: its id was released to the event at leaf {leaf} of {mark['tree']}"
    return f"{mark['kind']} at {at}: leaf {leaf} of {mark['tree']} is another event, and no leaf is this one"


def _show(out: Output, answer: Mapping[str, Any]) -> None:
    event = answer["event"]
    way = [*event["path"], answer["node"]]
    pairs(
        out,
        {
            "ID": event["id"],
            "Group": event["group"],
            "Type": event["type"],
            "Subject": event["subject"],
            "Source": event["sourceNode"],
            "Path": " > ".join(way),
            "Observed": show_moment(event["observedAt"]),
            "Expires": show_moment(event["expiresAt"]) + (" (expired)" if event["expired"] else ""),
            "Recorded": show_moment(event["recordedAt"]),
            "Seq": event["seq"],
            "Position": event["position"],
            "Dedupe key": event["dedupeKey"],
            "Payload": f"{answer['payloadBytes']} bytes",
            **({"Returned": describe_returned(event["returned"])} if event.get("returned") else {}),
            **({"History": describe_check(event)} if event.get("history") else {}),
            **({"Mark": _describe_mark(event["mark"])} if event.get("mark") else {}),
        },
    )
    if answer["payload"] is not None:
        out.line(printable_lines(answer["payload"]))
    table(out, "Deliveries", DELIVERIES, answer["deliveries"])
    table(out, "Not meant for", NOT_SELECTED, answer.get("notSelected", []))
    table(out, "Callbacks", CALLBACKS, answer["callbacks"])
    table(out, "Runs", RUNS, answer["runs"])
    table(out, "Parts", PARTS, answer["parts"])
    table(out, "Dead letters", LETTERS, answer["deadLetters"])
    table(out, "Other records with this id", OTHERS, answer.get("others", []))
    if not answer["runsSearched"]:
        note("note: older runs were not searched for the event")
