"""What a topic's own limits take from it: its oldest records, over a cap or beyond their time to live.

All of this happens in an open transaction that holds the head. Only a prefix goes; what went is remembered as lost. A
lot goes in several steps: the topic then is due at once, and the rest goes in the background.
"""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa


class Standing(NamedTuple):
    """What a topic holds at some time: live records, bytes of their data and meta, and the seq of the first, if any.

    In an empty topic `earliest_seq` is that of the next record.
    """

    count: int
    bytes: int
    earliest_seq: int


def apply_ttl(conn: sa.Connection, topic_id: int, now: int) -> None:
    """Remove what has outlived its time to live, as far as one step goes. Before anything is written or counted."""
    raise NotImplementedError


def apply_caps(conn: sa.Connection, topic_id: int, now: int) -> None:
    """Remove what is over the caps, the oldest first, as far as one step goes. After something was written.

    A topic that refuses what is over its caps never loses a record to them.
    """
    raise NotImplementedError


def apply_limits(conn: sa.Connection, topic_id: int, now: int) -> None:
    """Both, and when to look again: after a topic was set anew."""
    raise NotImplementedError


def due_at(recorded_at: int, ttl_ms: int) -> int:
    """The first time at which a record has outlived its time to live. Microseconds.

    A write sets `topics.due_at` to that of its records where it is not set.
    """
    return (recorded_at // 1000 + ttl_ms + 1) * 1000


def read_standing(conn: sa.Connection, topic_id: int, now: int) -> Standing:
    """What the topic holds, without what has outlived its time to live and is still there."""
    raise NotImplementedError


def open_hole(conn: sa.Connection, topic_id: int, records: int) -> None:
    """Give the next seqs to records that will never come, because the source of a copy has lost them."""
    raise NotImplementedError
