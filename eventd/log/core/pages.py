"""The common part of all pages of the log: the range of positions in one snapshot, and limits on the work per page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventd.log.core.blocks import Block
from eventd.log.core.head import read_head
from eventd.log.core.values import Gap, Head
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch

LOOKED_AT = 5000
"""Maximum number of records decoded for one page. A reader with few matches may get an empty page, and continues."""
PASSED_OVER = 20
"""The cost of reading a block and skipping it, as a number of decoded records."""
UNREAD = 10
"""How many lines can be searched in the time that decoding one of them takes."""


def cost_of(block: Block) -> int:
    """Return the cost of decoding a block: the number of its records, or the KiB of their bodies if that is more."""
    return max(block.records, block.bytes >> 10)


class PageRange(NamedTuple):
    """The range of positions of a page, in one snapshot.

    It ends at `end`; `gaps` are removed records at its beginning. The last of these that was unexpired, had entered the
    log at this node and was evicted before all peers had it is at `lost_position`; 0: there is none, or the page is
    from memory.
    """

    head: Head
    end: int
    gaps: Sequence[Gap]
    lost_position: int


def read_page_range(conn: Connection, topic_id: int, after: int, until: int | None) -> PageRange:
    """Return the range `(after, until]` of a topic; it ends at the head if that is earlier, or if `until` is None."""
    head = read_head(conn)
    evicted, evicted_seq, lost_position = fetch(
        conn, "SELECT evicted_position, evicted_seq, lost_position FROM topics WHERE id = ?", (topic_id,)
    )[0]
    gaps = [Gap(topic_id, after, evicted, evicted_seq)] if evicted > after else []
    end = head.last if until is None else min(until, head.last)
    return PageRange(head, max(end, after), gaps, lost_position if lost_position > after else 0)
