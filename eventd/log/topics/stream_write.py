"""Writes what clients of a stream publish to the topic behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventd.errors import EventdError
from eventd.log.core.commit import Transaction
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import NOTHING, AppendResult, Drafts
from eventd.log.topics.errors import RecordTooLarge, Throttled, TopicFull, TopicNotFound
from eventd.log.topics.write import Write, WriteResult, require_fit

_NO_ROOM = (RecordTooLarge, Throttled, TopicFull)


class PublishRecords(Write):
    """Append batches, which may be empty, to a topic that is a log.

    Result: `WriteResult`; if nothing is appended, its `first_seq` is the topic's next seq. `counts`: the number of
    records of each batch; without it, all records are one batch. If only some of several batches fit, these are
    appended in their order, and `refused` has the errors of the other batches by their index. Raises what `Write`
    raises, and `TopicNotFound` for a queue.
    """

    _next_seq = 0

    def __init__(self, topic: str, drafts: Drafts, *, counts: Sequence[int] = (), **options: Any) -> None:
        super().__init__(topic, drafts, **options)
        self.refused: dict[int, EventdError] = {}
        self._counts = counts
        self._kept = drafts

    def admit(self, tx: Transaction) -> Drafts:
        self.refused, self._kept = {}, self._drafts
        try:
            drafts = super().admit(tx)
        except _NO_ROOM:
            if self._line is None or len(self._counts) < 2:
                raise
            drafts = self._kept = self._admit_each(tx, self._line)
        if self._line is not None:
            self._next_seq = self._line.next_seq + tx.coming[self._line.id]
        return drafts

    def _admit_each(self, tx: Transaction, line: TopicRow) -> Drafts:
        parts, begin, given = [], 0, self._drafts
        for index, count in enumerate(self._counts):
            end = begin + count
            part = Drafts(
                paths=given.paths[begin:end],
                bodies=given.bodies[begin:end],
                types=given.types,
                sources=given.sources,
                sizes=given.sizes[begin:end],
            )
            try:
                require_fit(tx, line, part, self._max_bytes)
            except _NO_ROOM as error:
                self.refused[index] = error
            else:
                parts.append(part)
            begin = end
        return Drafts.joined(parts) if parts else NOTHING

    def _find(self, tx: Transaction) -> TopicRow:
        self._line = None  # of an earlier attempt
        line = super()._find(tx)
        if line.is_queue:
            raise TopicNotFound(line.name)
        return line

    def finish(self, tx: Transaction, appended: AppendResult) -> WriteResult:
        line = self._line
        if self._kept or line is None or self._repeated is not None:
            return super().finish(tx, appended)
        self._written = WriteResult(
            line.id, self._next_seq, self._next_seq - 1, self._created, False, line.durability, tx.spent
        )
        return self._written
