"""What a topic's own limits take from it: its oldest records, over a cap or beyond their time to live.

All of this happens in an open transaction that holds the head. Only a prefix goes; what went is remembered as lost. A
lot goes in several steps: the topic then is due at once, and the rest goes in the background.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import sqlalchemy as sa


class Bounds(Protocol):
    """The part of a topic's configuration that limits what it holds; 0: no limit."""

    @property
    def ttl_ms(self) -> int: ...
    @property
    def cap_records(self) -> int: ...
    @property
    def cap_bytes(self) -> int: ...
    @property
    def discard(self) -> str: ...
    @property
    def type(self) -> str: ...


class Bounded(Protocol):
    """A topic that holds records."""

    @property
    def id(self) -> int: ...
    @property
    def config(self) -> Bounds: ...


class Standing(NamedTuple):
    """What a topic holds at some time: live records, bytes of their data and meta, and the seq of the first, if any.

    In an empty topic `earliest_seq` is that of the next record.
    """

    count: int
    bytes: int
    earliest_seq: int


def apply_ttl(conn: sa.Connection, line: Bounded, now: int) -> None:
    """Remove what has outlived its time to live, as far as one step goes. Before anything is written or counted."""
    raise NotImplementedError


def apply_caps(conn: sa.Connection, line: Bounded, now: int) -> None:
    """Remove what is over the caps, the oldest first, as far as one step goes. After something was written.

    A topic that refuses what is over its caps never loses a record to them.
    """
    raise NotImplementedError


def apply_limits(conn: sa.Connection, line: Bounded, now: int) -> None:
    """Both, and when to look again: after a topic was configured anew."""
    raise NotImplementedError


def due_at(recorded_at: int, ttl_ms: int) -> int:
    """The first time at which a record has outlived its time to live. Microseconds.

    A write sets `topics.due_at` to that of its records where it is not set.
    """
    return (recorded_at // 1000 + ttl_ms + 1) * 1000


def read_standing(conn: sa.Connection, line: Bounded, now: int) -> Standing:
    """What the topic holds, without what has outlived its time to live and is still there."""
    raise NotImplementedError


def open_hole(conn: sa.Connection, topic_id: int, records: int) -> None:
    """Give the next seqs to records that will never come, because the source of a copy has lost them."""
    raise NotImplementedError
