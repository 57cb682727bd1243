"""routerctl queue: list, leases, release, retry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.gateway.completion import complete_topic
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask, only_calls
from eventd.cli.terminal.output import Column, moment, note, text
from eventd.errors import Conflict
from eventd.text.plural import counted

QUEUES = (
    Column("QUEUE", text("queue")),
    Column("READY", lambda row: str(row["ready"])),
    Column("LEASED", lambda row: str(row["leased"])),
    Column("DELAYED", lambda row: str(row["delayed"])),
    Column("DEAD_LETTERED", lambda row: str(row["deadLettered"])),
    Column("OLDEST_READY", lambda row: moment("writtenAt")(row["oldestReady"] or {"writtenAt": None})),
    Column("BYTES", lambda row: str(row["bytes"]), wide=True),
    Column("DEAD_LETTERS_TO", text("deadLetterTopic"), wide=True),
)
LEASES = (
    Column("SEQ", lambda row: str(row["seq"])),
    Column("STATE", text("state")),
    Column("CLIENT", text("client")),
    Column("ENDS", moment("endsAt")),
    Column("DELIVERIES", lambda row: str(row["deliveries"])),
    Column("BYTES", lambda row: str(row["bytes"]), wide=True),
)
After = Annotated[str, typer.Option("--after", metavar="TOKEN", help="Show what follows after TOKEN.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=200, help="Maximum number of rows.")]


@connected
@only_calls
async def list_queues(
    session: Session,
    prefix: Annotated[str, typer.Option("--prefix", metavar="PREFIX", help="Only names that start with PREFIX.")] = "",
    limit: Limit = 50,
    after: After = "",
) -> None:
    """List queues by name: their ready, leased and delayed jobs, and when the oldest ready one was written."""
    answer = await session.call("queues.list", prefix=prefix, limit=limit, after=after)
    session.out.rows(QUEUES, answer["queues"], name=lambda row: str(row["queue"]))
    _note_next(answer)
    if not answer["complete"]:
        note("note: there are more topics than were searched: narrow the list with --prefix")


@connected
@only_calls
async def leases(
    session: Session,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", autocompletion=complete_topic, help="Name of the queue.")],
    limit: Limit = 50,
    after: After = "",
) -> None:
    """List the leased and delayed jobs of a queue, those first that end first."""
    answer = await session.call("queues.leases", topic=queue, limit=limit, after=after)
    session.out.rows(LEASES, answer["leases"], name=lambda row: str(row["seq"]))
    _note_next(answer)


@connected_without_table
@only_calls
@may_ask
async def release(
    session: Session,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", autocompletion=complete_topic, help="Name of the queue.")],
    seqs: Annotated[list[int], typer.Argument(metavar="SEQ...", min=1, help="Seqs of the delayed jobs.")],
) -> None:
    """Make delayed jobs of a queue ready at once, instead of at the end of their delay."""
    answer = await session.call("queues.release", topic=queue, seqs=seqs)
    session.out.outcome(answer, f"{counted(len(answer['released']), 'job')} released", name=lambda _: queue)
    if answer["skipped"]:
        raise Conflict(
            f"not delayed: {', '.join(map(str, answer['skipped']))}",
            hint="`routerctl queue leases` lists those that are",
        )


@connected_without_table
@only_calls
@may_ask
async def retry(
    session: Session,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", autocompletion=complete_topic, help="Name of the queue.")],
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=5000, help="Maximum number of dead letters, the oldest first.")
    ] = 1000,
) -> None:
    """Return dead letters of a queue to it as new jobs."""
    answer = await session.call("queues.retry", topic=queue, limit=limit)
    session.out.outcome(
        answer, f"{counted(answer['retried'], 'dead letter')} returned to the queue", name=lambda _: queue
    )
    if not answer["complete"]:
        note("note: there may be more: run the command again")


def _note_next(answer: Mapping[str, Any]) -> None:
    if answer["next"] is not None:
        note(f"note: there are more: continue with --after {answer['next']}")
