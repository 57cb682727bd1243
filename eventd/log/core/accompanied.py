"""A unit of the writer, and a write that is attached to its operation: both are committed, or neither is."""

from __future__ import annotations

from typing import Generic, TypeVar

from eventd.log.core.commit import Transaction, Turn, Unit
from eventd.log.core.values import AppendResult, Drafts
from eventd.store.engine.attached import AttachedWrite

R = TypeVar("R")


class AccompaniedUnit(Generic[R]):
    """A unit that does what `unit` does, and also writes `attached`.

    An error of the attached write is an error of the unit.
    """

    def __init__(self, unit: Unit[R], attached: AttachedWrite) -> None:
        self._unit = unit
        self._attached = attached

    @property
    def topic_id(self) -> int | None:
        return self._unit.topic_id

    @property
    def weight(self) -> int:
        return self._unit.weight

    @property
    def cursor(self) -> str | None:
        return self._unit.cursor

    @property
    def durable(self) -> bool:
        return self._unit.durable

    @property
    def turn(self) -> Turn:
        return self._unit.turn

    @property
    def is_brief(self) -> bool:
        return False  # what is attached may take long

    def admit(self, tx: Transaction) -> Drafts:
        self._attached.begin(tx.conn)
        return self._unit.admit(tx)

    def finish(self, tx: Transaction, appended: AppendResult) -> R:
        result = self._unit.finish(tx, appended)
        self._attached.end(tx.conn)
        return result
