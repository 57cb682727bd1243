"""routerctl federation event: emit, list, deliveries, prune."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from eventd.cli.federation.check_results import show_check
from eventd.cli.federation.pull import show_returned
from eventd.cli.federation.undelivered import note_what_was_lost, read_waiting
from eventd.cli.gateway.selecting import (
    AfterOption,
    BeforeOption,
    GroupOption,
    GroupsOption,
    LimitOption,
    OldestOption,
    Pages,
    PeerFilter,
    SinceFilter,
    TypeFilter,
    UntilFilter,
    WatchOption,
    all_groups,
    one_group,
)
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.program.values import Duration, MayBeEmpty
from eventd.cli.terminal.output import Column, moment, note, text
from eventd.errors import Invalid
from eventd.text.arguments import as_argument
from eventd.text.plural import counted
from eventd.text.retention_waits import describe_remedies, describe_waits

DEFAULTS = ("type", "subject", "sourceNode", "ttl")
"""The members of events that options supply for all lines that lack them."""
OPTION_OF = {"id": "--id", "dedupeKey": "--dedupe-key", "payload": "--payload", "observedAt": "--observed-at"}


class Status(StrEnum):
    """The states of a delivery, declared here so that help and completion do not load the node."""

    DELIVERED = "delivered"
    PENDING = "pending"
    FAILED = "failed"
    EXPIRED = "expired"
    REFUSED = "refused"
    IN_PATH = "in_path"
    UNKNOWN = "unknown"


class History(StrEnum):
    """The results of the check of an event, declared here like the states of a delivery."""

    WAITING = "waiting"
    VERIFIED = "verified"
    UNPROVEN = "unproven"
    REFUTED = "refuted"


EVENTS = (
    Column("ID", text("id")),
    Column("GROUP", text("group")),
    Column("SOURCE", text("sourceNode")),
    Column("TYPE", text("type")),
    Column("SUBJECT", text("subject")),
    Column("OBSERVED", moment("observedAt")),
    Column("EXPIRES", moment("expiresAt")),
    Column("RECORDED", moment("recordedAt"), wide=True),
    Column("SEQ", text("seq"), wide=True),
    Column("VIA", lambda row: ",".join(row["path"]) or "-", wide=True),
    Column("RETURNED", lambda row: show_returned(row.get("returned")), wide=True),
    Column("HISTORY", show_check, wide=True),
    Column("MARK", lambda row: row["mark"]["kind"] if row.get("mark") else "-", wide=True),
    Column("DEDUPE_KEY", text("dedupeKey"), wide=True),
    Column("PAYLOAD", lambda row: _pairs(row["payload"]), wide=True),
)
DELIVERIES = (
    Column("EVENT_ID", text("eventId")),
    Column("PEER", text("peer")),
    Column("STATUS", text("status")),
    Column("ATTEMPTS", text("attempts")),
    Column("LAST_ATTEMPT", moment("lastAttemptAt")),
    Column("LAST_ERROR", text("lastError")),
    Column("DELIVERED", moment("deliveredAt")),
    Column("EXPIRES", moment("eventExpiresAt"), wide=True),
    Column("GROUP", text("group"), wide=True),
    Column("TYPE", text("type"), wide=True),
    Column("SUBJECT", text("subject"), wide=True),
    Column("SEQ", text("seq"), wide=True),
    Column("BATCH", text("batchId"), wide=True),
)


def _pairs(payload: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in payload.items()) or "-"


StdinOption = Annotated[
    bool,
    typer.Option(
        "--stdin",
        help="Read events from standard input, one JSON object per line. --type, --source-node, --subject and"
        " --ttl then apply to lines without their own.",
    ),
]
WaitOption = Annotated[
    str,
    typer.Option(
        "--wait",
        metavar="FOR",
        help="`sealed`: wait until the event is in a signed checkpoint of the history; `witnessed[=N]`: until N peers"
        " (default: 1) have cosigned one. With --stdin: the last event of each group, and so all before it.",
    ),
]
PatienceOption = Annotated[
    Duration, typer.Option("--timeout", metavar="DURATION", help="How long --wait waits, such as 10s.")
]
USUAL_PATIENCE: Final = Duration.read("30s")


@connected
async def emit(
    session: Session,
    group: GroupOption = "",
    type: Annotated[str, typer.Option("--type", help="Type of the event, a dotted name.")] = "",
    subject: Annotated[str, MayBeEmpty("--subject", help="Subject of the event, such as an address.")] = "",
    source_node: Annotated[
        str,
        typer.Option("--source-node", metavar="NODE", help="Node that observed the event (default: this node)."),
    ] = "",
    id: Annotated[str, typer.Option("--id", help="Id of the event (default: a new one).")] = "",
    dedupe_key: Annotated[
        str,
        typer.Option(
            "--dedupe-key",
            help="Key for plugins: of events with the same type and key in one window, a plugin gets only the last"
            " (default: the id).",
        ),
    ] = "",
    payload: Annotated[
        list[str] | None, typer.Option("--payload", metavar="KEY=VALUE", help="Attribute of the payload; repeatable.")
    ] = None,
    ttl: Annotated[
        str,
        typer.Option("--ttl", metavar="DURATION", help="Time from the observation to the expiry, such as 90s or 1h."),
    ] = "",
    observed_at: Annotated[
        str, typer.Option("--observed-at", metavar="TIME", help="Time of the observation, RFC 3339 (default: now).")
    ] = "",
    stdin: StdinOption = False,
    wait: WaitOption = "",
    patience: PatienceOption = USUAL_PATIENCE,
) -> None:
    """Store an event durably; the node then sends it to the group's peers."""
    given = {
        "type": type,
        "subject": subject,
        "sourceNode": source_node,
        "id": id,
        "dedupeKey": dedupe_key,
        "payload": dict(map(_pair, payload or [])),
        "ttl": ttl,
        "observedAt": observed_at,
    }
    fields = {name: value for name, value in given.items() if value}
    if stdin:
        await _emit_lines(session, group, fields, wait, patience)
        return
    if not type:
        raise typer.BadParameter("add --type, or read events with --stdin")
    least, name = _witnesses_of(wait, patience), await one_group(session, group)
    answer = await session.call("events.emit", group=name, events=[fields])
    (result,) = answer["results"]
    shown = result["event"] or {**fields, "id": result["id"]}
    if wait:
        from eventd.cli.history.sealed import wait_sealed

        shown = {**shown, "history": await wait_sealed(session, name, result["id"], least, patience)}
    session.out.one(EVENTS, shown, name=_event_name)
    if session.out.is_table and result["result"] != "new":
        note(f"note: {result['id']} exists already: {result['result']}")


def _witnesses_of(wait: str, patience: Duration) -> int:
    """Return how many peers must have cosigned before `--wait` ends. Raises BadParameter."""
    if patience < 0:
        raise typer.BadParameter("--timeout is negative: write a duration from 0s on")
    what, given, count = wait.partition("=")
    if what == "witnessed" and (not given or (count.isdecimal() and 0 < int(count) <= 1000)):
        return int(count) if given else 1
    if wait in ("", "sealed"):
        return 0
    raise typer.BadParameter(f"--wait is {wait!r}: write sealed, witnessed, or witnessed=N")


async def _emit_lines(session: Session, group: str, fields: Mapping[str, Any], wait: str, patience: Duration) -> None:
    """Emit the events of standard input; `fields` fill in what lines lack. Raises BadParameter for one event's own."""
    from eventd.cli.federation.emit_lines import SealWait, emit_lines

    until = SealWait(_witnesses_of(wait, patience), patience) if wait else None
    own = [name for name in fields if name not in DEFAULTS]
    if own:
        option = OPTION_OF[own[0]]
        raise typer.BadParameter(f"{option} applies to one event: with --stdin, each line has its own {own[0]}")
    if "ttl" in fields:
        _check_ttl(str(fields["ttl"]))
    await emit_lines(session, group, {name: str(value) for name, value in fields.items()}, until)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter(f"--payload {text!r} is not KEY=VALUE")
    return key, value


def _check_ttl(ttl: str) -> None:
    """Check --ttl before input is read: otherwise each line would be refused for it. Raises `Invalid`."""
    from eventd.text.duration import BadDuration, parse_duration

    try:
        parse_duration(ttl)
    except BadDuration as error:
        raise Invalid(f"--ttl {error.message}") from None


def _event_name(row: Mapping[str, Any]) -> str:
    return str(row["id"])


HistoryFilter = Annotated[
    History | None,
    typer.Option(
        "--history", help="Only events of other nodes whose check, of history.mode verify, has this result, or waits."
    ),
]


def _require_followable(history: History | None) -> None:
    """Raise BadParameter for a result that no event has when it arrives."""
    if history not in (None, History.WAITING):
        early = "--watch shows events as they arrive, before they are checked"
        raise typer.BadParameter(f"{early}: leave out --watch or --history {history}")


@connected
@only_calls
async def list_events(
    session: Session,
    group: GroupsOption = "",
    type: TypeFilter = None,
    subject: Annotated[
        str, typer.Option("--subject", metavar="PREFIX", help="Only subjects that start with PREFIX.")
    ] = "",
    source_node: Annotated[
        str, typer.Option("--source-node", metavar="NODE", help="Only events with this source node.")
    ] = "",
    id: Annotated[str, typer.Option("--id", help="Only this event.")] = "",
    since: SinceFilter = "",
    until: UntilFilter = "",
    include_expired: Annotated[bool, typer.Option("--include-expired", help="Include expired events.")] = False,
    history: HistoryFilter = None,
    newest: Annotated[bool, typer.Option("--newest", help="Show the newest first.")] = False,
    oldest: OldestOption = False,
    limit: LimitOption = 100,
    before: BeforeOption = "",
    after: AfterOption = "",
    watch: WatchOption = False,
) -> None:
    """List the newest events, one row per id; the newest comes last."""
    asked = {
        "type": type or [],
        "subject_prefix": subject,
        "source": source_node,
        "id": id,
        "since": since,
        "until": until,
        "include_expired": include_expired,
        "history": None if history is None else str(history),
    }
    names = await all_groups(session, group)
    if watch:
        from eventd.cli.federation.watch import watch_events

        if newest or oldest or before:
            option = "--newest" if newest else "--oldest" if oldest else "--before"
            raise typer.BadParameter(f"--watch shows events in order of arrival and cannot be used with {option}")
        _require_followable(history)
        await watch_events(session, names, asked, EVENTS, limit=limit, after=after)
        return
    pages = Pages(
        session,
        "events.list",
        "events",
        limit=limit,
        after=after,
        before=before,
        oldest=oldest,
        newest_first=newest,
    )
    for name in names:
        await pages.read(name, **asked)
    session.out.rows(EVENTS, pages.rows, name=_event_name)
    pages.note_rest()
    if id and not pages.rows:
        hidden = "" if include_expired else "; --include-expired shows expired events"
        note(f"note: no event {id} matches{hidden}")


@connected
@only_calls
async def deliveries(
    session: Session,
    group: GroupsOption = "",
    event_id: Annotated[str, typer.Option("--event-id", metavar="ID", help="Only this event.")] = "",
    peer: PeerFilter = "",
    status: Annotated[
        list[Status] | None, typer.Option("--status", help="Only deliveries in this state; repeatable.")
    ] = None,
    type: TypeFilter = None,
    since: SinceFilter = "",
    until: UntilFilter = "",
    oldest: OldestOption = False,
    limit: LimitOption = 100,
    before: BeforeOption = "",
    after: AfterOption = "",
) -> None:
    """List deliveries of the newest events: the state of each event at each peer; the newest come last."""
    pages = Pages(session, "deliveries.list", "deliveries", limit=limit, after=after, before=before, oldest=oldest)
    for name in await all_groups(session, group):
        await pages.read(
            name,
            event_id=event_id,
            peer=peer,
            status=[str(state) for state in status or []],
            type=type or [],
            since=since,
            until=until,
        )
    session.out.rows(DELIVERIES, pages.rows, name=lambda row: f"{row['eventId']}/{row['peer']}")
    pages.note_rest()
    if event_id and not pages.rows:
        why = f"routerctl federation event describe {as_argument(event_id, 'EVENT_ID')}"
        note(f"note: no delivery of event {event_id} matches; to see for which peers it is not meant, and why: {why}")


@connected_without_table
@only_calls
@may_ask
async def prune(session: Session, group: GroupOption = "") -> None:
    """Apply the group's retention now."""
    name, notes = await one_group(session, group), list[str]()
    before = await read_waiting(session, name) if session.out.is_table else {}
    answer = await ask_prune(session, name, waits=session.out.is_table)
    if session.out.is_table:
        after = await read_waiting(session, name) if answer["removed"] and before else {}
        notes = [*note_what_was_lost(before, after), *describe_rest(answer)]
    session.out.outcome(
        [answer],
        f"removed {counted(answer['removed'], 'record')} of group {answer['group']}",
        name=lambda row: row["group"],
        notes=notes,
    )


async def ask_prune(session: Session, group: str, *, waits: bool) -> dict[str, Any]:
    """Return the node's answer; with `waits`, also what retention waits for, unless the node is of an earlier release.

    That refuses the parameter, before it removes anything.
    """
    if waits:
        with suppress(Invalid):
            return dict(await session.call("events.prune", group=group, waits=True))
    return dict(await session.call("events.prune", group=group))


def describe_rest(answer: Mapping[str, Any]) -> list[str]:
    """Return why retention kept what it kept, as notes."""
    name = answer["group"]
    if not answer["bounded"]:
        return [f"note: group {name} keeps everything: it sets neither retention.maxEvents nor retention.maxAge"]
    waits: Mapping[str, int] | None = answer.get("retentionWaits")
    if waits:
        return [f"note: {describe_waits(waits)}; {describe_remedies(waits, name)}"]
    if waits is None or answer["removed"]:
        return []
    return [f"note: no event of group {name} is over the limits of its retention"]
