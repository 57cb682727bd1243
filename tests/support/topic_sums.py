"""Invariants of the stored topics, recomputed from the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from eventd.log.core.blocks import Block, names, weight_of
from eventd.log.core.head import read_head
from eventd.log.core.records import read_body, read_provenance
from eventd.log.core.topic_config import read_config
from eventd.log.topics.limits import due_at
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.event import read_outlines


class BlockRecord(NamedTuple):
    """A record of a block; `body` is empty if the record was deleted."""

    position: int
    seq: int
    path: str
    body: str


class TopicRow(NamedTuple):
    """The row of a topic, as far as it can be recomputed."""

    id: int
    name: str
    form: str
    next_seq: int
    bytes: int
    ids: int
    evicted_seq: int
    evicted_position: int
    deleted: int
    written_at: int | None
    due_at: int | None
    config: str


def check_topics(conn: Connection) -> None:
    """Recompute the row of every topic, and all that belongs to it; raises AssertionError where they differ."""
    last = read_head(conn).last
    _check_positions(conn, last)
    found = [TopicRow(*row) for row in fetch(conn, f"SELECT {', '.join(TopicRow._fields)} FROM topics ORDER BY id")]
    for books in found:
        _check_topic(conn, books)
    in_use = sum(books.form == "record" and not books.name.startswith("-") for books in found)
    assert fetch(conn, "SELECT topics FROM log_heads")[0][0] == in_use, "the head counts other topics than there are"
    stored = sum(books.bytes for books in found if books.form == "record")
    assert fetch(conn, "SELECT record_bytes FROM log_heads")[0][0] == stored, "the head counts other bytes"
    _check_routers(conn, {books.id: books for books in found}, last)


def _check_positions(conn: Connection, last: int) -> None:
    places = fetch(conn, "SELECT position, records FROM blocks ORDER BY position")
    for (at, records), (behind, _) in pairwise(places):
        assert at + records <= behind, f"two records are at position {behind}"
    assert not places or places[-1][0] + places[-1][1] - 1 <= last, "there is a record beyond the head"


def _check_topic(conn: Connection, books: TopicRow) -> None:
    name, floor, head = books.name, books.evicted_seq, books.next_seq - 1
    columns = ", ".join(Block._fields)
    rows = fetch(conn, f"SELECT {columns} FROM blocks WHERE topic_id = ? ORDER BY seq", (books.id,))
    stored = [*map(Block._make, rows)]
    lines = [line for block in stored for line in _lines(name, block, of_records=books.form == "record")]
    assert all(one.seq < other.seq and one.position < other.position for one, other in pairwise(lines)), name
    assert all(one.recorded_at <= other.recorded_at for one, other in pairwise(stored)) or books.form == "event", name
    assert not lines or (floor < lines[0].seq and lines[-1].seq <= head), f"{name}: a record is out of bounds"
    assert not lines or books.evicted_position < lines[0].position, name
    done = _check_queue(conn, books, lines)
    live = {line.seq: line for line in lines if line.body and line.seq not in done}
    facts = (len(live), sum(weight_of(line.body) for line in live.values()))
    assert (head - floor - books.deleted, books.bytes) == facts, f"{name}: other records, or bytes, than it says"
    if books.form == "record":
        assert floor + 1 == min(live, default=books.next_seq), f"{name}: the floor is not as high as it can be"
        assert not stored or (books.written_at is not None and stored[-1].recorded_at <= books.written_at), name
    _check_due(books, stored, live)
    _check_ids(conn, books, [line for line in lines if line.body])
    _check_losses(conn, books, live)
    keys = fetch(conn, "SELECT first_seq, last_seq FROM write_keys WHERE topic_id = ?", (books.id,))
    assert all(1 <= first <= upto <= head for first, upto in keys), f"{name}: a key stands for what was never written"


def _lines(name: str, block: Block, *, of_records: bool) -> Sequence[BlockRecord]:
    facts = [*block.entries()]
    assert block.text.count("\n") == len(facts) == block.records, f"{name}: a block has other lines than it says"
    assert block.bytes == sum(weight_of(body) for _, body in facts) > 0, f"{name}: a block has other bytes"
    shift = block.seq - block.position
    found = [BlockRecord(at, at + shift, path, body) for at, (path, body) in enumerate(facts, block.position)]
    if of_records:
        kept = [line for line in found if line.body]
        assert all((line.path == "") == bool(block.own) for line in kept), f"{name}: own or not"
        bodies = [read_body(line.body) for line in kept]
        for told, facts in ((block.types, [b.tag for b in bodies]), (block.sources, [b.node for b in bodies])):
            known = names(told)
            # a record without a tag is read with the empty tag, or without one
            assert known is None or {fact for fact in facts if fact} <= known, f"{name}: a block hides what it holds"
    return found


def _check_due(books: TopicRow, stored: Sequence[Block], live: dict[int, BlockRecord]) -> None:
    ttl_ms = read_config(books.config).ttl_ms if books.config else 0
    if not ttl_ms or not live or books.name.startswith("-"):
        return
    oldest = next(block for block in stored if block.seq + block.records > min(live))
    assert books.due_at is not None, f"{books.name}: nothing ever outlives its time to live"
    assert books.due_at <= due_at(oldest.recorded_at, ttl_ms), f"{books.name}: the oldest lives for too long"


def _check_ids(conn: Connection, books: TopicRow, stored: Sequence[BlockRecord]) -> None:
    known = dict(
        fetch(conn, "SELECT event_id, position FROM event_ids WHERE topic_id = ? AND gone_at IS NULL", (books.id,))
    )
    assert books.ids == len(known), f"{books.name}: other ids than it says"
    if books.form == "record":
        copies = {read_provenance(line.path).id: line.position for line in stored if " " in line.path}
    else:
        outlines = read_outlines([line.body for line in stored])
        copies = {outline.id: line.position for outline, line in zip(outlines, stored, strict=True)}
    assert known == copies, f"{books.name}: an id stands for what is not there, or a record has none"


def _check_losses(conn: Connection, books: TopicRow, live: dict[int, BlockRecord]) -> None:
    sql = "SELECT first_seq, last_seq, reason FROM topic_losses WHERE topic_id = ? ORDER BY first_seq"
    lost = fetch(conn, sql, (books.id,))
    for (_, upto, reason), (first, _, other) in pairwise(lost):
        apart = upto + 1 + (reason == other) <= first
        assert apart, f"{books.name}: losses overlap, or are not joined"
    for first, upto, _ in lost:
        assert 1 <= first <= upto < books.next_seq, f"{books.name}: it has lost what it never had"
        assert not [seq for seq in live if first <= seq <= upto], f"{books.name}: a stored record is reported as lost"


def _check_queue(conn: Connection, books: TopicRow, lines: Sequence[BlockRecord]) -> frozenset[int]:
    """Return the seqs of jobs that are done and still stored."""
    leases = fetch(conn, "SELECT seq, node, free_at, size FROM leases WHERE topic_id = ?", (books.id,))
    stored = {line.seq: weight_of(line.body) for line in lines if line.body}
    assert {seq: size for seq, _, _, size in leases}.items() <= stored.items(), f"{books.name}: a lease of nothing"
    counted: list[Any] = fetch(conn, "SELECT claimed_seq, held, delayed FROM queues WHERE topic_id = ?", (books.id,))
    done = frozenset(seq for seq, _, free_at, _ in leases if free_at is None)
    if not counted:
        assert not leases, f"{books.name}: leases without a queue"
        return done
    claimed, *numbers = counted[0]
    held = sum(bool(node) for _, node, free_at, _ in leases if free_at)
    waiting = sum(not node for _, node, free_at, _ in leases if free_at)
    assert numbers == [held, waiting], f"{books.name}: other jobs are handed out than it says"
    handed_out = {seq for seq in stored if seq <= claimed}
    assert handed_out == {seq for seq, *_ in leases}, f"{books.name}: a job would never be handed out again"
    return done


def _check_routers(conn: Connection, topics: dict[int, TopicRow], last: int) -> None:
    sql = (
        "SELECT r.name, source_id, dest_id, seq, position FROM routers r JOIN cursors c ON c.name = 'router:' || r.name"
    )
    found = fetch(conn, sql)
    assert len(found) == fetch(conn, "SELECT count(*) FROM routers")[0][0], "a router has no cursor"
    for name, source_id, dest_id, seq, position in found:
        assert {source_id, dest_id} <= topics.keys(), f"{name} leads from nowhere, or to nowhere"
        retired = {topics[end].name for end in (source_id, dest_id) if topics[end].name.startswith("-")}
        assert not retired, f"{name} outlived an end of it"
        assert seq < topics[source_id].next_seq, f"{name} is ahead of its source"
        assert position <= last, f"{name} is ahead of the log"
