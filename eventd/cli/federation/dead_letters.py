"""routerctl federation dead-letters: list, retry, drop."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eventd.cli.gateway.completion import complete_peer
from eventd.cli.gateway.selecting import (
    GroupOption,
    GroupsOption,
    LimitOption,
    OldestOption,
    Pages,
    PeerFilter,
    all_groups,
    one_group,
)
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.terminal.output import Column, moment, text
from eventd.text.plural import counted

LETTERS = (
    Column("ID", text("id")),
    Column("EVENT_ID", text("eventId")),
    Column("PEER", text("peer")),
    Column("REASON", text("reason")),
    Column("DETAIL", text("detail")),
    Column("ATTEMPTS", text("attempts")),
    Column("SINCE", moment("parkedAt")),
    Column("GROUP", text("group"), wide=True),
    Column("TYPE", text("type"), wide=True),
    Column("SUBJECT", text("subject"), wide=True),
    Column("STORED", lambda row: "yes" if row["stored"] else "no", wide=True),
)

LettersArgument = Annotated[
    list[int] | None, typer.Argument(metavar="[ID]...", help="Ids of dead letters, as `list` shows them.")
]
EveryOption = Annotated[bool, typer.Option("--all", help="All dead letters of the group.")]
OfPeerOption = Annotated[
    str, typer.Option("--peer", metavar="NODE", autocompletion=complete_peer, help="All dead letters of this peer.")
]


@connected
@only_calls
async def list_letters(
    session: Session,
    group: GroupsOption = "",
    peer: PeerFilter = "",
    event_id: Annotated[str, typer.Option("--event-id", metavar="ID", help="Only this event.")] = "",
    oldest: OldestOption = False,
    limit: LimitOption = 100,
    before: Annotated[
        int, typer.Option("--before", metavar="ID", min=0, help="Show dead letters before this one.")
    ] = 0,
    after: Annotated[
        int,
        typer.Option("--after", metavar="ID", min=0, help="Show dead letters after this one, the oldest first."),
    ] = 0,
) -> None:
    """List dead letters with the reason of each."""
    pages = Pages(session, "dead_letters.list", "deadLetters", limit=limit, after=after, before=before, oldest=oldest)
    for name in await all_groups(session, group):
        await pages.read(name, peer=peer, event_id=event_id)
    session.out.rows(LETTERS, pages.rows, name=lambda row: str(row["id"]))
    pages.note_rest()


@connected_without_table
@only_calls
async def retry(
    session: Session,
    letter: LettersArgument = None,
    group: GroupOption = "",
    peer: OfPeerOption = "",
    all: EveryOption = False,
) -> None:
    """Send the events of dead letters again, and delete these dead letters; those that cannot be sent stay."""
    choice = _choice(letter, peer, everything=all)
    answer = await session.call("dead_letters.retry", group=await one_group(session, group), **choice)
    session.out.outcome(
        [answer],
        f"sending {counted(answer['retried'], 'dead letter')} again",
        name=lambda row: str(row["retried"]),
        notes=[f"note: dead letter {kept['id']} stays: {kept['reason']}" for kept in answer["kept"]],
    )


@connected_without_table
@only_calls
@may_ask
async def drop(
    session: Session,
    letter: LettersArgument = None,
    group: GroupOption = "",
    peer: OfPeerOption = "",
    all: EveryOption = False,
) -> None:
    """Delete dead letters. Their events are neither deleted nor sent again."""
    choice = _choice(letter, peer, everything=all)
    answer = await session.call("dead_letters.drop", group=await one_group(session, group), **choice)
    dropped = f"dropped {counted(answer['dropped'], 'dead letter')}"
    session.out.outcome([answer], dropped, name=lambda row: str(row["dropped"]))


def _choice(letters: list[int] | None, peer: str, *, everything: bool) -> dict[str, Any]:
    if sum((bool(letters), bool(peer), everything)) != 1:
        raise typer.BadParameter("choose dead letters in one way: ID..., --peer, or --all")
    return {"ids": letters or [], "peer": peer, "all": everything}
