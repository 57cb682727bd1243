"""routerctl watch: several topics at once, as they grow."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated

import typer

from eventd.cli.gateway.completion import complete_topic
from eventd.cli.gateway.session import Session, connected
from eventd.cli.terminal.output import note
from eventd.cli.topics.record_text import WATCHED, show_record, tell_gap
from eventd.errors import Invalid


@connected
async def watch(
    session: Session,
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...", autocompletion=complete_topic, help="Topics; TOPIC@SEQ starts after that record."
        ),
    ],
    tail: Annotated[bool, typer.Option("--tail", help="Only records written from now on.")] = False,
    exclude_node: Annotated[
        list[str] | None, typer.Option("--exclude-node", metavar="NODE", help="Skip records of this node; repeatable.")
    ] = None,
) -> None:
    """Show the records of topics, then new ones as they are written, until Ctrl-C or until all topics are deleted."""
    from asyncio import CancelledError

    from eventd.client import Batch, Gap, TopicDeleted

    starts = dict(_start(word, tail=tail) for word in topics)
    client = await session.client(again=True)
    show = session.out.stream_rows(WATCHED, name=lambda row: f"{row['topic']}@{row['$seq']}")
    watch = client.watch(starts, node=exclude_node or ())
    try:
        async with aclosing(aiter(watch)) as sights:
            async for sight in sights:
                match sight:
                    case Batch():
                        show([{"topic": sight.topic, **show_record(record)} for record in sight.records])
                    case Gap():
                        tell_gap(sight, sight.topic)
                    case TopicDeleted():
                        note(f"deleted: topic {sight.topic}")
    except CancelledError:
        return  # Ctrl-C is how it ends


def _start(word: str, *, tail: bool) -> tuple[str, int | None]:
    topic, at, seq = word.partition("@")
    if not at:
        return topic, None if tail else 0
    if not (seq.isascii() and seq.isdigit() and len(seq) < 19):
        raise Invalid(f"{word[:80]!r} is not TOPIC@SEQ", hint="write a number after the @, such as jobs@42")
    return topic, int(seq)
