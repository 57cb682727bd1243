"""The common part of all pages of the log: the range of positions in one snapshot, and limits on the work per page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.blocks import Block
from eventd.log.core.head import read_head
from eventd.log.core.values import Gap, Head
from eventd.store.engine.database import fetch

LOOKED_AT = 5000
"""Records that are decoded for one page at most. A reader with few matches may get an empty page, and continues."""
PASSED_OVER = 20
"""Records whose decoding costs as much as reading a block that is then skipped."""
UNREAD = 10
"""Lines that are searched in the time in which one is decoded."""


def cost_of(block: Block) -> int:
    """Return the cost of decoding a block, in records: large records must not delay other readers for longer."""
    return max(block.records, block.bytes >> 10)


class PageRange(NamedTuple):
    """The range of positions of a page, in one snapshot.

    It ends at `end`; `gaps` are removed records at its beginning. `lost` is the last position up to which a record that
    entered the log at this node was removed before all peers had it.
    """

    head: Head
    end: int
    gaps: Sequence[Gap]
    lost: int


def read_page_range(conn: sa.Connection, topic_id: int, after: int, until: int | None) -> PageRange:
    """Return the range of a topic after `after`, up to `until`."""
    head = read_head(conn)
    evicted, evicted_seq, lost = fetch(
        conn, "SELECT evicted_position, evicted_seq, lost_position FROM topics WHERE id = ?", (topic_id,)
    )[0]
    gaps = [Gap(topic_id, after, evicted, evicted_seq)] if evicted > after else []
    end = head.last if until is None else min(until, head.last)
    return PageRange(head, max(end, after), gaps, lost)
