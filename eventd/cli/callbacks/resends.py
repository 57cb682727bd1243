"""routerctl callback: resend, replay, and dead-letters list, retry and drop."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eventd.cli.callbacks.callbacks import NameArgument, note_unserved
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.terminal.output import Column, moment, note, text
from eventd.text.plural import counted

LETTERS = (
    Column("ID", text("id")),
    Column("EVENT_ID", text("eventId")),
    Column("REASON", text("reason")),
    Column("DETAIL", text("detail")),
    Column("ATTEMPTS", text("attempts")),
    Column("SINCE", moment("parkedAt")),
    Column("POSITION", text("position"), wide=True),
)

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show how many events would be sent.")]
LettersArgument = Annotated[
    list[int] | None, typer.Argument(metavar="[ID]...", help="Ids of dead letters, as `list` shows them.")
]
EveryOption = Annotated[bool, typer.Option("--all", help="All dead letters of the callback.")]


@connected_without_table
@only_calls
async def resend(
    session: Session,
    name: NameArgument,
    event_id: Annotated[
        list[str], typer.Argument(metavar="EVENT_ID...", help="Ids of events or records, or `webhook-id`s.")
    ],
    dry_run: DryRunOption = False,
) -> None:
    """Send events again, by id; their requests have the header `routerd-repair: 1`."""
    answer = await session.call("callbacks.resend", callback=name, ids=event_id, dry_run=dry_run)
    _show(session, answer)


@connected_without_table
@only_calls
async def replay(
    session: Session,
    name: NameArgument,
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="TIME", help="Events stored at or after TIME: RFC 3339, or an age such as 15m."
        ),
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Events stored at or before TIME.")] = "",
    from_seq: Annotated[
        int | None, typer.Option("--from-seq", metavar="SEQ", min=1, help="The first seq of the topic to send.")
    ] = None,
    to_seq: Annotated[
        int | None, typer.Option("--to-seq", metavar="SEQ", min=1, help="The last seq of the topic to send.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Send only dead letters: those in the range, or all without one.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Send a range of events again, beside the callback's own deliveries."""
    by_time, by_seq = bool(since or until), from_seq is not None or to_seq is not None
    if by_time and by_seq:
        raise typer.BadParameter("choose events in one way: --since and --until, or --from-seq and --to-seq")
    if not (by_time or by_seq or failed):
        raise typer.BadParameter("choose events: --since and --until, --from-seq and --to-seq, or --failed")
    if from_seq is not None and to_seq is not None and to_seq < from_seq:
        raise typer.BadParameter(f"--to-seq ({to_seq}) is less than --from-seq ({from_seq}): swap them")
    asked: dict[str, Any] = {"since": since, "until": until, "failed": failed, "dry_run": dry_run}
    asked |= {} if from_seq is None else {"from_seq": from_seq}
    asked |= {} if to_seq is None else {"to_seq": to_seq}
    answer = await session.call("callbacks.replay", callback=name, **asked)
    _show(session, answer)


def _show(session: Session, answer: dict[str, Any]) -> None:
    verb = "would send" if answer["dryRun"] else "sending"
    words = f"{answer['callback']}: {verb} {counted(answer['events'], 'event')} again"
    session.out.outcome([answer], words, name=lambda row: str(row["callback"]))
    if not answer["dryRun"]:
        note_unserved(session)


@connected
@only_calls
async def list_letters(
    session: Session,
    name: NameArgument,
    oldest: Annotated[bool, typer.Option("--oldest", help="Show the oldest first.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of dead letters.")] = 100,
    after: Annotated[int, typer.Option("--after", metavar="ID", min=0, help="Continue after this dead letter.")] = 0,
) -> None:
    """List the dead letters of a callback, with the reason of each, the newest first."""
    answer = await session.call("callback_letters.list", callback=name, newest=not oldest, limit=limit, after=after)
    session.out.rows(LETTERS, answer["deadLetters"], name=lambda row: str(row["id"]))
    if answer["next"] is not None:
        note(f"note: there are more: continue with --after {answer['next']}")


@connected_without_table
@only_calls
async def retry(session: Session, name: NameArgument, letter: LettersArgument = None, all: EveryOption = False) -> None:
    """Send the events of dead letters again, and delete these dead letters; those that cannot be sent stay."""
    answer = await session.call("callback_letters.retry", callback=name, **_choice(letter, everything=all))
    session.out.outcome(
        [answer],
        f"sending {counted(answer['retried'], 'dead letter')} again",
        name=lambda row: str(row["retried"]),
        notes=[f"note: dead letter {kept['id']} stays: {kept['reason']}" for kept in answer["kept"]],
    )
    if answer["retried"]:
        note_unserved(session)


@connected_without_table
@only_calls
@may_ask
async def drop(session: Session, name: NameArgument, letter: LettersArgument = None, all: EveryOption = False) -> None:
    """Delete dead letters. Their events are neither deleted nor sent again."""
    answer = await session.call("callback_letters.drop", callback=name, **_choice(letter, everything=all))
    dropped = f"dropped {counted(answer['dropped'], 'dead letter')}"
    session.out.outcome([answer], dropped, name=lambda row: str(row["dropped"]))


def _choice(letters: list[int] | None, *, everything: bool) -> dict[str, Any]:
    if bool(letters) == everything:
        raise typer.BadParameter("choose dead letters in one way: ID..., or --all")
    return {"ids": letters or [], "all": everything}
