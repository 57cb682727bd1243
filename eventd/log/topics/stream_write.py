"""Writes what clients of a stream publish to the topic behind it."""

from __future__ import annotations

from eventd.log.core.commit import Transaction
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import AppendResult, Drafts
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.write import Write, WriteResult


class PublishRecords(Write):
    """Append a batch, which may be empty, to a topic that is a log. Result: `WriteResult`; its `first_seq` is the next
    one, if the batch is empty.

    Raises what `Write` raises, and `TopicNotFound` for a queue.
    """

    _next_seq = 0

    def admit(self, tx: Transaction) -> Drafts:
        drafts = super().admit(tx)
        if self._line is not None:
            self._next_seq = self._line.next_seq + tx.coming[self._line.id]
        return drafts

    def _find(self, tx: Transaction) -> TopicRow:
        line = super()._find(tx)
        if line.is_queue:
            raise TopicNotFound(line.name)
        return line

    def finish(self, tx: Transaction, appended: AppendResult) -> WriteResult:
        line = self._line
        if self._drafts or line is None or self._repeated is not None:
            return super().finish(tx, appended)
        self._written = WriteResult(
            line.id, self._next_seq, self._next_seq - 1, self._created, False, line.durability, tx.spent
        )
        return self._written
