"""Reports to a callback's endpoint which records were lost before they could be sent."""

from __future__ import annotations

import json
from collections.abc import Sequence

from eventd.egress.callbacks.delivery import CallbackMetrics, MadeRequest, PageSource
from eventd.egress.callbacks.endpoint import CallbackEndpoint, Meaning, SendOutcome
from eventd.egress.callbacks.formats import ROUTEMASTER, CallbackItem, gap_body, gap_id
from eventd.egress.loop.sink import Ack
from eventd.log.core.eventlog import EventLog
from eventd.log.core.losses import Loss
from eventd.log.cursors.cursors import GAP_PROTOCOL, Cursor, DeliveredBatch
from eventd.resources.callback_configuration import CallbackConfig
from eventd.store.rows.callback_attempts import CallbackAttempt


class GapReport:
    """Sends one message for consecutive losses, before what follows them.

    Subscribers of Routemaster get none, and an endpoint that has refused it `isolate_after` times does not get it
    either: the ledger has the loss anyway.
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
        self._refusals = 0
        self._failed: list[CallbackAttempt] = []

    async def report(
        self, losses: Sequence[Loss], after: int, upto: int, source: PageSource, following: CallbackItem | None
    ) -> Ack:
        """Report the losses in `(after, upto]`, and return the result. Raises `LinkError`.

        The message has the time of the `following` event, so that a repetition has the same bytes; without one, the
        present time.
        """
        id = gap_id(losses, source.head.epoch, self._config.name)
        outcome = None
        if self._config.format != ROUTEMASTER:
            body = gap_body(
                losses,
                self._config.format,
                source.topic,
                source.head.epoch,
                callback=self._config.name,
                id=id,
                now=self._log.clock.now() if following is None else following.recorded_at,
            )
            outcome = await self._endpoint.send(id, body)
            self._metrics.attempted(self._config.name, MadeRequest(outcome.duration, outcome.reason))
            if outcome.meaning is not Meaning.DELIVERED:
                self._note(id, after, outcome)
        self._refusals = 0
        self._metrics.lost(self._config.name, sum(loss.records for loss in losses))
        return Ack(upto, (self._row(losses, id, after, upto, outcome, source),), ledger_cursor=self._ledger)

    def _note(self, id: str, after: int, outcome: SendOutcome) -> None:
        """Raise the error of a failed attempt, unless the message was refused for the last time."""
        self._refusals += outcome.meaning is Meaning.REFUSED
        self._failed.append(outcome.attempt(self._cursor.name, id, after, after))
        if self._refusals < self._config.isolate_after:
            raise outcome.error()

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
