"""routerctl topic: write, read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.session import Session, connected, connected_without_table
from eventd.cli.program.values import MayBeEmpty
from eventd.cli.terminal.input_lines import InputLines
from eventd.cli.terminal.output import note
from eventd.cli.topics.record_text import RECORDS, read_record, read_value, show_record, tell_gap
from eventd.cli.topics.topics import TopicArgument
from eventd.errors import EventdError, Invalid
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.client import Client, NewRecord, Page

BATCH = 1000
LONGEST_LINE = 64 << 20


@connected_without_table
async def write(
    session: Session,
    topic: TopicArgument,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="JSON...", help="Data of each record as JSON; - reads one per line from standard input."
        ),
    ],
    tag: Annotated[str, MayBeEmpty("--tag", metavar="TAG", help="Tag of records without their own.")] = "",
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Node of records without their own.")] = "",
    meta: Annotated[str, typer.Option("--meta", metavar="JSON", help="Meta of records without their own.")] = "",
    records: Annotated[
        bool,
        typer.Option(
            "--records", help="Each value is a whole record: an object with data, and optionally tag, node and meta."
        ),
    ] = False,
    no_create: Annotated[bool, typer.Option("--no-create", help="Do not create a missing topic.")] = False,
    idempotency_key: Annotated[
        str,
        typer.Option(
            "--idempotency-key",
            metavar="KEY",
            help="Write nothing if the topic remembers this KEY (usually for 2 minutes); not with -.",
        ),
    ] = "",
) -> None:
    """Write records to a topic, which is created if it is missing. Automatic retries do not write a record twice."""
    if "-" in values and (len(values) > 1 or idempotency_key):
        raise typer.BadParameter("- must be the only value, and excludes --idempotency-key")
    shared = read_value(meta, "--meta") if meta else None
    session.make = not no_create
    create = False if no_create else None

    def made(where: str, value: str | bytes) -> NewRecord:
        return _record(value, where, tag=tag, meta=shared, whole=records)

    if values == ["-"]:
        batches = _read_batches(made)
    else:
        batches = _given([made(f"value {at}", value) for at, value in enumerate(values, start=1)])
    client = await session.client(again=True)
    written = await _write(client, topic, batches, node=node or None, create=create, idempotency_key=idempotency_key)
    session.out.outcome(written, f"topic/{topic}: {_summary(written)}", name=lambda row: str(row["last_seq"]))


def _record(value: str | bytes, where: str, *, tag: str, meta: Any, whole: bool) -> NewRecord:
    from eventd.client import NewRecord

    found = read_record(value, where) if whole else NewRecord(read_value(value, where))
    return NewRecord(found.data, found.tag or tag or None, found.node, meta if found.meta is None else found.meta)


async def _given(records: list[NewRecord]) -> AsyncIterator[list[NewRecord]]:
    yield records


async def _read_batches(made: Callable[[str, bytes], NewRecord]) -> AsyncIterator[list[NewRecord]]:
    """Yield the records on standard input, one per line, in batches as they arrive."""
    source = InputLines(longest=LONGEST_LINE)
    while (lines := await source.read()) is not None:
        for line in lines:
            if len(line.text) > LONGEST_LINE:
                raise Invalid(f"{line.place} is longer than {LONGEST_LINE >> 20} MiB", hint="write smaller records")
        for start in range(0, len(lines), BATCH):
            yield [made(line.place, line.text) for line in lines[start : start + BATCH]]


async def _write(
    client: Client, topic: str, batches: AsyncIterator[list[NewRecord]], **options: Any
) -> list[dict[str, Any]]:
    import msgspec

    rows: list[dict[str, Any]] = []
    try:
        async for batch in batches:
            written = await client.topics.write(topic, batch, **options)
            rows.append(msgspec.to_builtins(written))
    except (EventdError, asyncio.CancelledError):  # also by Ctrl-C
        if rows:
            last = rows[-1]["last_seq"]
            note(f"note: {counted(_records(rows), 'record')} confirmed as written, the last at seq {last}")
        raise
    return rows


def _summary(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "nothing to write"
    first, last = rows[0]["first_seq"], rows[-1]["last_seq"]
    at = f"at {first}" if first == last else f"at {first} to {last}"
    return f"{counted(_records(rows), 'record')} {'existed already' if rows[0]['deduped'] else 'written'} {at}"


def _records(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(row["count"] for row in rows)


@connected
async def read(
    session: Session,
    topic: TopicArgument,
    after: Annotated[int, typer.Option("--after", metavar="SEQ", min=0, help="Start after this record.")] = 0,
    last: Annotated[
        int | None,
        typer.Option(
            "--last", metavar="N", min=0, help="Start with the newest N records (fewer if some of them were deleted)."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Stop after N records.")] = None,
    exclude_node: Annotated[
        list[str] | None, typer.Option("--exclude-node", metavar="NODE", help="Skip records of this node; repeatable.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with records as they are written.")] = False,
) -> None:
    """Show the records of a topic, the oldest first. JSON is one object per line."""
    client = await session.client(again=follow)
    if last is not None:
        after = max((await client.topics.get(topic)).head_seq - last, 0)
    page = 0 if limit is None else min(limit, 256)
    pages = client.topics.pages(topic, after, node=exclude_node or (), tags=True, follow=follow, limit=page)
    try:
        async with aclosing(pages):
            await _show_pages(session, topic, pages, limit)
    except asyncio.CancelledError:
        if not follow:
            raise  # Ctrl-C is how following ends


async def _show_pages(session: Session, topic: str, pages: AsyncIterator[Page], limit: int | None) -> None:
    show, left = session.out.stream_rows(RECORDS, name=lambda row: str(row["$seq"])), limit
    async for found in pages:
        if found.gap is not None:
            tell_gap(found.gap, topic)
        rows = [show_record(record) for record in found.records[:left]]
        show(rows)
        if left is not None:
            left -= len(rows)
            if not left:
                _tell_more(topic, found, rows)
                return


def _tell_more(topic: str, found: Page, rows: Sequence[Mapping[str, Any]]) -> None:
    last = rows[-1]["$seq"]
    if last < found.head_seq:
        note(f"note: topic {topic} has records up to {found.head_seq}; continue with --after {last}")
