"""Ledger rows of delivered batches, each with a receipt as a peer would have signed it."""

from __future__ import annotations

import json
from typing import Any

from eventd.log.cursors.steps import DeliveredBatch
from eventd.testing import NOW
from federation.event import from_micros
from federation.wire import Receipt, Refusal, encode_json

SIGNED = 'eventd=("@status" "content-digest");created=1;keyid="k-b";alg="ed25519";tag="eventd-answer"'


def receipt_text(batch_id: str, accepted: int, *, refused: tuple[Refusal, ...] = (), upto: int | None = None) -> str:
    """Return the body of a receipt."""
    receipt = Receipt(
        group="g",
        from_node="a",
        to_node="b",
        batch=batch_id,
        digest="sha-256=:AA==:",
        epoch="e",
        incarnation=1,
        upto=upto,
        accepted=accepted,
        duplicates=0,
        refused=refused,
        recorded_at=from_micros(NOW + 7),
    )
    return encode_json(receipt).decode()


def evidence(answer: str) -> str:
    """Return a receipt with its signature, as the sender stores it."""
    headers = {"signature-input": SIGNED, "signature": "eventd=:AA==:"}
    return json.dumps({"status": 200, "headers": headers, "body": answer, "request": "eventd=:AA==:"})


def stored_batch(cursor: str, after: int, upto: int, events: int | None = None, **fields: Any) -> DeliveredBatch:
    """Return a batch of a range; `events` were delivered, by default all of the range."""
    delivered = upto - after if events is None else events
    batch_id = fields.pop("batch_id", f"batch-{cursor}-{upto}")
    values: dict[str, Any] = {
        "epoch": "e",
        "incarnation": 1,
        "bytes": 1,
        "selector_version": 1,
        "exceptions": (),
        "picked": (),
        "attempts": 1,
        "sent_at": NOW,
        "acked_at": NOW,
        "status": 200,
        "protocol": "v2",
        "key_id": "k-a",
        "receipt": evidence(receipt_text(batch_id, delivered, upto=upto)),
    }
    return DeliveredBatch(
        cursor=cursor, batch_id=batch_id, after=after, upto=upto, events=delivered, **(values | fields)
    )
