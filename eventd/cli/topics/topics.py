"""routerctl topic: put, set, get, list, describe, delete, purge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.completion import complete_topic
from eventd.cli.gateway.session import Session, connected, connected_without_table, may_ask
from eventd.cli.terminal.documents import read_documents
from eventd.cli.terminal.output import Column, text
from eventd.cli.topics.record_text import check_fields, read_settings, show_millis
from eventd.errors import Invalid, NotFound
from eventd.text.invisible import printable
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.client import Client, TopicPut, TopicState

TOPICS = (
    Column("NAME", text("topic")),
    Column("HEAD", lambda row: str(row["head_seq"])),
    Column("EARLIEST", lambda row: str(row["earliest_seq"])),
    Column("COUNT", lambda row: str(row["count"])),
    Column("BYTES", lambda row: str(row["bytes"])),
    Column("DURABLE", lambda row: "yes" if row["durable"] else "no"),
    Column("MANAGED", text("managed")),
    Column("PRIORITY", lambda row: str(row["effective_priority"]), wide=True),
)
STATE = (
    Column("NAME", text("topic")),
    Column("TYPE", text("type")),
    Column("HEAD", lambda row: str(row["head_seq"])),
    Column("EARLIEST", lambda row: str(row["earliest_seq"])),
    Column("COUNT", lambda row: str(row["count"])),
    Column("BYTES", lambda row: str(row["bytes"])),
    Column("DURABILITY", lambda row: row["config"]["durability"]),
    Column("MANAGED", text("managed")),
    Column("READY", lambda row: _queue(row, "ready")),
    Column("IN_FLIGHT", lambda row: _queue(row, "in_flight"), wide=True),
    Column("DEAD_LETTERED", lambda row: _queue(row, "dead_lettered"), wide=True),
    Column("LAST_WRITE", lambda row: show_millis(row["last_write_ts"])),
    Column("LAST_READ", lambda row: show_millis(row["last_read_ts"]), wide=True),
    Column("PRIORITY", lambda row: str(row["effective_priority"]), wide=True),
)
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, help="Name of the topic.")
]


def _queue(row: Mapping[str, Any], figure: str) -> str:
    return str((row.get("queue") or {}).get(figure, "-"))


def _name(row: Mapping[str, Any]) -> str:
    return str(row["topic"])


def plain(value: Any) -> Any:
    """Return a value in built-in types, under the names of the API."""
    import msgspec

    return msgspec.to_builtins(value)


def state_of(state: TopicState) -> dict[str, Any]:
    """Return a topic's state, with every field of its configuration, including defaults."""
    import msgspec

    return {**plain(state), "config": msgspec.structs.asdict(state.config)}


@connected_without_table
@may_ask
async def put(
    session: Session,
    topic: TopicArgument,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Configuration field, such as ttl_ms=10m; repeatable."),
    ] = None,
    filename: Annotated[
        str,
        typer.Option(
            "--filename", "-f", metavar="FILE", help="File with the configuration as YAML or JSON; - is standard input."
        ),
    ] = "",
) -> None:
    """Create a topic or replace its configuration: fields left out get their defaults."""
    import msgspec

    from eventd.client import Config

    settings = {**_read_config(filename), **read_settings(setting or [])}
    try:
        config = msgspec.convert(settings, Config)
    except msgspec.ValidationError as error:
        raise Invalid(f"the configuration is not valid: {error}") from None
    session.make = True
    client = await session.client()
    if session.asks:
        await _confirm_limits(session, topic, settings, replace=True)
    _show_put(session, await client.topics.put(topic, config))


@connected_without_table
@may_ask
async def set_fields(
    session: Session,
    topic: TopicArgument,
    settings: Annotated[
        list[str], typer.Argument(metavar="FIELD=VALUE...", help="Fields to change; null restores the default.")
    ],
) -> None:
    """Change fields of a topic's configuration; the others stay as they are."""
    client, changes = await session.client(), read_settings(settings)
    if session.asks:
        await _confirm_limits(session, topic, changes, replace=False)
    _show_put(session, await client.topics.patch(topic, **changes))


async def _confirm_limits(session: Session, topic: str, changes: Mapping[str, Any], *, replace: bool) -> None:
    """Ask before a change of a topic's configuration by which it deletes records. Raises unless it is confirmed.

    With `replace`, fields that are not in `changes` get their defaults.
    """
    from eventd.log.core.topic_config import TopicConfig, merged

    client = await session.client()
    try:
        state = await client.topics.get(topic, touch=False)
    except NotFound:
        return
    before = merged(TopicConfig(), state_of(state)["config"])
    after = merged(TopicConfig() if replace else before, changes)
    if lowered := before.lowered_in(after):
        session.confirm_ending(
            f"change {' and '.join(lowered)} of the topic {topic}, which deletes records that it keeps now"
        )


def _read_config(filename: str) -> dict[str, Any]:
    if not filename:
        return {}
    documents = read_documents(filename)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise Invalid(
            f"{filename} must contain the configuration of one topic", hint="write one FIELD: VALUE on each line"
        )
    check_fields(documents[0])
    return documents[0]


def _show_put(session: Session, put: TopicPut) -> None:
    import msgspec

    row = {**plain(put), "config": msgspec.structs.asdict(put.config)}
    session.out.outcome(row, f"topic/{put.topic} {'created' if put.created else 'configured'}", name=_name)


@connected
async def get(session: Session, topic: TopicArgument) -> None:
    """Show the state of a topic. This does not count as a read."""
    client = await session.client()
    session.out.one(STATE, state_of(await client.topics.get(topic, touch=False)), name=_name)


@connected
async def list_topics(
    session: Session,
    prefix: Annotated[str, typer.Option("--prefix", metavar="PREFIX", help="Only names that start with PREFIX.")] = "",
) -> None:
    """List topics, sorted by name."""
    client = await session.client()
    rows = [plain(row) async for row in client.topics.list(prefix)]
    session.out.rows(TOPICS, rows, name=_name)


@connected_without_table
async def describe(session: Session, topic: TopicArgument) -> None:
    """Show a topic in detail: configuration, size, seqs, the routers from and to it."""
    client = await session.client()
    state = state_of(await client.topics.get(topic, touch=False))
    routers = await routers_of(client, topic)
    lines = [
        f"{f'{name}:' if name else '':<14}{printable(value)}".rstrip() for name, value in described(state, routers)
    ]
    session.out.outcome({**state, **routers}, *lines, name=_name)


async def routers_of(client: Client, topic: str) -> dict[str, list[dict[str, Any]]]:
    """Return the routers from and to a topic."""
    return {
        "routersFrom": [plain(router) async for router in client.routers.list(source=topic)],
        "routersTo": [plain(router) async for router in client.routers.list(dest=topic)],
    }


def described(
    state: Mapping[str, Any], routers: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[tuple[str, str]]:
    """Yield what `describe` shows: labels, most of them with a value."""
    yield "Name", state["topic"]
    yield "Type", state["type"]
    yield "Managed", state["managed"]
    yield "Records", f"{state['count']:,} ({counted(state['bytes'], 'byte')})"
    some = state["earliest_seq"] <= state["head_seq"]
    yield (
        "Seqs",
        f"{state['earliest_seq']} to {state['head_seq']}" if some else f"none; the next is {state['next_seq']}",
    )
    yield "Last Write", show_millis(state["last_write_ts"])
    yield "Last Read", show_millis(state["last_read_ts"])
    yield "Priority", str(state["effective_priority"])
    if queue := state.get("queue"):
        yield "Queue", ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in queue.items())
    yield "Config", ""
    for name, value in state["config"].items():
        yield "", f"  {name}: {'-' if value is None else str(value).lower() if isinstance(value, bool) else value}"
    for label, name in (("Routers From", "routersFrom"), ("Routers To", "routersTo")):
        yield label, "" if routers[name] else "none"
        for router in routers[name]:
            yield "", f"  {router['router']}: {router['source']} -> {router['dest']}"


@connected_without_table
@may_ask
async def delete(
    session: Session,
    topic: TopicArgument,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Delete only if the topic holds no records.")] = False,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Succeed if the topic does not exist.")
    ] = False,
) -> None:
    """Delete a topic with its records and the routers from and to it."""
    session.confirm_ending(f"delete the topic {topic}")
    client = await session.client()
    answer = await client.topics.delete(topic, if_empty=if_empty)
    if not answer.deleted and not ignore_not_found:
        raise NotFound(f"topic {topic} does not exist", hint="`routerctl topic list` shows the topics")
    gone = [f"topic/{topic}"] if answer.deleted else []
    gone += [f"router/{router}" for router in answer.routers_removed]
    session.out.outcome(plain(answer), *(f"{name} deleted" for name in gone), name=_name)


@connected_without_table
@may_ask
async def purge(
    session: Session,
    topic: TopicArgument,
    before: Annotated[
        int | None, typer.Option("--before", metavar="SEQ", min=0, help="Only records before this one.")
    ] = None,
    match: Annotated[
        str,
        typer.Option("--match", metavar="TAG", help="Only records with this tag; a trailing * matches any ending."),
    ] = "",
) -> None:
    """Delete records of a topic for good. Readers see no gap: the deletion is intended."""
    if before is None and not match:
        raise typer.BadParameter("select records with --before SEQ, --match TAG, or both")
    session.confirm_ending(f"delete records of the topic {topic}")
    client = await session.client()
    answer = await client.topics.purge(topic, before_seq=before, match=match or None)
    done = f"topic/{topic}: {counted(answer.deleted, 'record')} deleted, {answer.count:,} left"
    session.out.outcome(plain(answer), done, name=_name)
