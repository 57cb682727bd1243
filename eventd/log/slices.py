"""A page of a topic by its seqs, as readers of topics get it: records as JSON texts, and what they missed.

What has outlived its time to live is left out, and told as lost, even where it has not been removed yet. Deleted
records and those of the reader's own nodes are passed over silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from eventd.log.records import View
from eventd.log.values import Head

ALL_BUT_TAGS = View()


@dataclass(frozen=True, slots=True)
class Ask:
    """What a reader wants: at most `limit` records beyond the seq `from_seq`, about `max_bytes` of data and meta.

    `topic` is its name or its id; `now` in microseconds. `nodes`: whose records the reader does not want back. `epoch`:
    which history its `from_seq` belongs to, where it knows. `apart`: the page ends before records that were lost,
    unless it begins with them; otherwise records from before and after them may be on one page.
    """

    topic: str | int
    now: int
    from_seq: int = 0
    limit: int = 256
    max_bytes: int = 1 << 20
    nodes: frozenset[str] = frozenset()
    view: View = ALL_BUT_TAGS
    epoch: str = ""
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Tombstone:
    """`missed` records of the seqs `gap_from` to `gap_to` were lost; reading goes on at `earliest_seq`.

    `reason`: cap, ttl, source_trim, mixed, or recreated, where the reader's seqs are of another topic or history.
    """

    gap_from: int
    gap_to: int
    reason: str
    missed: int
    earliest_seq: int
    head_seq: int


@dataclass(frozen=True, slots=True)
class Slice:
    """`records` are JSON texts, `seqs` their seqs. All up to `next_from_seq` was looked at, `scanned` seqs in all.

    `tombstone` tells of what is missing between `from_seq` and `next_from_seq`. `epoch` names the history these seqs
    belong to. `position`: the last one that this page has seen, to wait for what comes beyond.
    """

    topic_id: int
    name: str
    epoch: str
    records: Sequence[str]
    seqs: Sequence[int]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    scanned: int
    head: Head

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        """Seqs that wait beyond."""
        return self.head_seq - self.next_from_seq


def read_slice(conn: sa.Connection, ask: Ask) -> Slice:
    """The next page of a topic. Raises `TopicNotFound`."""
    raise NotImplementedError
