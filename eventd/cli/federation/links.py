"""routerctl federation: deliveries summary, links, gaps, pause, resume, redeliver, status."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.federation.links_table import GAPS, INBOUND, OUTBOUND
from eventd.cli.gateway.completion import complete_event, complete_peer
from eventd.cli.gateway.selecting import (
    DryRunOption,
    GroupOption,
    GroupsOption,
    LimitOption,
    OldestOption,
    Pages,
    PeerFilter,
    TypeFilter,
    WatchOption,
    all_groups,
    one_group,
)
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.terminal.output import Column, joined, note, show_moment, span, text
from eventd.text.plural import counted

SUMMARY = (
    Column("GROUP", text("group")),
    Column("PEER", text("peer")),
    Column("EVENTS", text("events")),
    Column("DELIVERED", text("delivered")),
    Column("STALE_TTL", text("staleTTL")),
    Column("FAILED", text("failed")),
    Column("PENDING", text("pending")),
    Column("MAX_LAG", span("maxLagSeconds")),
    Column("MIN_EXPIRES_IN", span("minExpiresInSeconds")),
    Column("EXPIRED", text("expired"), wide=True),
    Column("REFUSED", text("refused"), wide=True),
    Column("IN_PATH", text("inPath"), wide=True),
    Column("UNKNOWN", text("unknown"), wide=True),
)
STATUS = (
    Column("GROUP", text("group")),
    Column("NODE", text("nodeName")),
    Column("EVENTS", text("events")),
    Column("BYTES", text("bytes")),
    Column("SEQ", text("seq")),
    Column("PEERS", text("peers")),
    Column("LINKS", lambda row: ",".join(f"{number} {state}" for state, number in row["links"].items()) or "-"),
    Column("LISTEN", text("listen")),
    Column("PROTOCOLS", joined("protocols"), wide=True),
    Column("EVICTED", text("evictedSeq"), wide=True),
    Column(
        "RETENTION WAITS",  # nodes of earlier versions do not say it
        lambda row: ",".join(f"{count} {reason}" for reason, count in row.get("retentionWaits", {}).items()) or "-",
        wide=True,
    ),
)

PeerArgument = Annotated[
    str, typer.Argument(metavar="PEER", autocompletion=complete_peer, help="The peer, by its node name.")
]


@connected
@only_calls
async def summary(
    session: Session,
    group: GroupsOption = "",
    peer: PeerFilter = "",
    type: TypeFilter = None,
    include_expired: Annotated[
        bool,
        typer.Option(
            "--include-expired",
            help="Count all expired events; by default only those that expired before the peer had them.",
        ),
    ] = False,
) -> None:
    """Count deliveries per peer and state. MAX_LAG is the longest time from the storage of an event at this node to
    its first acknowledgement.
    """
    rows: list[dict[str, Any]] = []
    for name in await all_groups(session, group):
        answer = await session.call(
            "deliveries.summary", group=name, peer=peer, type=type or [], include_expired=include_expired
        )
        rows += answer["summary"]
    session.out.rows(SUMMARY, rows, name=_link_name)
    if session.out.format == "table":
        for row in rows:
            _tell_losses(row)


def _tell_losses(row: Mapping[str, Any]) -> None:
    """Print a note with the numbers of events that expired, were refused or have no known state, for which the short
    table has no columns."""
    words = {"expired": "expired before delivery", "refused": "refused", "unknown": "of unknown state"}
    lost = [f"{row[name]} {word}" for name, word in words.items() if row[name]]
    if lost:
        note(f"note: {row['peer']} in group {row['group']}: {', '.join(lost)}")


def _link_name(row: Mapping[str, Any]) -> str:
    return f"{row['group']}/{row['peer']}"


@connected
@only_calls
async def links(session: Session, group: GroupsOption = "", peer: PeerFilter = "", watch: WatchOption = False) -> None:
    """List links with state, reason, backlog and lag, and up to which of its positions each peer's events arrived."""
    names = await all_groups(session, group)
    if watch:
        from eventd.cli.federation.watch import watch_links

        await watch_links(session, names, OUTBOUND, peer)
        return
    outbound: list[dict[str, Any]] = []
    inbound: list[dict[str, Any]] = []
    for name in names:
        answer = await session.call("links.status", group=name, peer=peer)
        outbound += answer["outbound"]
        inbound += answer["inbound"]
    if session.out.is_document:
        session.out.value({"outbound": outbound, "inbound": inbound})
        return
    session.out.rows(OUTBOUND, outbound, name=_link_name)
    if inbound and session.out.is_table:
        session.out.line()
        session.out.table(INBOUND, inbound)
    if outbound and session.out.is_table and not session.serving():
        note("note: no node serves this database now; the states are those that the last node left")


@connected
@only_calls
async def gaps(
    session: Session,
    group: GroupsOption = "",
    node: Annotated[str, typer.Option("--from", metavar="NODE", help="Only this sender, by its node name.")] = "",
    oldest: OldestOption = False,
    limit: LimitOption = 100,
    before: Annotated[int, typer.Option("--before", metavar="GAP", min=0, help="Show the gaps before this one.")] = 0,
    after: Annotated[
        int, typer.Option("--after", metavar="GAP", min=0, help="Show the gaps after this one, the oldest first.")
    ] = 0,
) -> None:
    """List gaps: ranges of a sender's positions whose events did not arrive, or are no longer in its log.

    The sender's retention removed them before they were sent, or the sender runs on an older copy of its database.
    """
    pages = Pages(session, "links.gaps", "gaps", limit=limit, after=after, before=before, oldest=oldest)
    for name in await all_groups(session, group):
        await pages.read(name, node=node)
    session.out.rows(GAPS, pages.rows, name=lambda row: str(row["id"]))
    pages.note_rest()


@connected
@only_calls
@may_ask
async def pause(
    session: Session,
    peer: PeerArgument,
    group: GroupOption = "",
    by: Annotated[
        str,
        typer.Option("--by", metavar="NAME", help="Your name, or the reason for the pause (default: your user name)."),
    ] = "",
) -> None:
    """Stop sending to a peer. Until the link is resumed, its events wait, unless they expire or are evicted."""
    by = by or user()
    answer = await session.call("links.pause", group=await one_group(session, group), peer=peer, by=by)
    _show_link(session, answer)
    (link,) = answer["outbound"]
    if link["pausedBy"] != by:
        note(f"note: {peer} is paused already, by {link['pausedBy']} since {show_moment(link['pausedAt'])}")


def user() -> str:
    """Return the name of the user who runs this command, `user UID` without one."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


@connected
@only_calls
async def resume(session: Session, peer: PeerArgument, group: GroupOption = "") -> None:
    """Resume the link to a peer at once, whether it is paused, backing off, blocked or failed."""
    answer = await session.call("links.resume", group=await one_group(session, group), peer=peer)
    _show_link(session, answer)


def _show_link(session: Session, answer: Mapping[str, Any]) -> None:
    (link,) = answer["outbound"]
    session.out.one(OUTBOUND, link, name=_link_name)


@connected_without_table
@only_calls
async def redeliver(
    session: Session,
    peer: PeerArgument,
    group: GroupOption = "",
    id: Annotated[
        list[str] | None, typer.Option("--id", autocompletion=complete_event, help="Send this event; repeatable.")
    ] = None,
    from_seq: Annotated[
        int | None, typer.Option("--from-seq", metavar="SEQ", min=1, help="First seq to send, in the group.")
    ] = None,
    to_seq: Annotated[
        int | None, typer.Option("--to-seq", metavar="SEQ", min=1, help="Last seq to send, in the group.")
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Send events that this node stored at or after TIME: RFC 3339, or an age such as 15m.",
        ),
    ] = "",
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Send events that this node stored at or before TIME, written as for --since.",
        ),
    ] = "",
    dry_run: DryRunOption = False,
) -> None:
    """Send events to a peer again, by id, range or time span. The peer drops those it has."""
    ways = [bool(id), from_seq is not None or to_seq is not None, bool(since or until)]
    if sum(ways) != 1:
        raise typer.BadParameter("choose events in one way: --id, --from-seq and --to-seq, or --since and --until")
    answer = await session.call(
        "deliveries.redeliver",
        group=await one_group(session, group),
        peer=peer,
        ids=id or [],
        from_seq=from_seq,
        to_seq=to_seq,
        since=since,
        until=until,
        dry_run=dry_run,
    )
    session.out.outcome(answer, _summary(answer), name=_link_name)


def _summary(answer: Mapping[str, Any]) -> str:
    verb = "would send" if answer["dryRun"] else "sends"
    events = f"{counted(answer['events'], 'event')} ({counted(answer['bytes'], 'byte')})"
    message = f"{verb} {events} to {answer['peer']} again"
    if answer["events"]:
        message += f", stored from {show_moment(answer['oldest'])} to {show_moment(answer['newest'])}"
    words = {
        "expired": "expired",
        "notMeant": "not selected for this peer",
        "waiting": "already in the backlog",
        "evicted": "removed by retention",
    }
    left = [f"{answer[name]:,} {word}" for name, word in words.items() if answer[name]]
    return f"{message}; left out: {', '.join(left)}" if left else message


@connected
@only_calls
async def status(session: Session) -> None:
    """Show an overview of all groups: sizes, peers, link states."""
    answer = await session.call("groups.status")
    if session.out.is_document:
        session.out.value(answer)
        return
    session.out.rows(STATUS, answer["groups"], name=lambda row: row["group"])
    if session.out.is_table and not session.is_remote:
        process = session.serving()
        note(f"note: process {process} serves this database" if process else "note: no node serves this database now")
