"""The records of a topic: write, read by page, delete."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Raw

from eventd.api.framework.models import U32, U64, Body, NoQuery, Query, ResponseModel, require_u64
from eventd.api.topics import write as writing
from eventd.api.topics.calls import Call
from eventd.api.topics.models import INT64_MAX, Tombstone, filter_ids
from eventd.api.topics.polls import is_at_end, wait_for_more
from eventd.api.topics.topics import require_possible_name
from eventd.api.topics.write import WriteAnswer, WriteBody
from eventd.errors import Invalid
from eventd.log.core.records import View
from eventd.log.core.topic_row import find_topic
from eventd.log.topics import topic_page
from eventd.log.topics.delete import delete_records
from eventd.log.topics.predicate import parse
from eventd.log.topics.topic_page import TopicQuery, read_topic_page
from eventd.log.topics.topics import refuse_reserved

PAGE_RECORDS, MAX_PAGE_RECORDS = 256, 1000
PAGE_BYTES, MAX_PAGE_BYTES = 1 << 20, 8 << 20
MAX_WAIT_MS = 30_000

_RECORD = {
    "type": "object",
    "properties": {
        "$seq": {"type": "integer"},
        "$ts": {"type": "integer"},
        "$node": {"type": "string"},
        "$tag": {"type": "string"},
        "data": {},
        "meta": {},
    },
    "required": ["$seq", "$ts"],
}
Records = Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": _RECORD})]
"""A JSON list of records, joined from the text of each without decoding it."""
_PREDICATE: dict[str, Any] = {
    "anyOf": [
        {"type": "null"},
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3},
    ]
}


class ReturnSeqs(Query, frozen=True):
    """`return_seqs`: whether the response lists the seq of each record."""

    return_seqs: bool = True


class DiffBody(Body):
    """Which page to read: at most `limit` records after the seq `from_seq`, about `max_batch_bytes` of data and meta.

    `node`: whose records are excluded, if the topic has `dedupe_node`. With `wait_ms` (at most 30 s), an empty page at
    the head waits that long for news. `epoch` is that of the page before: in another one, seqs mean other records. A
    `limit` or `max_batch_bytes` of 0 means the default. `touch`: whether this counts as a read of the topic.
    """

    from_seq: U64 = 0
    limit: U32 = 0
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: U32 = 0
    max_batch_bytes: U64 = 0
    touch: bool = True
    epoch: str | None = None

    def __post_init__(self) -> None:
        require_u64(from_seq=self.from_seq, max_batch_bytes=self.max_batch_bytes)


class Diff(ResponseModel):
    """A page of records. It covers the seqs up to `next_from_seq`, inclusive; `lag` counts the seqs after them.

    `tombstone` describes lost records among these seqs, or reports that `from_seq` is of another topic or epoch.
    """

    topic: str
    records: Records
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    epoch: str


class DeleteBody(Body):
    """Which records to delete: those with a seq below `before_seq`, those whose tag matches `match`.

    If both are given, those that meet both.
    """

    before_seq: U64 | None = None
    match: Annotated[Any, Meta(extra_json_schema=_PREDICATE)] = None

    def __post_init__(self) -> None:
        require_u64(before_seq=self.before_seq or 0)


class DeleteAnswer(ResponseModel):
    """The number of deleted records, and the state of the topic afterwards."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


async def write(call: Call[ReturnSeqs, WriteBody]) -> WriteAnswer:
    """Write a batch of records; a missing topic is created, unless the body excludes that."""
    header = call.request.headers.get("Idempotency-Key", "")
    written = await writing.write(call.v0, call.key, call.name, call.body, header)
    return writing.shown(call.name, written, call.performance(), seqs=call.query.return_seqs)


async def diff(call: Call[NoQuery, DiffBody]) -> Diff:
    """Return a page of a topic; an empty one at its head waits up to `wait_ms` for news."""
    require_possible_name(call.name)
    v0, ask = call.v0, _ask(call)
    await v0.catch_up(call.name)
    found = await v0.database.read(read_topic_page, ask)
    if call.body.touch:
        v0.recency.touch(found.topic_id, ask.now)
    if call.body.wait_ms and is_at_end(found):
        found = await wait_for_more(v0, ask, found, min(call.body.wait_ms, MAX_WAIT_MS) / 1000)
    performance = call.performance()
    performance.records_scanned = found.scanned
    return Diff(
        topic=call.name,
        records=Raw(f"[{','.join(found.records)}]"),
        next_from_seq=found.next_from_seq,
        head_seq=found.head_seq,
        earliest_seq=found.earliest_seq,
        caught_up=found.caught_up,
        tombstone=tombstone_of(found.tombstone),
        lag=found.lag,
        epoch=found.epoch,
        performance=performance,
    )


def _ask(call: Call[NoQuery, DiffBody]) -> TopicQuery:
    body = call.body
    return TopicQuery(
        topic=call.name,
        now=call.v0.clock.now(),
        from_seq=min(body.from_seq, INT64_MAX),
        limit=min(body.limit or PAGE_RECORDS, MAX_PAGE_RECORDS),
        max_bytes=min(body.max_batch_bytes or PAGE_BYTES, MAX_PAGE_BYTES),
        nodes=filter_ids(body.node),
        view=View(tags=body.include_tags, meta=body.include_meta),
        epoch=body.epoch or "",
    )


def tombstone_of(found: topic_page.Tombstone | None) -> Tombstone | None:
    """Return the tombstone of a page in the form of responses; None for None."""
    if found is None:
        return None
    return Tombstone(
        gap_from=found.gap_from,
        gap_to=found.gap_to,
        reason=found.reason,
        missed_estimate=found.lost,
        earliest_seq=found.earliest_seq,
        head_seq=found.head_seq,
    )


async def delete(call: Call[NoQuery, DeleteBody]) -> DeleteAnswer:
    """Delete records permanently; readers see no tombstone."""
    body = call.body
    if body.before_seq is None and body.match is None:
        raise Invalid("the body selects no records", hint="send `before_seq`, `match`, or both")
    predicate = None if body.match is None else parse(body.match)
    before_seq = None if body.before_seq is None else min(body.before_seq, INT64_MAX)
    refuse_reserved(call.name, "emptied")
    require_possible_name(call.name)
    done = await delete_records(call.v0.log.submit, call.name, before_seq=before_seq, predicate=predicate)
    line = await call.v0.database.read(find_topic, call.name) if done.deleted else None
    if line is not None:
        call.v0.log.wakeups.touch(line.id)  # routers that wait for room can continue
    return DeleteAnswer(
        topic=call.name,
        deleted=done.deleted,
        earliest_seq=done.earliest_seq,
        head_seq=done.head_seq,
        count=done.count,
        bytes=done.bytes,
        performance=call.performance(),
    )
