"""Stores the position of a callback and its failed attempts, and disables a callback whose endpoint has failed for too
long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from eventd.egress.callbacks.endpoint import Meaning
from eventd.egress.callbacks.subscriber_log import SubscriberLog
from eventd.egress.loop.cursor_store import StoredCursor
from eventd.egress.loop.sink import Ack
from eventd.log.core.commit import Transaction
from eventd.log.core.eventlog import EventLog
from eventd.log.core.units import Effect, Postpone
from eventd.log.core.values import AppendResult, Drafts
from eventd.log.cursors.cursors import Cursor, read_cursors, set_failing_since, set_paused
from eventd.log.cursors.holding import DISABLED_BY
from eventd.log.cursors.steps import Postponement, Step
from eventd.store.rows.callback_attempts import CallbackAttempt, add_attempt
from eventd.store.rows.routemaster import add_sent
from eventd.text.duration import HOUR, MINUTE, SECOND, format_duration

LEAST_FAILING = 12 * HOUR
"""How long a callback must have failed, in microseconds, before the node disables it, however short `disable_after` is:
an outage of one night does not disable it."""
MOST_LATE = 5 * MINUTE
"""How late, in microseconds, an attempt may begin. A longer delay shows that the node was down, or that its clock was
wrong."""


class CallbackChange(Enum):
    """A change in the condition of a callback that operators are notified of."""

    FAILING = "failing"  # it has failed for half of the time after which it is disabled
    DISABLED = "disabled"
    RECOVERED = "recovered"


Notify = Callable[[CallbackChange, str], None]
"""A function that is called with each change, and a sentence that describes the change."""


class CallbackPostponement(Postpone):
    """Record a failed attempt of a callback, and pause the callback if it has failed for too long.

    Result: whether it was paused, and since when it has failed (microseconds; None: its cursor has moved or is gone),
    without the time in which the node was down.
    """

    def __init__(
        self, failure: Postponement, attempts: Sequence[CallbackAttempt], disable_after: int | None, *, at_once: bool
    ) -> None:
        super().__init__(failure)
        self._failed = failure
        self._attempts = attempts
        self._disable_after = disable_after
        self._at_once = at_once

    def finish(self, tx: Transaction, appended: AppendResult) -> tuple[bool, int | None]:  # type: ignore[override]
        failed = self._failed
        before = read_cursors(tx.conn, name=failed.name)
        super().finish(tx, appended)
        if not before or before[0].position != failed.position:
            return False, None
        cursor = before[0]
        since = _failing_since(cursor, failed.now, self._attempts[0].started_at if self._attempts else failed.now)
        set_failing_since(tx.conn, failed.name, since)
        too_long = self._disable_after is not None and since is not None and failed.now - since >= self._disable_after
        ends = cursor.paused_at is None and (too_long or self._at_once)
        for attempt in self._attempts:
            add_attempt(tx.conn, replace(attempt, retry_at=None) if ends else attempt)
        if not ends:
            return False, since
        set_paused(tx.conn, failed.name, at=failed.now, by=DISABLED_BY)
        return True, since


def _failing_since(cursor: Cursor, now: int, begun: int) -> int:
    """Return since when a callback that fails `now` has failed, as if the time in which the node did not try had not
    passed.

    `begun`: when this attempt began; a request may take an hour. In the time in which the node was down, or its clock
    was wrong, nothing has shown that the endpoint failed.
    """
    if cursor.failing_since is None or cursor.attempted_at is None:
        return now
    late = begun - max(cursor.attempted_at, cursor.retry_at or 0)
    return min(now, cursor.failing_since + (late if late > MOST_LATE else 0))


class SentCount:
    """Counts the events that a subscriber of the Routemaster surface has acknowledged, in the transaction that moves
    its cursor.

    The effect `other` is written in the same transaction.
    """

    topic_id = None
    weight = 0

    def __init__(self, subscriber: str, events: int, other: Effect | None) -> None:
        self._subscriber = subscriber
        self._events = events
        self._other = other

    def admit(self, tx: Transaction) -> Drafts:
        return Drafts()

    def write(self, tx: Transaction, appended: AppendResult) -> None:
        add_sent(tx.conn, self._subscriber, self._events)
        if self._other is not None:
            self._other.write(tx, appended)


class CallbackCursor(StoredCursor):
    """The stored cursor of a callback.

    `attempts` returns the failed attempts that are to be stored; `stored` is called once a failure is.

    `disable_after` is in microseconds, and counts as `LEAST_FAILING` if it is less; None: the node never disables the
    callback, not even on a 410. `subscriber` is the identity of a subscriber of the Routemaster surface, whose
    delivered events are counted; empty for others.
    """

    def __init__(
        self,
        log: EventLog,
        name: str,
        attempts: Callable[[], list[CallbackAttempt]],
        disable_after: int | None,
        notify: Notify,
        *,
        subscriber: str = "",
        stored: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(log, name)
        self._stored = stored
        self._subscriber = subscriber
        self._subscriber_log = SubscriberLog(subscriber)
        self._log = log
        self._attempts = attempts
        self._disable_after = None if disable_after is None else max(disable_after, LEAST_FAILING)
        self._notify = notify
        self._is_failing: bool | None = None  # whether this was notified; None: not known yet
        self.postpone = self._postpone

    async def read(self) -> Cursor:
        cursor = await super().read()
        if self._is_failing is None:
            since, last = cursor.failing_since, cursor.attempted_at
            self._is_failing = since is not None and last is not None and self._is_half(last - since)
        return cursor

    async def settle(self, step: Step, ack: Ack | None = None) -> None:
        sent = sum(batch.events for batch in step.batches)
        if self._subscriber and sent and ack is not None:
            ack = replace(ack, effect=SentCount(self._subscriber, sent, ack.effect))
        await super().settle(step, ack)
        if self._subscriber and sent:
            self._subscriber_log.note_delivery(sent)
        if ack is not None and ack.asked and self._is_failing:
            self._is_failing = False
            self._notify(CallbackChange.RECOVERED, "the endpoint accepts events again")

    async def _postpone(self, failure: Postponement) -> None:
        failed = self._attempts()
        if failed:
            failed[-1] = replace(failed[-1], retry_at=failure.retry_at)
            if self._subscriber:
                self._subscriber_log.note_failure(failed[-1].events, failure.reason, failure.error)
        gone = failure.reason == Meaning.GONE.value and self._disable_after is not None
        unit = CallbackPostponement(failure, failed, self._disable_after, at_once=gone)
        disabled, since = await self._log.submit(unit)
        self._stored()
        if since is None:
            return
        spent = failure.now - since
        if disabled:
            self._is_failing = True
            detail = failure.error if gone else _failing_for(spent, failure.error)
            self._notify(CallbackChange.DISABLED, detail)
        elif self._is_half(spent) and not self._is_failing:
            self._is_failing = True
            self._notify(CallbackChange.FAILING, _failing_for(spent, failure.error))

    def _is_half(self, spent: int) -> bool:
        return self._disable_after is not None and 2 * spent >= self._disable_after


def _failing_for(spent: int, error: str) -> str:
    return f"has failed for {format_duration(spent // SECOND * SECOND)}: {error}"
