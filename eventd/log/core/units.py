"""The most frequent units of the writer: appending events, and the steps of consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from eventd.errors import Conflict, Full
from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.topic_row import read_topic_bytes, require_in_use
from eventd.log.core.values import AppendResult, Draft, Drafts
from eventd.log.cursors.steps import Postponement, Step, apply_step, check_fence, postpone
from eventd.store.engine.database import Connection

Check = Callable[[Connection, int], None]
"""Raises an `EventdError` to refuse a unit; gets the open transaction and the time in microseconds."""


class StaleDeclaration(Conflict):
    """The declaration that a unit is based on has changed.

    The caller submits a new unit; clients do not see this error.
    """


class Publish:
    """Append events to a group's topic. Result: `AppendResult`.

    Raises `Full` if the topic would store more than `ceiling` bytes, `NotFound` if it was deleted, and the errors of
    `check`. If `declared` is not None, it is the version of the declared resources (`registry_version`) that the
    caller has read: raises `StaleDeclaration` if they have changed since.
    """

    cursor = None
    durable = True
    turn = Turn.FRONT

    def __init__(
        self,
        topic_id: int,
        drafts: Sequence[Draft] | Drafts,
        *,
        ceiling: int | None = None,
        check: Check | None = None,
        declared: int | None = None,
    ) -> None:
        self.topic_id = topic_id
        self._drafts = drafts if isinstance(drafts, Drafts) else Drafts.of(drafts)
        self._ceiling = ceiling
        self._check = check
        self._declared = declared

    @property
    def weight(self) -> int:
        return len(self._drafts)

    @property
    def is_brief(self) -> bool:
        return self._check is None and self._drafts.are_few

    def admit(self, tx: Transaction) -> Drafts:
        if self._declared not in (None, tx.head.registry_version):
            raise StaleDeclaration("the declared resources have changed meanwhile")
        require_in_use(tx.conn, tx.head, self.topic_id)
        if self._check is not None:
            self._check(tx.conn, tx.now)
        require_room(tx, self.topic_id, self._drafts, self._ceiling)
        return self._drafts

    def finish(self, tx: Transaction, appended: AppendResult) -> AppendResult:
        return appended


def require_room(tx: Transaction, topic_id: int, drafts: Drafts, ceiling: int | None) -> None:
    """Raise `Full` if the drafts, after those of the transaction's earlier units, would exceed the topic's limit.

    Otherwise they are counted for its later units. `ceiling`: the limit in bytes; None: unlimited.
    """
    if ceiling is None:
        return
    taken = tx.shared.get(("bytes", topic_id)) or read_topic_bytes(tx.conn, topic_id)
    taken += drafts.bytes
    if taken > ceiling:
        raise Full(
            f"the events do not fit into the group's limit of {ceiling} bytes (retention.maxBytes)",
            hint="raise retention.maxBytes of the group, or lower its maxAge or maxEvents"
            if drafts.bytes <= ceiling
            else f"these events alone take {drafts.bytes} bytes: send fewer at a time, or raise retention.maxBytes",
        )
    tx.shared["bytes", topic_id] = taken


class Effect(Protocol):
    """Interface of what a step writes besides the cursor: events that enter the log, and rows of other tables."""

    @property
    def topic_id(self) -> int | None:
        """Return the topic of its events; None if it has none."""
        ...

    @property
    def weight(self) -> int:
        """Return its share of a transaction, in new records, as `Unit.weight`."""
        ...

    def admit(self, tx: Transaction) -> Drafts:
        """Return its events, and write nothing. Raises an `EventdError` to refuse the step."""
        ...

    def write(self, tx: Transaction, appended: AppendResult) -> None:
        """Write its rows; `appended` has the outcomes and positions of its events."""
        ...


class Settle:
    """Move a cursor, and write everything that belongs to the step.

    Raises `FenceLost` if the cursor is no longer at the position the step began from, or its selection has changed.
    """

    durable = True
    turn = Turn.FRONT
    is_brief = False  # no client waits for it, and the next event may be about to arrive

    def __init__(self, step: Step, effect: Effect | None = None) -> None:
        self._step = step
        self._effect = effect
        self.cursor = step.name

    @property
    def topic_id(self) -> int | None:
        return None if self._effect is None else self._effect.topic_id

    @property
    def weight(self) -> int:
        return 1 if self._effect is None else 1 + self._effect.weight

    def admit(self, tx: Transaction) -> Drafts:
        check_fence(tx.positions, self._step)
        drafts = Drafts() if self._effect is None else self._effect.admit(tx)
        tx.positions[self._step.name] = self._step.upto
        return drafts

    def finish(self, tx: Transaction, appended: AppendResult) -> None:
        apply_step(tx.conn, self._step)
        if self._effect is not None:
            self._effect.write(tx, appended)


class Postpone:
    """Record a failed attempt of a consumer, unless its cursor has moved since."""

    topic_id = None
    cursor = None
    weight = 1
    durable = True
    turn = Turn.FRONT
    is_brief = False

    def __init__(self, failure: Postponement) -> None:
        self._failure = failure

    def admit(self, tx: Transaction) -> Drafts:
        return Drafts()

    def finish(self, tx: Transaction, appended: AppendResult) -> None:
        postpone(tx.conn, self._failure)
