"""Which positions have their id in a run, and what is remembered of those whose record retention has removed.

An entry of a run is an id and a position. It counts only while its position is in a row of `id_ranges` or `gone_ids`:
runs are never changed, so an entry ends with its position there.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, execute_many, fetch, insert_row
from federation.event import DIGEST_BYTES

Span = tuple[int, int]
"""The first and the last of consecutive positions."""
_NEVER: Final = -(1 << 62)
"""Stands for no expiry, where some events of a block have one."""


class GoneId(NamedTuple):
    """What is remembered of a removed record: when it was removed, its expiry, and the digest of its content."""

    gone_at: int
    expires_at: int | None
    digest: bytes


def add_span(conn: Connection, topic_id: int, first: int, last: int) -> None:
    """Note that the ids of the records at these positions, the last ones of the log, are in a run."""
    sql = "SELECT first, last FROM id_ranges WHERE topic_id = ? ORDER BY first DESC LIMIT 1"
    for start, end in fetch(conn, sql, (topic_id,)):
        if end == first - 1:
            execute(conn, "UPDATE id_ranges SET last = ? WHERE topic_id = ? AND first = ?", (last, topic_id, start))
            return
    insert_row(conn, "id_ranges", {"topic_id": topic_id, "first": first, "last": last})


def spans_of(positions: Sequence[int]) -> Iterator[Span]:
    """Yield the spans of consecutive positions among some in ascending order."""
    if not positions:
        return
    first = last = positions[0]
    if positions[-1] - first == len(positions) - 1:
        yield first, positions[-1]
        return
    for each in positions[1:]:
        if each != last + 1:
            yield first, last
            first = each
        last = each
    yield first, last


def spans_within(conn: Connection, topic_id: int, first: int, last: int) -> list[Span]:
    """Return the parts of a span whose positions have a record and their id in a run, in order."""
    sql = "SELECT first, last FROM id_ranges WHERE topic_id = ? AND first <= ? ORDER BY first DESC"
    found: list[Span] = []
    for start, end in _down_to(conn, sql, topic_id, first, last):
        found.append((max(first, start), min(last, end)))
    return found[::-1]


def count_spans(conn: Connection, topic_id: int, spans: Iterable[Span]) -> int:
    """Return how many positions of the spans have a record, as far as `id_ranges` knows, and their id in a run."""
    within = (spans_within(conn, topic_id, first, last) for first, last in spans)
    return sum(last - first + 1 for some in within for first, last in some)


def _down_to(conn: Connection, sql: str, topic_id: int, first: int, last: int) -> Iterator[Span]:
    """Yield the spans that overlap one, the last first. Spans do not overlap each other."""
    at = last
    while True:
        rows = fetch(conn, f"{sql} LIMIT 64", (topic_id, at))
        for start, end in rows:
            if end < first:
                return
            yield start, end
        if len(rows) < 64:
            return
        at = rows[-1][0] - 1


def take_spans(conn: Connection, topic_id: int, first: int, last: int) -> list[Span]:
    """Return `spans_within`, and end the entries of these positions."""
    sql = "SELECT first, last FROM id_ranges WHERE topic_id = ? AND first <= ? ORDER BY first DESC"
    rows = [*_down_to(conn, sql, topic_id, first, last)]
    left: list[tuple[int, int, int]] = []
    for start, end in rows:
        if start < first:
            left.append((topic_id, start, first - 1))
        if end > last:
            left.append((topic_id, last + 1, end))
    execute_many(
        conn, "DELETE FROM id_ranges WHERE topic_id = ? AND first = ?", [(topic_id, start) for start, _ in rows]
    )
    execute_many(conn, "INSERT INTO id_ranges (topic_id, first, last) VALUES (?, ?, ?)", left)
    return [(max(first, start), min(last, end)) for start, end in rows[::-1]]


def is_stored(conn: Connection, topic_id: int, position: int) -> bool:
    """Return whether a position has a record and its id in a run."""
    sql = "SELECT last FROM id_ranges WHERE topic_id = ? AND first <= ? ORDER BY first DESC LIMIT 1"
    return any(last >= position for (last,) in fetch(conn, sql, (topic_id, position)))


def end_span(conn: Connection, topic_id: int, first: int, last: int) -> int:
    """End the entries of stored records at these positions; return their number."""
    return sum(end - start + 1 for start, end in take_spans(conn, topic_id, first, last))


def note_gone(
    conn: Connection, topic_id: int, first: int, digests: bytes, expiries: Sequence[int | None] | None, now: int
) -> int:
    """Remember removed records at consecutive positions from `first` on, as far as their ids are in runs.

    Returns how many are; the ids of the others are rows of `event_ids`, if they are known. `digests` are those of the
    contents, one after the other; `expiries` is None if none expires.
    """
    spans = take_spans(conn, topic_id, first, first + len(digests) // DIGEST_BYTES - 1)
    times = None if expiries is None else array("q", [_NEVER if time is None else time for time in expiries])
    for start, end in spans:
        _insert_gone(conn, topic_id, start, end, now, digests, None if times is None else _bytes(times), first)
    return sum(end - start + 1 for start, end in spans)


def _insert_gone(
    conn: Connection, topic_id: int, start: int, end: int, now: int, digests: bytes, times: bytes | None, first: int
) -> None:
    """Insert the part from `start` to `end` of what is remembered from `first` on."""
    row = {
        "topic_id": topic_id,
        "first": start,
        "last": end,
        "gone_at": now,
        "digests": digests[(start - first) * DIGEST_BYTES : (end - first + 1) * DIGEST_BYTES],
        "expiries": None if times is None else times[(start - first) * 8 : (end - first + 1) * 8],
    }
    insert_row(conn, "gone_ids", row)


def _bytes(times: array[int]) -> bytes:
    if sys.byteorder == "big":
        times.byteswap()
    return times.tobytes()


_GONE_AT = (
    "SELECT first, last, gone_at, digests, expiries FROM gone_ids"
    " WHERE topic_id = ? AND first <= ? ORDER BY first DESC LIMIT 1"
)


def find_gone(conn: Connection, topic_id: int, position: int) -> GoneId | None:
    """Return what is remembered of a removed record whose id is in a run; None for any other position."""
    for first, last, gone_at, digests, expiries in fetch(conn, _GONE_AT, (topic_id, position)):
        if last >= position:
            at = position - first
            time = _NEVER if expiries is None else int.from_bytes(expiries[at * 8 : at * 8 + 8], "little", signed=True)
            digest = bytes(digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES])
            return GoneId(gone_at, None if time == _NEVER else time, digest)
    return None


def end_entry(conn: Connection, topic_id: int, position: int) -> None:
    """End the entry of a position, whether its record is stored or removed."""
    if take_spans(conn, topic_id, position, position):
        return
    for first, last, gone_at, digests, expiries in fetch(conn, _GONE_AT, (topic_id, position)):
        if last >= position:
            execute(conn, "DELETE FROM gone_ids WHERE topic_id = ? AND first = ?", (topic_id, first))
            for start, end in ((first, position - 1), (position + 1, last)):
                if start <= end:
                    _insert_gone(conn, topic_id, start, end, gone_at, digests, expiries, first)


def lowest_stored(conn: Connection, topic_id: int) -> int | None:
    """Return the first position that has a record and its id in a run; None: there is none."""
    return _lowest(conn, "id_ranges", topic_id)


def lowest_known(conn: Connection, topic_id: int) -> int | None:
    """Return the first position whose entry counts; None if none does."""
    firsts = (_lowest(conn, table, topic_id) for table in ("id_ranges", "gone_ids"))
    return min((first for first in firsts if first is not None), default=None)


def _lowest(conn: Connection, table: str, topic_id: int) -> int | None:
    [(first,)] = fetch(conn, f"SELECT min(first) FROM {table} WHERE topic_id = ?", (topic_id,))
    return None if first is None else int(first)
