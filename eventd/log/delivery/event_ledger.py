"""The ledger rows about one event: the batches that covered it, and its dead letters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from eventd.log.cursors.steps import GAP_PROTOCOL
from eventd.log.delivery.evidence import Proof, digest_of_batch, read_proof
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch

_BATCHES_READ = 20
"""How many batches that end at a position or after it are read to find those that cover it."""


class BatchEvidence(NamedTuple):
    """The ledger row of a batch that covered an event, with the receipt of the peer. Times in microseconds."""

    batch_id: str
    status: int
    protocol: str
    key_id: str
    sent_at: int
    acked_at: int
    receipt: Proof | None


def read_evidence(conn: Connection, cursor: str, position: int, batch_id: str) -> BatchEvidence | None:
    """Return the ledger row of the batch with this id, which covered the position; None if it was deleted."""
    rows = fetch(
        conn,
        "SELECT batch_id, status, protocol, key_id, sent_at, acked_at, receipt FROM batches"
        " WHERE cursor = ? AND upto >= ? AND batch_id = ? ORDER BY upto LIMIT 1",
        (cursor, position, batch_id),
    )
    if not rows:
        return None
    found, status, protocol, key_id, sent_at, acked_at, receipt = rows[0]
    return BatchEvidence(found, status, protocol, key_id, sent_at, acked_at, read_proof(receipt))


def read_batch_digest(conn: Connection, cursor: str, batch_id: str, upto: int) -> str | None:
    """Return the Content-Digest in the peer's receipt of a batch up to the position `upto`; None without a receipt."""
    sql = "SELECT receipt FROM batches WHERE cursor = ? AND upto = ? AND batch_id = ?"
    rows = fetch(conn, sql, (cursor, upto, batch_id))
    return digest_of_batch(rows[0][0]) if rows else None


class CoveringBatch(NamedTuple):
    """A batch that covered a position: when it was acknowledged (microseconds), and what it left out, by position."""

    batch_id: str
    acked_at: int
    exceptions: Mapping[int, str]


def read_covering(conn: Connection, cursor: str, position: int) -> list[CoveringBatch]:
    """Return batches of a cursor that cover a position, those of resends included."""
    rows = fetch(
        conn,
        "SELECT after, batch_id, acked_at, exceptions, picked FROM batches"
        " WHERE cursor = ? AND upto >= ? AND protocol <> ? ORDER BY upto LIMIT ?",
        (cursor, position, GAP_PROTOCOL, _BATCHES_READ),
    )
    return [
        CoveringBatch(batch_id, acked_at, {at: str(reason) for at, reason in json.loads(exceptions or "[]")})
        for after, batch_id, acked_at, exceptions, picked in rows
        if after < position and (not picked or position in json.loads(picked))
    ]


class EventDeadLetter(NamedTuple):
    """A dead letter of an event. `parked_at` in microseconds."""

    id: int
    cursor: str
    reason: str
    detail: str
    attempts: int
    parked_at: int


def read_event_letters(conn: Connection, topic_id: int, event_id: str, *, limit: int) -> list[EventDeadLetter]:
    """Return the newest dead letters of an event, of peers, subscriptions and callbacks."""
    rows = fetch(
        conn,
        "SELECT id, cursor, reason, detail, attempts, parked_at FROM dead_letters"
        " WHERE topic_id = ? AND event_id = ? ORDER BY id DESC LIMIT ?",
        (topic_id, event_id, limit),
    )
    return [EventDeadLetter(*row) for row in rows]
