"""The effect of a run, written in the transaction that moves the subscription's cursor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eventd.dynamic.guard import Observation, refuse_captured
from eventd.log.core.commit import Transaction
from eventd.log.core.topic_row import require_in_use
from eventd.log.core.units import require_room
from eventd.log.core.values import AppendResult, Draft, Drafts, Outcome
from eventd.store.parts.part import NewPart
from eventd.store.parts.parts import NewerEvents, put_part, withdraw
from eventd.store.rows.runs import NewRun, RunEnd, begin_run, end_run

NAMED = 20
"""Maximum number of ids that a message lists."""


class StoredResult(NamedTuple):
    """The stored result of a run: the source and generation of its part (empty and None without a part), and a
    message if events were not stored.
    """

    source: str
    generation: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class RunEffect:
    """Everything that a run writes: a part, new events, the end of earlier parts' resources for some subjects, and the
    run's own end.

    `ended` are these subjects. `ending` returns the run's end for a time and a result. `ceiling` is the topic's limit
    in bytes; None: unlimited. `late` is the last position of a backfill's batch: results of events beyond it are kept;
    None: no backfill.
    """

    owner: str
    topic: int
    ceiling: int | None = None
    part: NewPart | None = None
    drafts: Sequence[Draft] = ()
    observations: Sequence[Observation] = ()
    ended: Sequence[str] = ()
    late: int | None = None
    run_id: int = 0
    ending: Callable[[int, StoredResult], RunEnd] | None = None

    @property
    def topic_id(self) -> int | None:
        return self.topic if self.drafts else None

    @property
    def weight(self) -> int:
        return len(self.drafts)

    def admit(self, tx: Transaction) -> Drafts:
        """Return the drafts.

        Raises `Conflict` for an event that reports a client which this node itself captures, `Full` for a topic
        without room, `NotFound` for a deleted one.
        """
        if not self.drafts:
            return Drafts()
        drafts = Drafts.of(self.drafts)
        require_in_use(tx.conn, tx.head, self.topic)
        refuse_captured(tx.conn, self.observations, tx.now)
        require_room(tx, self.topic, drafts, self.ceiling)
        return drafts

    def write(self, tx: Transaction, appended: AppendResult) -> None:
        later = None if self.late is None else NewerEvents(self.topic, self.late)
        source, generation = "", 0
        if self.part is not None:
            source, generation = self.part.source, put_part(tx.conn, self.part, tx.now, later=later)
        if self.ended:
            withdraw(tx.conn, self.owner, self.ended, tx.now, later=later)
        if self.ending is not None:
            problem = self._problem(appended)
            given = StoredResult(source, generation, problem) if generation else StoredResult("", None, problem)
            end_run(tx.conn, self.run_id, self.ending(tx.now, given))

    def _problem(self, appended: AppendResult) -> str:
        outcomes = zip(self.drafts, appended.outcomes, strict=True)
        taken = [draft.event_id for draft, outcome in outcomes if outcome is Outcome.CONFLICT]
        if not taken:
            return ""
        return f"events not stored, because others have the same ids: {', '.join(taken[:NAMED])}"


@dataclass(frozen=True, slots=True)
class LostRun:
    """Writes the row of a run that is lost: retention evicted its events before any run got them."""

    line: NewRun
    topic_id: int | None = field(default=None, init=False)
    weight: int = field(default=0, init=False)

    def admit(self, tx: Transaction) -> Drafts:
        return Drafts()

    def write(self, tx: Transaction, appended: AppendResult) -> None:
        begin_run(tx.conn, self.line)
