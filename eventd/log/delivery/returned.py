"""Stores events of this node that a peer returned, each with its mark, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from eventd.log.core.commit import Transaction
from eventd.log.core.units import Publish
from eventd.log.core.values import AppendResult, Draft, Outcome
from eventd.store.rows.returned_events import ReturnedMark, mark_returned


class StoreReturned(Publish):
    """A unit of the writer that appends returned events as events that enter the log here. Result: `AppendResult`.

    They get new positions and seqs in the present epoch. `marks` has one mark for each draft; only the marks of events
    that this unit stores are kept. An event that is in the log already by another way was not returned by the peer.
    """

    def __init__(
        self, topic_id: int, drafts: Sequence[Draft], marks: Sequence[ReturnedMark], *, ceiling: int | None
    ) -> None:
        super().__init__(topic_id, drafts, ceiling=ceiling)
        self._ids = [draft.event_id for draft in drafts]
        self._marks = marks

    def finish(self, tx: Transaction, appended: AppendResult) -> AppendResult:
        rows = zip(self._ids, self._marks, appended.outcomes, strict=True)
        kept = [(event_id, mark) for event_id, mark, outcome in rows if outcome is Outcome.NEW]
        if kept:
            mark_returned(tx.conn, self.topic_id, kept)
        return appended
