"""routerctl stream: create, list, describe, delete. A stream is a topic, and these commands use the API of topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask
from eventd.cli.streams.stream_names import StreamArgument, read_stream
from eventd.cli.terminal.output import Column, text
from eventd.cli.topics.record_text import read_settings
from eventd.cli.topics.topics import described, plain, routers_of, state_of
from eventd.errors import Conflict, EventdError, Invalid, NotFound
from eventd.text.invisible import printable

if TYPE_CHECKING:
    from eventd.client import Client, TopicState
    from eventd.streams.names import StreamName

STREAMS = (
    Column("NAME", text("stream")),
    Column("EARLIEST", lambda row: str(row["earliest_offset"])),
    Column("TAIL", lambda row: str(row["tail_offset"])),
    Column("COUNT", lambda row: str(row["count"])),
    Column("BYTES", lambda row: str(row["bytes"])),
    Column("DURABLE", lambda row: "yes" if row["durable"] else "no"),
    Column("TOPIC", text("topic"), wide=True),
)
_OF_TOPICS = ("Name", "Type", "Seqs")
"""Labels of topics that `describe` replaces."""


def _name(row: Mapping[str, Any]) -> str:
    return str(row["stream"])


@connected_without_table
async def create(
    session: Session,
    name: StreamArgument,
    durability: Annotated[
        str,
        typer.Option(
            "--durability",
            metavar="CLASS",
            help="`ephemeral`, `memory`, `disk` or `fsync` (default: as the node chooses for topics).",
        ),
    ] = "",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Configuration field of its topic; repeatable."),
    ] = None,
) -> None:
    """Create a stream: a topic that clients speak to over QUIC. An existing one is not changed."""
    import msgspec

    from eventd.client import Config

    stream = read_stream(name)
    settings = read_settings(setting or []) | ({"durability": durability} if durability else {})
    if settings.get("type", "log") != "log":
        raise Invalid("a queue cannot be a stream", hint="leave out --set type, or create a queue with topic put")
    try:
        config = msgspec.convert(settings, Config)
    except msgspec.ValidationError as error:
        raise Invalid(f"the configuration is not valid: {error}") from None
    session.make = True
    client = await session.client()
    found = await _find(client, stream)
    if found is not None:
        if found.type != "log":
            raise _queue(stream, Conflict)
        raise Conflict(
            f"stream {name} exists already", hint=f"routerctl topic set {stream.topic} changes its configuration"
        )
    put = await client.topics.put(stream.topic, config)
    row = {"stream": name, **plain(put), "config": msgspec.structs.asdict(put.config)}
    session.out.outcome(row, f"stream/{name} created", name=_name)


@connected
async def list_streams(
    session: Session,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix", metavar="PREFIX", help="Only names that start with PREFIX, such as t1/ or t1/default/."
        ),
    ] = "",
) -> None:
    """List streams, sorted by name, with their offsets. TAIL is the offset of the next record."""
    from eventd.streams.names import TOPIC, stream_of

    client = await session.client()
    rows = []
    async for row in client.topics.list(TOPIC + prefix.replace("/", ":")):
        if (stream := stream_of(row.topic)) is not None:
            offsets = {"earliest_offset": row.earliest_seq - 1, "tail_offset": row.head_seq}
            rows.append({"stream": "/".join(stream), **offsets, **plain(row)})
    session.out.rows(STREAMS, rows, name=_name)


@connected_without_table
async def describe(session: Session, name: StreamArgument) -> None:
    """Show a stream in detail: offsets, size, the configuration of its topic, the routers from and to it."""
    stream = read_stream(name)
    client = await session.client()
    found = await _get(client, stream)
    state, routers = state_of(found), await routers_of(client, stream.topic)
    offsets = {"earliest_offset": found.earliest_seq - 1, "tail_offset": found.head_seq}
    rows = [*_about(name, found), *(row for row in described(state, routers) if row[0] not in _OF_TOPICS)]
    lines = [f"{f'{label}:' if label else '':<14}{printable(value)}".rstrip() for label, value in rows]
    session.out.outcome({"stream": name, **offsets, **state, **routers}, *lines, name=_name)


def _about(name: str, state: TopicState) -> Iterator[tuple[str, str]]:
    yield "Name", name
    yield "Topic", state.topic
    yield "Durability", state.config.durability
    tail = f"the next is {state.head_seq}"
    some = state.earliest_seq <= state.head_seq
    yield "Offsets", f"{state.earliest_seq - 1} to {state.head_seq - 1}; {tail}" if some else f"none; {tail}"


@connected_without_table
@may_ask
async def delete(
    session: Session,
    name: StreamArgument,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Delete only if the stream holds no records.")] = False,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Succeed if the stream does not exist.")
    ] = False,
) -> None:
    """Delete a stream: its topic with all records, and the routers from and to it. Its subscriptions end."""
    stream = read_stream(name)
    client = await session.client()
    if not ignore_not_found or await _find(client, stream) is not None:
        await _get(client, stream)  # also refuses a queue of that name
    session.confirm_ending(f"delete the stream {name}")
    answer = await client.topics.delete(stream.topic, if_empty=if_empty)
    if not answer.deleted and not ignore_not_found:
        raise _missing(stream)
    gone = [f"stream/{name}"] if answer.deleted else []
    gone += [f"router/{router}" for router in answer.routers_removed]
    session.out.outcome({"stream": name, **plain(answer)}, *(f"{one} deleted" for one in gone), name=_name)


async def _find(client: Client, stream: StreamName) -> TopicState | None:
    try:
        return await client.topics.get(stream.topic, touch=False)
    except NotFound as error:
        if error.code != "topic_not_found":
            raise
        return None


async def _get(client: Client, stream: StreamName) -> TopicState:
    """Return the state of a stream's topic. Raises `NotFound`, also for a queue, which is not a stream."""
    state = await _find(client, stream)
    if state is None:
        raise _missing(stream)
    if state.type != "log":
        raise _queue(stream, NotFound)
    return state


def _queue(stream: StreamName, kind: type[EventdError]) -> EventdError:
    return kind(
        f"{'/'.join(stream)} is not a stream: topic {stream.topic} is a queue",
        hint=f"routerctl topic describe {stream.topic} shows it",
    )


def _missing(stream: StreamName) -> NotFound:
    return NotFound(f"stream {'/'.join(stream)} does not exist", hint="`routerctl stream list` shows the streams")
