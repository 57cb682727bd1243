"""Reports to a callback's endpoint which records were lost before they could be sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from eventd.egress.callbacks.attempts import BeginAttempt, FailedAttempts
from eventd.egress.callbacks.delivery import CallbackMetrics, EndpointRequest, PageSource
from eventd.egress.callbacks.endpoint import CallbackEndpoint, Meaning, SendOutcome
from eventd.egress.callbacks.formats import ROUTEMASTER, gap_body, gap_id
from eventd.egress.loop.sink import Ack
from eventd.log.core.eventlog import EventLog
from eventd.log.core.losses import Loss
from eventd.log.cursors.cursors import Cursor
from eventd.log.cursors.steps import GAP_PROTOCOL, DeliveredBatch
from eventd.resources.callback_configuration import CallbackConfig
from eventd.store.rows.callback_attempts import CallbackAttempt, add_attempt, last_attempt


class GapReport:
    """Sends one message that reports consecutive losses, before the events that follow them.

    Subscribers of Routemaster get no such message, and an endpoint that has refused it `isolate_after` times does not
    get it again: the delivery ledger has the loss in any case.
    """

    def __init__(
        self,
        config: CallbackConfig,
        endpoint: CallbackEndpoint,
        log: EventLog,
        cursor: Cursor,
        ledger: str,
        metrics: CallbackMetrics,
    ) -> None:
        self._metrics = metrics
        self._config = config
        self._endpoint = endpoint
        self._log = log
        self._cursor = cursor
        self._ledger = ledger
        self._failed: list[CallbackAttempt] = []

    async def report(self, losses: Sequence[Loss], after: int, upto: int, source: PageSource) -> Ack:
        """Report the losses in `(after, upto]`, and return the result. Raises `LinkError`."""
        id = gap_id(losses, source.head.epoch, self._config.name)
        outcome = effect = None
        if self._config.format != ROUTEMASTER:
            row = await self._begin(id, after)
            body = gap_body(
                losses,
                self._config.format,
                source.topic,
                source.head.epoch,
                callback=self._config.name,
                id=id,
                now=int(row.shape),
            )
            outcome = await self._endpoint.send(id, body)
            self._metrics.attempted(self._config.name, EndpointRequest(outcome.duration, outcome.reason))
            if outcome.meaning is Meaning.DELIVERED:
                effect = FailedAttempts(self._cursor.name, self.take_failures())
            else:
                await self._log.database.write(add_attempt, self._refused(row, outcome))
        self._metrics.lost(self._config.name, sum(loss.records for loss in losses))
        ledger_row = self._row(losses, id, after, upto, outcome, source)
        return Ack(upto, (ledger_row,), effect=effect, ledger_cursor=self._ledger)

    async def _begin(self, id: str, after: int) -> CallbackAttempt:
        """Return the row of the newest attempt at the message; before the first one, a stored row without a result.

        Its `shape` is the time in the message, in microseconds: every repetition has the same bytes, also after a
        restart.
        """
        last = await self._log.database.read_for_delivery(last_attempt, self._cursor.name)
        if last is not None and last.message_id == id and last.shape:
            return last
        now = self._log.clock.now()
        row = CallbackAttempt(
            cursor=self._cursor.name,
            message_id=id,
            after=after,
            upto=after,
            events=0,
            shape=str(now),
            attempt=0,
            started_at=now,
            first_at=now,
        )
        await self._log.submit(BeginAttempt(row))
        return row

    def _refused(self, last: CallbackAttempt, outcome: SendOutcome) -> CallbackAttempt:
        """Return the row of a failed attempt if it is the last one.

        Raise its error if the message is to be tried again. `last` is the row of the attempt before.
        """
        found = outcome.attempt(self._cursor.name, last.message_id, last.after, last.upto)
        answers = last.answers + found.answers
        row = replace(found, shape=last.shape, attempt=last.attempt + 1, answers=answers)
        if answers < self._config.isolate_after:
            self._failed.append(row)
            raise outcome.error()
        return row

    def take_failures(self) -> list[CallbackAttempt]:
        """Return the attempts that failed, once, so that they are stored with the cursor."""
        failed, self._failed = self._failed, []
        return failed

    def _row(
        self, losses: Sequence[Loss], id: str, after: int, upto: int, outcome: SendOutcome | None, source: PageSource
    ) -> DeliveredBatch:
        now = self._log.clock.now()
        lost = {
            "from": losses[0].first,
            "to": losses[-1].last,
            "count": sum(loss.records for loss in losses),
            "reasons": sorted({loss.reason for loss in losses}),
        }
        # A refused report has status 0: it does not prove that the endpoint accepts anything.
        return DeliveredBatch(
            cursor=self._ledger,
            batch_id=id,
            epoch=source.head.epoch,
            incarnation=source.head.incarnation,
            after=after,
            upto=upto,
            events=0,
            bytes=0,
            selector_version=self._cursor.selector_version,
            exceptions=(),
            picked=(),
            attempts=1,
            sent_at=outcome.started_at if outcome else now,
            acked_at=now,
            status=outcome.status if outcome is not None and outcome.meaning is Meaning.DELIVERED else 0,
            protocol=GAP_PROTOCOL,
            key_id=outcome.key_ids if outcome else "",
            receipt=json.dumps({"lost": lost}, separators=(",", ":")),
        )
