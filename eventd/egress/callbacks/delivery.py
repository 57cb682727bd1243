"""Delivers the batches of a callback: writes the ledger rows of accepted batches, and finds the event that the
endpoint does not accept.

A batch that the endpoint keeps refusing is halved until one event is alone. This event becomes a dead letter only if
the endpoint refuses it again after it has accepted another event. Otherwise the endpoint may refuse everything, or it
may just have recovered when it accepted the other event.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from eventd.egress.callbacks.attempts import BatchAttempts
from eventd.egress.callbacks.batches import MessageBatch
from eventd.egress.callbacks.endpoint import CallbackEndpoint, Meaning, SendOutcome
from eventd.egress.callbacks.formats import NEEDS, STANDARD, UNSUITABLE, CallbackItem, body_of, message_id
from eventd.egress.callbacks.rate import RATE_LIMITED
from eventd.egress.loop.sink import Ack, LinkUnavailable, RecordRefusal
from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Head
from eventd.log.cursors.cursors import Cursor, read_cursor
from eventd.log.cursors.steps import CALLBACK_PROTOCOL, DeliveredBatch
from eventd.resources.callback_configuration import CallbackConfig
from eventd.runtime.supervisor import SpawnTask

RUN_SECONDS = 0.02
"""Seconds after which accepted messages are settled, although more could follow: after a crash, only the messages of
this time are sent again."""
UNPROVEN = "unproven"
"""The reason of a callback that waits for proof that its endpoint accepts any event at all."""


class EndpointRequest(NamedTuple):
    """A request to an endpoint that took so many microseconds; `reason` is empty if it was accepted.

    `waited`: how long the oldest of its events had waited when it began; None for other messages. `first`: its batch
    was not tried before.
    """

    duration: int
    reason: str
    events: int = 0
    waited: int | None = None
    first: bool = True


class CallbackMetrics(Protocol):
    """Interface of the metrics of callbacks. Times are in microseconds."""

    def attempted(self, callback: str, request: EndpointRequest) -> None: ...

    def delivered(self, callback: str, events: int, lag: int) -> None: ...

    def refused(self, callback: str, events: int) -> None: ...

    def postponed(self, callback: str, events: int) -> None: ...

    def lost(self, callback: str, events: int) -> None: ...

    def forget(self, callback: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PageSource:
    """The source of a batch's records: the topic's name, and the log's head when they were read."""

    topic: str
    head: Head


SentBatch = tuple[MessageBatch, SendOutcome]
"""A batch, and the outcome of its request."""


class CallbackDelivery:
    """Delivers batches for one cursor of a callback.

    `next_after` returns a batch of the one event that follows a position; None without one. `ledger` is the name
    under which deliveries are recorded.
    """

    def __init__(
        self,
        config: CallbackConfig,
        endpoint: CallbackEndpoint,
        log: EventLog,
        cursor: Cursor,
        ledger: str,
        next_after: Callable[[int], Awaitable[MessageBatch | None]],
        metrics: CallbackMetrics,
        spawn: SpawnTask,
    ) -> None:
        self._spawn = spawn
        self._run_seconds = RUN_SECONDS if config.max_events == 1 else 0.0
        self._config = config
        self._endpoint = endpoint
        self._log = log
        self.attempts = BatchAttempts(config, log, cursor)
        self._cursor = cursor.name
        self._version = cursor.selector_version
        self._is_repair = cursor.until is not None
        self._ledger = ledger
        self._next_after = next_after
        self._metrics = metrics
        self._proof: tuple[int, list[SentBatch]] | None = None  # for which position; what was accepted ahead of it
        self._sent_ahead = 0  # the position of the last event that was sent ahead without success

    async def deliver(self, batches: Sequence[MessageBatch], source: PageSource) -> Ack:
        """Send batches in order, as many as fit into a run, and return the result. Raises `LinkError`."""
        begun = self._log.clock.monotonic()
        done: list[SentBatch] = []
        at = 0
        while at < len(batches):
            some = batches[at : at + self._config.in_flight]
            outcomes = await self._send_all(some, source)
            for batch, outcome in zip(some, outcomes, strict=True):
                if outcome is not None and outcome.meaning is not Meaning.DELIVERED:
                    return await self._failed_at(batch, outcome, done, source)
                done.append((batch, outcome or _UNSENT))
            at += len(some)
            if self._log.clock.monotonic() - begun >= self._run_seconds:
                break
        return self._ack(done, source)

    async def _send_all(self, batches: Sequence[MessageBatch], source: PageSource) -> list[SendOutcome | None]:
        if len(batches) == 1:
            return [await self._send(batches[0], source)]
        tasks = [self._spawn(self._send(batch, source), f"{self._cursor} {batch.upto}") for batch in batches]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _send(self, batch: MessageBatch, source: PageSource) -> SendOutcome | None:
        """Send one batch; None if it has no items. A batch that could be collected differently is stored first."""
        if not batch.items:
            return None
        id = self._id_of(batch.items, source)
        if not batch.is_full and self._config.format != STANDARD:
            await self.attempts.begin(batch, id)
        body = body_of(batch.items, self._config.format, source.topic, source.head.epoch)
        outcome = await self._endpoint.send(id, body, repair=self._is_repair, covers=(batch.after, batch.upto))
        # What a resend sends has waited for an operator.
        waited = None if self._is_repair else max(0, outcome.started_at - batch.items[0].recorded_at)
        is_first = not self.attempts.count
        request = EndpointRequest(outcome.duration, outcome.reason, len(batch.items), waited, first=is_first)
        self._metrics.attempted(self._config.name, request)
        return outcome

    async def _failed_at(
        self,
        batch: MessageBatch,
        outcome: SendOutcome,
        done: list[SentBatch],
        source: PageSource,
    ) -> Ack:
        """Return the result of the batches before the one that was not accepted.

        Raise the error of that one if there are none.
        """
        if not done:
            return await self._not_accepted(batch, outcome, source)
        ack = self._ack(done, source)
        self.attempts.forget()
        self._note(batch, outcome, source)
        return replace(ack, failure=outcome.error())

    async def _not_accepted(self, batch: MessageBatch, outcome: SendOutcome, source: PageSource) -> Ack:
        self._note(batch, outcome, source)
        refused = outcome.meaning is Meaning.REFUSED
        answers = self.attempts.tries.attempt - 1 + refused
        self.attempts.tries.recall(batch.upto, answers + 1)
        if not refused or answers < self._config.isolate_after:
            raise outcome.error()
        while len(batch.items) > 1:
            half = batch.first_half()
            found = await self._send(half, source)
            assert found is not None
            if found.meaning is Meaning.DELIVERED:
                self.attempts.proven = True
                return self._ack([(half, found)], source)
            self._note(half, found, source)
            if found.meaning is not Meaning.REFUSED:
                raise found.error()
            batch, outcome = half, found
            self.attempts.tries.recall(batch.upto, answers + 1)
        return await self._judge(batch, outcome, source)

    async def _judge(self, batch: MessageBatch, outcome: SendOutcome, source: PageSource) -> Ack:
        """Make the batch's only event a dead letter if the endpoint refuses it and accepts other events.

        Else raise `LinkError`.
        """
        [item] = batch.items
        done: list[SentBatch] = []
        if not self.attempts.proven:
            if self._proof is None or self._proof[0] != batch.upto:
                self._proof = batch.upto, await self._prove(batch, outcome, source)
                # The endpoint may have recovered between the two: only a refusal after the proof is about this event.
                again = await self._send(batch, source)
                assert again is not None
                if again.meaning is Meaning.DELIVERED:
                    return self._ack([(batch, again), *self._take_proof()], source)
                self._note(batch, again, source)
                if again.meaning is not Meaning.REFUSED:
                    raise again.error()  # the proof stands: the next refusal of this event follows it
                outcome = again
            done = self._take_proof()
        given_up = MessageBatch(batch.after, batch.upto, (), [*batch.omitted, item._replace(omitted="refused")])
        self._metrics.refused(self._config.name, 1)
        refusal = RecordRefusal(item, outcome.reason, outcome.detail, max(1, self.attempts.count))
        ack = self._ack([(given_up, outcome), *done], source)
        return replace(ack, refused=(*ack.refused, refusal))

    def _take_proof(self) -> list[SentBatch]:
        """Return the batches that the endpoint has accepted although they follow the refused event.

        Empty from the second call on.
        """
        proof, self._proof = self._proof, None
        return [] if proof is None else proof[1]

    async def _prove(self, batch: MessageBatch, outcome: SendOutcome, source: PageSource) -> list[SentBatch]:
        """Find out whether the endpoint accepts another event; if this is the very next event, return its batch.

        Each attempt sends one later event ahead of its turn, the next one first. If the endpoint accepts a later one
        than the next, it gets that event again in its turn. If a resend has no later event, it is proof enough that
        the callback itself does not fail. Raises `LinkUnavailable` without a proof.
        """
        last = self._sent_ahead if self._sent_ahead > batch.upto else batch.upto
        ahead = await self._next_after(last) or await self._next_after(batch.upto)
        found = None if ahead is None else await self._send(replace(ahead, is_full=True), source)
        if (ahead is None or found is None) and self._is_repair and await self._accepts_others():
            return []
        if ahead is None or found is None:
            detail = f"{outcome.detail}; no other event shows yet whether the endpoint accepts any"
            raise LinkUnavailable(UNPROVEN, detail, retry_after=outcome.retry_after)
        if found.meaning is Meaning.REFUSED:
            self._sent_ahead = ahead.upto
            raise LinkUnavailable(UNPROVEN, f"{outcome.detail}; it does not accept a later event either")
        if found.meaning is not Meaning.DELIVERED:
            raise found.error()
        return [(ahead, found)] if ahead.after == batch.upto else []

    async def _accepts_others(self) -> bool:
        """Return whether the endpoint has accepted the last event that the callback itself sent to it."""
        found = await self._log.database.read_for_delivery(read_cursor, self._ledger)
        return found.succeeded_at is not None and found.failing_since is None

    # --- results ----------------------------------------------------------------------------------------------

    def _ack(self, done: Sequence[SentBatch], source: PageSource) -> Ack:
        """Return the result of accepted batches, as one ledger row. Records that have no form become dead letters."""
        if not done:
            return Ack(0)
        batches = [batch for batch, _ in done]
        sent = [(batch, outcome) for batch, outcome in done if outcome.status]
        row = self._ledger_row(batches, [outcome for _, outcome in sent], source)
        self._count(batches)
        effect = self.attempts.effect()
        reason = RATE_LIMITED if self._endpoint.take_held() else ""
        return Ack(
            row.upto, (row,), self._unsuitable(batches), effect=effect, ledger_cursor=self._ledger, reason=reason
        )

    def _unsuitable(self, batches: Sequence[MessageBatch]) -> tuple[RecordRefusal, ...]:
        detail = f"the record has no form in the format {self._config.format}, {NEEDS}"
        return tuple(
            RecordRefusal(item, UNSUITABLE, detail)
            for batch in batches
            for item in batch.omitted
            if item.omitted == UNSUITABLE
        )

    def _count(self, batches: Sequence[MessageBatch]) -> None:
        items = [item for batch in batches for item in batch.items]
        if items:
            lag = max(0, self._log.clock.now() - items[0].recorded_at)
            self._metrics.delivered(self._config.name, len(items), lag)

    def _ledger_row(
        self, batches: Sequence[MessageBatch], outcomes: Sequence[SendOutcome], source: PageSource
    ) -> DeliveredBatch:
        items = [item for batch in batches for item in batch.items]
        exceptions = sorted((item.position, item.omitted) for batch in batches for item in batch.omitted)
        now, last = self._log.clock.now(), outcomes[-1] if outcomes else _UNSENT
        picked = [*(item.position for item in items), *(at for at, _ in exceptions)] if self._is_repair else []
        receipt = {
            "requests": len(outcomes),
            "duration": sum(outcome.duration for outcome in outcomes),
            "address": last.address,
            "answer": last.answer,
        }
        first = next((batch.items for batch in batches if batch.items), ())
        return DeliveredBatch(
            cursor=self._ledger,
            batch_id=self._id_of(first, source) if first else "",
            epoch=source.head.epoch,
            incarnation=source.head.incarnation,
            after=batches[0].after,
            upto=batches[-1].upto,
            events=len(items),
            bytes=sum(item.size for item in items),
            selector_version=self._version,
            exceptions=exceptions,
            picked=sorted(picked),
            attempts=self.attempts.count + 1,
            sent_at=min((outcome.started_at for outcome in outcomes), default=now),  # one may have been sent ahead
            acked_at=now,
            status=last.status,
            protocol=CALLBACK_PROTOCOL,
            key_id=last.key_ids,
            receipt=json.dumps(receipt, separators=(",", ":")) if outcomes else "",
        )

    def _id_of(self, items: Sequence[CallbackItem], source: PageSource) -> str:
        return message_id(items, self._config.format, source.head.epoch, self._config.name)

    def _note(self, batch: MessageBatch, outcome: SendOutcome, source: PageSource) -> None:
        self.attempts.note(batch, self._id_of(batch.items, source), outcome)


_UNSENT = SendOutcome(Meaning.DELIVERED, 0, "", "", 0, 0, "", "", "")
