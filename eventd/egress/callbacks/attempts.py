"""The attempts at the messages of a callback: which of them are stored, and what follows from them after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eventd.egress.callbacks.batches import MessageBatch
from eventd.egress.callbacks.endpoint import Meaning, SendOutcome
from eventd.egress.loop.sink import Ack
from eventd.egress.loop.tries import Tries
from eventd.log.core.commit import ChangeUnit, Transaction, Turn
from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import AppendResult, Drafts
from eventd.log.cursors.cursors import Cursor
from eventd.resources.callback_configuration import CallbackConfig
from eventd.store.rows.callback_attempts import CallbackAttempt, add_attempt, end_attempts, last_attempt
from eventd.store.rows.callback_cursors import SUBSCRIBER


class BeginAttempt(ChangeUnit[None]):
    """A unit that stores that an attempt is under way.

    Many callbacks share a transaction, and no client waits for it: when many batches close at the same time,
    publishing takes turns with these rows.
    """

    turn = Turn.BACKGROUND

    def __init__(self, attempt: CallbackAttempt) -> None:
        self._attempt = attempt

    def make(self, tx: Transaction) -> None:
        add_attempt(tx.conn, self._attempt)


class FailedAttempts:
    """Stores, with the step of a cursor, the attempts that failed before it succeeded.

    Deletes the row that says that an attempt is under way.
    """

    topic_id = None
    weight = 0

    def __init__(self, cursor: str, failed: Sequence[CallbackAttempt]) -> None:
        self._cursor = cursor
        self._failed = failed

    def admit(self, tx: Transaction) -> Drafts:
        return Drafts()

    def write(self, tx: Transaction, appended: AppendResult) -> None:
        for attempt in self._failed:
            add_attempt(tx.conn, attempt)
        end_attempts(tx.conn, self._cursor)


class BatchAttempts:
    """The attempts at the batches of one cursor of a callback.

    `count`: how often the batch under way was tried; `omitted`: the positions of matching records that this batch
    leaves out. `proven`: the endpoint has accepted another event since the search for the one at fault began.
    """

    def __init__(self, config: CallbackConfig, log: EventLog, cursor: Cursor) -> None:
        self.tries = Tries(config.isolate_after)
        self.count = 0
        self.omitted: frozenset[int] = frozenset()
        self.proven = False
        self._log = log
        self._cursor = cursor.name
        self._shape = _shape(config, cursor)
        self._is_noted = False  # a row says that an attempt is under way
        self._failed: list[CallbackAttempt] = []

    async def recall(self, position: int) -> None:
        """Read from the stored attempts which batch after this position was tried already, and how often.

        A batch that was made under another configuration is not sent again: its events are collected anew.
        """
        self.forget()
        last = await self._log.database.read_for_delivery(last_attempt, self._cursor)
        if last is None or not last.after <= position < last.upto or last.shape != self._shape:
            if last is not None and not last.reason and last.after < last.upto:  # otherwise a report of losses
                await self._log.database.write(end_attempts, self._cursor)
            return
        self.tries.recall(last.upto, last.answers + 1)
        self.count, self.omitted = last.attempt, frozenset(last.omitted)
        self._is_noted = not last.reason

    @property
    def until(self) -> int | None:
        """Return the end of a batch that was tried before and is not done; None if there is none."""
        return self.tries.until

    def forget(self) -> None:
        """Forget the earlier attempts: their batch is done."""
        self.tries.forget()
        self.count, self.omitted, self.proven, self._is_noted = 0, frozenset(), False, False

    async def begin(self, batch: MessageBatch, id: str) -> None:
        """Store that an attempt is under way, unless a row says so already."""
        if not self._is_noted:
            await self._log.submit(BeginAttempt(self._row(batch, id, None)))
            self._is_noted = True

    def note(self, batch: MessageBatch, id: str, outcome: SendOutcome) -> None:
        """Remember a failed attempt until the cursor's failure is stored."""
        self._failed.append(self._row(batch, id, outcome))
        self.count += 1

    def take_failures(self) -> list[CallbackAttempt]:
        """Return the attempts that failed, once, so that they are stored with the cursor."""
        failed, self._failed = self._failed, []
        return failed

    def effect(self) -> FailedAttempts | None:
        """Return what is stored with the step of the cursor after a success; None if there is nothing to store."""
        failed = self.take_failures()
        return FailedAttempts(self._cursor, failed) if failed or self._is_noted else None

    def passed(self, ack: Ack) -> None:
        """Note that the result is committed."""
        self._is_noted = False
        self.tries.passed(ack.upto, found=bool(ack.refused))
        if self.tries.until is None:
            self.forget()

    def _row(self, batch: MessageBatch, id: str, outcome: SendOutcome | None) -> CallbackAttempt:
        """Return the row of an attempt; without an outcome, the attempt is under way."""
        found = outcome or SendOutcome(Meaning.UNAVAILABLE, 0, "", "", self._log.clock.now(), 0, "", "", "")
        row = found.attempt(self._cursor, id, batch.after, batch.upto)
        return replace(
            row,
            events=len(batch.items),
            shape=self._shape,
            omitted=[item.position for item in batch.omitted],
            attempt=self.count + 1,
            answers=self.tries.attempt - 1 + row.answers,
        )


def _shape(config: CallbackConfig, cursor: Cursor) -> str:
    """Return a text with all that determines the messages of a cursor besides its records: format, limits and
    selection.

    The selection of a subscriber of the Routemaster surface is left out: its changes concern later records only.
    """
    version = "" if config.name.startswith(SUBSCRIBER) else cursor.selector_version
    return f"{config.format} {config.max_events} {config.max_bytes} {version}"
