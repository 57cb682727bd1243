"""What a topic lost although nobody asked for it: exact ranges of seqs, each with its reason.

What was deleted by request is never in here, so a reader is told of what it missed, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from eventd.store.database import bulk_insert, execute, fetch
from eventd.store.schema import topic_losses

CAP, TTL, SOURCE_TRIM, MIXED = "cap", "ttl", "source_trim", "mixed"
"""Why records were lost: over a cap, too old, never copied because their source lost them; several of these."""

MOST_RANGES = 1000
"""Ranges that a topic remembers apart. Of more than these, the oldest are joined to one that says a little too much."""


class Loss(NamedTuple):
    """The records `first` to `last`, all of which were lost. Seqs."""

    first: int
    last: int
    reason: str

    @property
    def records(self) -> int:
        return self.last - self.first + 1


def note_losses(conn: sa.Connection, topic_id: int, lost: Sequence[Loss]) -> None:
    """Remember what a topic lost, in order, beyond all that it lost before. The head must be locked.

    Neighbours that have the same reason become one range.
    """
    raise NotImplementedError


def read_losses(conn: sa.Connection, topic_id: int, after: int, upto: int) -> list[Loss]:
    """What a topic lost in `(after, upto]`, in order, the ranges at its ends cut to it."""
    raise NotImplementedError


def reason_of(lost: Iterable[Loss]) -> str:
    """The one reason of some losses; `mixed` where there are several."""
    reasons = {loss.reason for loss in lost}
    return reasons.pop() if len(reasons) == 1 else MIXED
