"""Marks the ids of evicted events, those of a block or of many small ones in one statement: the only writer of their
digests.

A statement for each event would take three times as long, and give the interpreter lock away each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from eventd.log.core.blocks import BLOCK_RECORDS, Block
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import compares_bytes, execute, fetch, listed_in, number_in
from eventd.store.ids.ranges import Span
from federation.event import DIGEST_BYTES, content_digests, read_ids

_SPARSE: Final = 2
"""A range of ids is updated as a whole if it holds at most so many times the ids of the block."""
_TIME_DIGITS: Final = 20
"""Characters of a time in microseconds, with its sign."""
_NEVER: Final = -(1 << 62)
"""Stands for no expiry, where each event has one of `_TIME_DIGITS`."""


_NO_DIGEST: Final = bytes(DIGEST_BYTES)
"""Stands at positions that are not those of evicted events."""
_SPAN: Final = 2 * BLOCK_RECORDS
"""Positions of the events that are marked together."""

Expiries = Sequence[int | None] | None
"""Those of the events of a block; None: none expires."""


class GoneEvents(NamedTuple):
    """Evicted events of a topic at positions from `first` to `last`, between which may be others of other topics.

    `digests` and `expiries` have a place for each position, that of `digests` `_NO_DIGEST` where none of the events is;
    `expiries` is None if none of them expires.
    """

    first: int
    last: int
    ids: Sequence[str]
    digests: bytes
    expiries: Expiries

    @property
    def has_others(self) -> bool:
        """Return whether positions between the events are not theirs."""
        return len(self.ids) <= self.last - self.first

    def parts(self, spans: Iterable[Span]) -> Iterator[tuple[int, bytes, Expiries]]:
        """Yield the first position, the digests and the expiries of each of these spans of positions."""
        for first, last in spans:
            start, end = first - self.first, last + 1 - self.first
            times = None if self.expiries is None else self.expiries[start:end]
            yield first, self.digests[start * DIGEST_BYTES : end * DIGEST_BYTES], times


def adjoining(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield the blocks, those of a short range of positions together: events that came singly are a block each."""
    some: list[Block] = []
    for block in blocks:
        if some and block.last - some[0].position >= _SPAN:
            yield some
            some = []
        some.append(block)
    if some:
        yield some


def unbroken(blocks: Sequence[Block]) -> Iterator[Span]:
    """Yield the spans of positions of these blocks.

    Other positions between them may be those of a lost block, whose ids are not those of evicted events.
    """
    first, last = blocks[0].position, blocks[0].last
    for block in blocks[1:]:
        if block.position != last + 1:
            yield first, last
            first = block.position
        last = block.last
    yield first, last


def read_gone(blocks: Sequence[Block], expiries: Sequence[Expiries]) -> GoneEvents:
    """Return the events of adjoining blocks of a topic, with the expiries of each block."""
    lines = "\n".join([body for block in blocks for body in block.bodies()]).encode()
    digests = content_digests(lines.split(b"\n"))
    places = bytearray()
    times: list[int | None] = []
    at, taken = blocks[0].position, 0
    for block, each in zip(blocks, expiries, strict=True):
        others, end = block.position - at, taken + DIGEST_BYTES * block.records
        places += _NO_DIGEST * others + digests[taken:end]
        times += [*[None] * others, *(each or [None] * block.records)]
        at, taken = block.last + 1, end
    expires = any(each is not None for each in expiries)
    return GoneEvents(blocks[0].position, at - 1, read_ids(lines), bytes(places), times if expires else None)


def mark_gone(conn: Connection, topic_id: int, gone: GoneEvents, now: int) -> int:
    """Mark the ids of these events as evicted at `now`, if they are still those of these records; return how many are.

    Their digests and expiries are stored. The head must be locked.
    """
    first, last, ids, digests, expiries = gone
    expiry, times = "NULL", list[object]()
    if expiries is not None:
        expiry = f"nullif({number_in(conn, f'{_TIME_DIGITS} * (position - ?)', _TIME_DIGITS)}, {_NEVER})"
        texts = [f"{_NEVER if time is None else time:{_TIME_DIGITS}}" for time in expiries]
        times = ["".join(texts).encode(), first]
    which, values = _ids_between(conn, topic_id, ids) or (listed_in(conn, "event_id"), [_listed(ids)])
    digest = f"substr(?, CAST(1 + {DIGEST_BYTES} * (position - ?) AS INTEGER), {DIGEST_BYTES})"
    values += [first, last]
    which += " AND position BETWEEN ? AND ?"
    if gone.has_others:  # ids between the lowest and the highest may belong to records that are not evicted
        which += f" AND {digest} <> ?"
        values += [digests, first, _NO_DIGEST]
    return execute(
        conn,
        f"UPDATE event_ids SET gone_at = ?, expires_at = {expiry}, digest = {digest} WHERE topic_id = ? AND {which}",
        (now, *times, digests, first, topic_id, *values),
    )


def delete_gone(conn: Connection, topic_id: int, blocks: Sequence[Block]) -> int:
    """Delete the ids of the events of adjoining blocks, if they are still those of these records; return how many are.

    Only for deleted topics: eviction from a topic in use keeps the ids.
    """
    ids = read_ids("\n".join([body for block in blocks for body in block.bodies()]).encode())
    which = listed_in(conn, "event_id")
    return execute(
        conn,
        f"DELETE FROM event_ids WHERE topic_id = ? AND {which} AND position BETWEEN ? AND ?",
        (topic_id, _listed(ids), blocks[0].position, blocks[-1].last),
    )


def _ids_between(conn: Connection, topic_id: int, ids: Sequence[str]) -> tuple[str, list[object]] | None:
    """Return a condition for all ids from the lowest to the highest of these, if there are few others between them.

    So it is with ids that nodes make, which rise with time; those of clients need not. Such a range costs half as much
    as a list.
    """
    if not compares_bytes(conn):
        return None
    ends: list[object] = [min(ids), max(ids)]
    most = _SPARSE * len(ids)
    some = "SELECT 1 FROM event_ids WHERE topic_id = ? AND event_id BETWEEN ? AND ? LIMIT ?"
    found = fetch(conn, f"SELECT count(*) FROM ({some}) AS some", (topic_id, *ends, most + 1))[0][0]
    return ("event_id BETWEEN ? AND ?", ends) if found <= most else None


def _listed(ids: Sequence[str]) -> str:
    return msgspec.json.encode(ids).decode()
