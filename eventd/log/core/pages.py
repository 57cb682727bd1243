"""Pages of the log: records in position order, gaps first, in one snapshot. And lists of what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.blocks import Block
from eventd.log.core.head import read_head
from eventd.log.core.values import Gap, Head
from eventd.store.engine.database import fetch

LOOKED_AT = 5000
"""Records that are taken apart for one page at most. Whoever wants few of them gets an empty page and comes again."""
PASSED_OVER = 20
"""Records whose taking apart costs as much as reading a block that is then passed over."""
UNREAD = 10
"""Lines that are only looked at for one that is decoded, in the same time."""


def cost_of(block: Block) -> int:
    """As how many records taking a block apart counts: who has large ones must not hold up the others for longer."""
    return max(block.records, block.bytes >> 10)


class PageRange(NamedTuple):
    """The range of positions that a page is read from, in one snapshot.

    It ends at `end`; `gaps` are removed records at its beginning. `lost` is the last position up to which a record that
    entered here was removed before all peers had it.
    """

    head: Head
    end: int
    gaps: Sequence[Gap]
    lost: int


def read_page_range(conn: sa.Connection, topic_id: int, after: int, until: int | None) -> PageRange:
    """The stretch of a topic beyond `after`, as far as `until`."""
    head = read_head(conn)
    evicted, evicted_seq, lost = fetch(
        conn, "SELECT evicted_position, evicted_seq, lost_position FROM topics WHERE id = ?", (topic_id,)
    )[0]
    gaps = [Gap(topic_id, after, evicted, evicted_seq)] if evicted > after else []
    end = head.last if until is None else min(until, head.last)
    return PageRange(head, max(end, after), gaps, lost)
