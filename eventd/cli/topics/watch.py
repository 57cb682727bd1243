"""routerctl watch: several topics at once, as they grow."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated, Any

import typer

from eventd.cli.gateway.session import Session, connected
from eventd.cli.terminal.output import note
from eventd.cli.topics.record_text import WATCHED, show_record, tell_gap
from eventd.errors import Invalid


@connected
async def watch(
    session: Session,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="Topics; TOPIC@SEQ begins after that record.")
    ],
    tail: Annotated[bool, typer.Option("--tail", help="Only what is written from now on.")] = False,
    exclude_node: Annotated[
        list[str] | None, typer.Option("--exclude-node", metavar="NODE", help="Not what this node wrote; repeatable.")
    ] = None,
) -> None:
    """Show what topics hold, then what is written to them, until Ctrl-C or until they are all deleted."""
    from eventd.client import Batch, Gap, TopicDeleted

    starts = dict(_start(word, tail=tail) for word in topics)
    client = await session.client(again=True)
    show = session.out.stream_rows(WATCHED)
    watch = client.watch(starts, node=exclude_node or ())
    try:
        async with aclosing(aiter(watch)) as sights:
            async for sight in sights:
                match sight:
                    case Batch():
                        _show(session, show, sight)
                    case Gap():
                        tell_gap(sight, sight.topic)
                    case TopicDeleted():
                        note(f"gone: topic {sight.topic}")
    except asyncio.CancelledError:
        return  # Ctrl-C is how it ends


def _start(word: str, *, tail: bool) -> tuple[str, int | None]:
    topic, at, seq = word.partition("@")
    if not at:
        return topic, None if tail else 0
    if not (seq.isascii() and seq.isdigit() and len(seq) < 19):
        raise Invalid(f"{word[:80]!r} does not say where to begin", hint="write TOPIC@SEQ, such as jobs@42")
    return topic, int(seq)


def _show(session: Session, show: Any, batch: Any) -> None:
    rows = [{"topic": batch.topic, **show_record(record)} for record in batch.records]
    if session.out.format != "name":
        show(rows)
        return
    for row in rows:
        session.out.line(f"{row['topic']}@{row['$seq']}")
    session.out.flush()
