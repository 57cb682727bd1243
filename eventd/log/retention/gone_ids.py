"""Marks the ids of evicted events, those of a block in one statement: the only writer of their digests.

A statement for each event would take three times as long, and give the interpreter lock away each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import compares_bytes, execute, fetch, listed_in, number_in
from federation.event import DIGEST_BYTES

_SPARSE: Final = 2
"""A range of ids is updated as a whole if it holds at most so many times the ids of the block."""
_TIME_DIGITS: Final = 20
"""Characters of a time in microseconds, with its sign."""
_NEVER: Final = -(1 << 62)
"""Stands for no expiry, where each event has one of `_TIME_DIGITS`."""


class GoneEvents(NamedTuple):
    """Evicted events at consecutive positions from `first` on.

    `digests` has those of their contents, one after the other. `expiries` is None if none expires.
    """

    first: int
    ids: Sequence[str]
    digests: bytes
    expiries: Sequence[int | None] | None


def mark_gone(conn: Connection, topic_id: int, gone: GoneEvents, now: int) -> int:
    """Mark the ids of these events as evicted at `now`, if they are still those of these records; return how many are.

    Their digests and expiries are stored. The head must be locked.
    """
    first, ids, digests, expiries = gone
    expiry, times = "NULL", list[object]()
    if expiries is not None:
        expiry = f"nullif({number_in(conn, f'{_TIME_DIGITS} * (position - ?)', _TIME_DIGITS)}, {_NEVER})"
        texts = [f"{_NEVER if time is None else time:{_TIME_DIGITS}}" for time in expiries]
        times = ["".join(texts).encode(), first]
    which, values = _ids_between(conn, topic_id, ids) or (listed_in(conn, "event_id"), [_listed(ids)])
    return execute(
        conn,
        f"UPDATE event_ids SET gone_at = ?, expires_at = {expiry},"
        f" digest = substr(?, CAST(1 + {DIGEST_BYTES} * (position - ?) AS INTEGER), {DIGEST_BYTES})"
        f" WHERE topic_id = ? AND {which} AND position BETWEEN ? AND ?",
        (now, *times, digests, first, topic_id, *values, first, first + len(ids) - 1),
    )


def delete_gone(conn: Connection, topic_id: int, first: int, ids: Sequence[str]) -> int:
    """Delete the ids of records at consecutive positions from `first` on, if they are still theirs; return how many
    are."""
    which = listed_in(conn, "event_id")
    return execute(
        conn,
        f"DELETE FROM event_ids WHERE topic_id = ? AND {which} AND position BETWEEN ? AND ?",
        (topic_id, _listed(ids), first, first + len(ids) - 1),
    )


def _ids_between(conn: Connection, topic_id: int, ids: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return a condition for all ids from the lowest to the highest of these, if there are few others between them.

    So it is with ids that nodes make, which rise with time; those of clients need not. Such a range costs half as much
    as a list.
    """
    if not compares_bytes(conn):
        return None
    ends, most = [min(ids), max(ids)], _SPARSE * len(ids)
    some = "SELECT 1 FROM event_ids WHERE topic_id = ? AND event_id BETWEEN ? AND ? LIMIT ?"
    found = fetch(conn, f"SELECT count(*) FROM ({some}) AS some", (topic_id, *ends, most + 1))[0][0]
    return ("event_id BETWEEN ? AND ?", ends) if found <= most else None


def _listed(ids: Sequence[str]) -> str:
    return msgspec.json.encode(ids).decode()
