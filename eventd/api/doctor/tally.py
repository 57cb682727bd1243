"""Counts, by outcome, the newest events that a peer's cursor has passed, in a bounded number of pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eventd.api.admin.deliveries.peer_ledger import PeerLedger
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.core.values import Record
from eventd.log.cursors.cursors import Cursor
from eventd.log.delivery.acknowledgements import first_acknowledged, oldest_proof
from eventd.log.delivery.states import Delivery, DeliveryState, derive
from eventd.store.engine.database import Connection
from federation.event import is_alive

ENOUGH = 5000
"""Once this many events of a peer are counted, no further page is read."""
PAGE = 1000
"""Events read in one transaction, so that no reader keeps a snapshot for long."""
_ON_THE_WAY = (DeliveryState.PENDING, DeliveryState.FAILED)

Read = Callable[..., Awaitable[Any]]


class LedgerPage(NamedTuple):
    """One page: each record, its delivery, and when the peer first acknowledged it in normal delivery, not a repair.

    The delivery is None if the record is not meant for the peer, the time if there was no such acknowledgement.
    `oldest_proof`: when the earliest batch that the ledger still has was acknowledged; None without one. `before`:
    continue with the records before this position; None at the beginning of the log. Times in microseconds.
    """

    found: Sequence[tuple[Record, Delivery | None, int | None]]
    oldest_proof: int | None
    before: int | None


@dataclass(slots=True)
class DeliveryTally:
    """The counted events of one peer, by outcome. Durations in microseconds.

    `since`: when the peer's cursor was created. `missing`: position and id of each missing event. `in_full`: every
    event up to the cursor was counted.
    """

    now: int
    late_from: int
    since: int = 0
    looked_at: int = 0
    delivered: int = 0
    pending: int = 0
    expired: int = 0
    in_path: int = 0
    refused: int = 0
    unproven: int = 0
    missing: list[tuple[int, str]] = field(default_factory=list)
    max_lag: int | None = None
    late_at: int | None = None
    expires_in: int | None = None
    pending_expires_in: int | None = None
    in_full: bool = True

    @property
    def late_ago(self) -> int | None:
        return None if self.late_at is None else self.now - self.late_at

    def add(self, record: Record, delivery: Delivery, acked_at: int | None, oldest: int | None) -> None:
        """Count one event by its outcome.

        An expired event whose delivery is neither `EXPIRED` nor `IN_PATH` counts only in `looked_at`.
        `acked_at`: when the peer first acknowledged the event. `oldest`: when it acknowledged the earliest batch that
        the ledger still has.
        """
        self.looked_at += 1
        if delivery.state is DeliveryState.IN_PATH:
            self.in_path += 1
        elif not is_alive(record.expires_at, self.now):
            self.expired += delivery.state is DeliveryState.EXPIRED
        elif delivery.state in _ON_THE_WAY:
            self.pending += 1
            self._note_expiry(record, pending=True)
        elif delivery.state is DeliveryState.DELIVERED:
            self.delivered += 1
            self._note_expiry(record)
            self._note_lag(record, acked_at)
        elif delivery.state is DeliveryState.REFUSED:
            self.refused += 1
        elif delivery.state is DeliveryState.EXPIRED:
            self.expired += 1
        elif oldest is not None and record.recorded_at >= oldest:
            # The ledger has earlier batches, so it would have a batch with this event.
            self.missing.append((record.position, record.event_id))
        else:
            self.unproven += 1

    def _note_expiry(self, record: Record, *, pending: bool = False) -> None:
        if record.expires_at is None:
            return
        left = record.expires_at - self.now
        self.expires_in = left if self.expires_in is None else min(self.expires_in, left)
        if pending:
            self.pending_expires_in = left if self.pending_expires_in is None else min(self.pending_expires_in, left)

    def _note_lag(self, record: Record, acked_at: int | None) -> None:
        """Raise `max_lag` to the delay of a delivery, unless only a repair delivered it (`acked_at` is None).

        `late_at` becomes the time of the last acknowledgement after a delay of at least `late_from`.

        The delay begins when the event was recorded, or when the peer's cursor was created if that was later.
        """
        if acked_at is not None:
            lag = max(0, acked_at - max(record.recorded_at, self.since))
            self.max_lag = lag if self.max_lag is None else max(self.max_lag, lag)
            if lag >= self.late_from:
                self.late_at = acked_at if self.late_at is None else max(self.late_at, acked_at)


async def read_sample(
    read: Read, topic_id: int, ledger: PeerLedger, rounds: int, now: int, late_from: int
) -> DeliveryTally:
    """Return the tally of the newest events that a peer's cursor has passed: about `ENOUGH`, within `rounds` reads."""
    cursor = ledger.link.cursor
    tally = DeliveryTally(now, late_from)
    if cursor is None:
        return tally
    tally.since = cursor.created_at
    before: int | None = cursor.position + 1
    types = _exact(ledger.peer.selector.types)
    for _ in range(rounds):
        if before is None or tally.looked_at >= ENOUGH:
            break
        ask = EventQuery(topic_id, types=types, before=before, newest=True, limit=PAGE)
        look: LedgerPage = await read(_look, ask, ledger, cursor, now)
        for record, delivery, acked_at in look.found:
            if delivery is not None:
                tally.add(record, delivery, acked_at, look.oldest_proof)
        before = look.before
    tally.in_full = before is None
    return tally


def _exact(types: Sequence[str]) -> Sequence[str]:
    """Return the event types to read from the log; none, which reads all types, if one of them has a wildcard."""
    return () if any("*" in name for name in types) else types


def _look(conn: Connection, ask: EventQuery, ledger: PeerLedger, cursor: Cursor, now: int) -> LedgerPage:
    listed = list_latest(conn, ask)
    records = listed.records[::-1]
    deliveries = derive(conn, ledger.link, records, now=now)
    acked = first_acknowledged(conn, cursor.name, [record.position for record in records])
    found = [(record, each, acked.get(record.position)) for record, each in zip(records, deliveries, strict=True)]
    return LedgerPage(found, oldest_proof(conn, cursor.name), listed.seen if listed.more else None)
