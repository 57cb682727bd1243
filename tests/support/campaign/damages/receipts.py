"""Damage: receipts are edited or invented, at the sender, at the receiver, or at both."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.support.campaign.damage import Damage, Scene

_BATCHES = """
    SELECT batch_id FROM before.receipts
    WHERE node = 'a' AND peer = 'b' AND "group" = '{group}' AND accepted > 0 ORDER BY number
"""
EDGE, LINE = _BATCHES.format(group="edge"), _BATCHES.format(group="line")
CHANGED = """
    SELECT 'forged', node, batch_id FROM before.receipts b JOIN after.receipts a USING (node, peer, batch_id, number)
    WHERE a IS DISTINCT FROM b
"""
_DISAGREES = CHANGED.replace("forged", "disagreement")
_DIFFERS = f"{CHANGED} UNION {_DISAGREES}"

Row = Mapping[str, Any]


def _change(query: str, change: Callable[[Row, Scene], dict[str, Any]]) -> Callable[[Scene], None]:
    """Return a damage: one receipt of `a` is changed."""

    def inflict(scene: Scene) -> None:
        batch = scene.pick(query)
        scene.lake.change("receipts", "a", lambda row: row["batch_id"] == batch, lambda row: row | change(row, scene))

    return inflict


def _body(row: Row, **fields: Any) -> dict[str, Any]:
    """Return the receipt with another body, its signature as it was."""
    receipt = json.loads(row["receipt"])
    receipt["body"] = json.dumps(json.loads(receipt["body"]) | fields, separators=(",", ":"))
    return {"receipt": json.dumps(receipt, separators=(",", ":"))}


def _with_digest(changed: dict[str, Any]) -> dict[str, Any]:
    """Return the changed receipt with the digests that fit its body, in the row and in the header."""
    receipt = json.loads(changed["receipt"])
    digest = hashlib.sha256(receipt["body"].encode()).digest()
    receipt["headers"]["content-digest"] = f"sha-256=:{base64.b64encode(digest).decode()}:"
    return changed | {"receipt": json.dumps(receipt, separators=(",", ":")), "receipt_digest": digest.hex()}


def _more(row: Row, scene: Scene) -> dict[str, Any]:
    return _body(row, accepted=row["accepted"] + 5)


def _counts_of(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("accepted", "duplicates")}


def _duplicate(row: Row, scene: Scene) -> dict[str, Any]:
    """The peer is made to say that it had one of the events already."""
    counts = {"accepted": row["accepted"] - 1, "duplicates": row["duplicates"] + 1}
    return _with_digest(_body(row, **counts)) | counts


def _counts(row: Row, scene: Scene) -> dict[str, Any]:
    return {"accepted": row["accepted"] + 5, "sent": row["sent"] + 5}


def _signature(row: Row, scene: Scene) -> dict[str, Any]:
    receipt = json.loads(row["receipt"])
    wrong = base64.b64encode(hashlib.sha512(b"no key").digest()).decode()
    receipt["headers"]["signature"] = f"eventd=:{wrong}:"
    return {"receipt": json.dumps(receipt, separators=(",", ":"))}


def _other_range(row: Row, scene: Scene) -> dict[str, Any]:
    return {"upto": row["upto"] + 3}


def _duplicate_signed(row: Row, scene: Scene) -> dict[str, Any]:
    return _sign(_duplicate(row, scene), scene)


def _sign(changed: dict[str, Any], scene: Scene) -> dict[str, Any]:
    """Sign a receipt with the secret of `line`: each node that shares it can sign in the name of the others."""
    receipt = json.loads(changed["receipt"])
    secret = (scene.federation.keys / "line.secret").read_bytes().strip()
    made = base64.b64encode(hmac.digest(secret, _signed_text(receipt).encode(), "sha256")).decode()
    receipt["headers"]["signature"] = f"eventd=:{made}:"
    return changed | {"receipt": json.dumps(receipt, separators=(",", ":"))}


def _signed_text(receipt: Row) -> str:
    """Return the text that the signature of a stored receipt is made of."""
    params = receipt["headers"]["signature-input"].removeprefix("eventd=")
    return (
        f'"@status": {receipt["status"]}\n'
        f'"content-type": {receipt["headers"]["content-type"]}\n'
        f'"content-digest": {receipt["headers"]["content-digest"]}\n'
        f'"signature";req;key="eventd": {receipt["request"]}\n'
        f'"@signature-params": {params}'
    )


def _invent(scene: Scene, batch: str, *, signed: bool = False) -> None:
    """Give a batch another id at its sender, in receipt and deliveries, that the peer never answered; the body fits."""
    new = f"{batch[:-4]}0000"

    def rename(row: Row) -> dict[str, Any]:
        made = _with_digest(_body(row, batch=new))
        return {**row, **(_sign(made, scene) if signed else made), "batch_id": new}

    scene.lake.change("receipts", "a", lambda row: row["batch_id"] == batch, rename)
    scene.lake.change("deliveries", "a", lambda row: row["batch_id"] == batch, lambda row: row | {"batch_id": new})


def _add(change: Callable[[Row, Scene], dict[str, Any]]) -> Callable[[Scene], None]:
    """Return a damage: a changed copy of a receipt of `a` is added to its ledger."""

    def inflict(scene: Scene) -> None:
        batch = scene.pick(EDGE)
        rows = (row for segment in scene.lake.segments("receipts", "a") for row in segment.rows())
        row = next(row for row in rows if row["batch_id"] == batch)
        scene.lake.add("receipts", "a", [row | change(row, scene)])

    return inflict


def _other_number(row: Row, scene: Scene) -> dict[str, Any]:
    """Give a receipt the number of a batch to another peer."""
    return {"number": scene.pick("SELECT number FROM before.receipts WHERE node = 'a' AND peer = 'c'")}


def _second_of_peer(row: Row, scene: Scene) -> dict[str, Any]:
    """Sign another receipt of the batch with the peer's own key."""
    changed = _duplicate(row, scene)
    receipt = json.loads(changed["receipt"])
    key = load_pem_private_key((scene.federation.keys / "b.pem").read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    made = base64.b64encode(key.sign(_signed_text(receipt).encode())).decode()
    receipt["headers"]["signature"] = f"eventd=:{made}:"
    return changed | {"receipt": json.dumps(receipt, separators=(",", ":"))}


def _at_receiver(scene: Scene) -> None:
    batch = scene.pick("SELECT batch_id FROM before.inbound WHERE node = 'b' AND peer = 'a' AND \"group\" = 'edge'")

    def edit(row: Row) -> dict[str, Any]:
        body = json.loads(row["receipt"]) | {"accepted": row["accepted"] + 1}
        return {**row, "receipt": json.dumps(body, separators=(",", ":"))}

    scene.lake.change("inbound", "b", lambda row: row["batch_id"] == batch, edit)


def _at_both_ends(query: str, change: Callable[[Row, Scene], dict[str, Any]]) -> Callable[[Scene], None]:
    """Return a damage: sender and receiver agree on another receipt of a batch from `a` to `b`."""

    def inflict(scene: Scene) -> None:
        batch = scene.pick(query)
        made: dict[str, Any] = {}

        def at_sender(row: Row) -> dict[str, Any]:
            made.update(row | change(row, scene))
            return made

        def at_receiver(row: Row) -> dict[str, Any]:
            body = json.loads(made["receipt"])["body"]
            return {**row, "receipt": body, "receipt_digest": made["receipt_digest"], **_counts_of(made)}

        scene.lake.change("receipts", "a", lambda row: row["batch_id"] == batch, at_sender)
        scene.lake.change("inbound", "b", lambda row: row["batch_id"] == batch, at_receiver)
        digest = {"receipt_digest": made["receipt_digest"]}
        scene.lake.change("deliveries", "a", lambda row: row["batch_id"] == batch, lambda row: row | digest)

    return inflict


_INBOUND_CHANGED = """
    SELECT 'forged', node, batch_id FROM before.inbound b JOIN after.inbound a USING (node, peer, batch_id)
    WHERE a IS DISTINCT FROM b
"""
_NEW_BATCH = "SELECT 'forged', node, batch_id FROM after.receipts ANTI JOIN before.receipts USING (node, batch_id)"
_OLD_BATCH = """
    SELECT 'erased', node, batch_id FROM before.receipts ANTI JOIN after.receipts USING (node, batch_id)
    UNION SELECT 'disagreement', node, batch_id FROM before.receipts ANTI JOIN after.receipts USING (node, batch_id)
    UNION SELECT 'erased', node, batch_id FROM after.receipts ANTI JOIN before.receipts USING (node, batch_id)
"""

_REPEATED = "SELECT 'forged', node, batch_id FROM after.receipts WHERE batch_id <> '' GROUP BY ALL HAVING count(*) > 1"

RECEIPTS = (
    Damage(
        "receipt-body-edited",
        "the counts in a receipt are edited, its digest stays",
        "the digest of the receipt's body",
        _change(EDGE, _more),
        wanted=CHANGED,
    ),
    Damage(
        "receipt-and-digest-edited",
        "the counts in a receipt are edited, with digests that fit; the audit has no keys",
        "the peer's ledger, which has another digest for the batch",
        _change(EDGE, _duplicate),
        wanted=_DISAGREES,
        allowed=f"{CHANGED} UNION {CHANGED.replace('forged', 'erased')}",
    ),
    Damage(
        "receipt-edited-under-keys",
        "the counts in a receipt are edited, with digests that fit; the audit has the keys",
        "the signature of the receipt",
        _change(EDGE, _duplicate),
        wanted=CHANGED,
        allowed=f"{_DIFFERS} UNION {CHANGED.replace('forged', 'erased')}",
        keys=True,
    ),
    Damage(
        "receipt-counts-edited",
        "the counts in the row of a receipt are edited, the receipt stays",
        "the body of the receipt",
        _change(EDGE, _counts),
        wanted=CHANGED,
        allowed=CHANGED.replace("forged", "erased"),
    ),
    Damage(
        "receipt-range-edited",
        "the range in the row of a receipt is edited, the receipt stays",
        "the body of the receipt",
        _change(EDGE, _other_range),
        wanted=CHANGED,
        allowed=_DIFFERS,
    ),
    Damage(
        "receipt-signature-replaced",
        "the signature of a receipt is replaced; the audit has the keys",
        "the signature of the receipt",
        _change(EDGE, _signature),
        wanted=CHANGED,
        keys=True,
    ),
    Damage(
        "receipt-signed-by-sender",
        "the sender signs a receipt of its peer with the secret that both share",
        "the peer's ledger, which has another digest for the batch; the signature proves nothing to others",
        _change(LINE, _duplicate_signed),
        wanted=_DISAGREES,
        allowed=f"{CHANGED} UNION {CHANGED.replace('forged', 'erased')}",
        keys=True,
    ),
    Damage(
        "receipt-invented",
        "a receipt names a batch that the peer never answered",
        "the peer's ledger, which has no such batch",
        lambda scene: _invent(scene, scene.ledgers.column(EDGE)[1]),
        wanted=_NEW_BATCH,
        allowed=_OLD_BATCH,
    ),
    Damage(
        "receipt-invented-lately",
        "the same in the last minutes before the audit",
        "the peer's ledger, which has no such batch",
        lambda scene: _invent(scene, scene.ledgers.column(EDGE)[-1]),
        wanted=_NEW_BATCH,
        allowed=_OLD_BATCH,
    ),
    Damage(
        "receipt-invented-with-secret",
        "the sender signs a receipt of a batch that the peer never answered with the secret that both share",
        "the peer's ledger, which has no such batch; the signature proves nothing to others",
        lambda scene: _invent(scene, scene.ledgers.column(LINE)[1], signed=True),
        wanted=_NEW_BATCH.replace("forged", "disagreement"),
        allowed=_OLD_BATCH,
        keys=True,
    ),
    Damage(
        "receipt-added",
        "a second receipt of a batch is added, whose digests fit",
        "the first receipt: a peer gives one for a batch; the peer's ledger, which has another digest for the batch",
        _add(_duplicate),
        wanted=_REPEATED,
    ),
    Damage(
        "receipt-added-by-peer",
        "a second receipt of a batch is added, which the peer has signed; the audit has the keys",
        "the first receipt: a peer gives one for a batch",
        _add(_second_of_peer),
        wanted=_REPEATED.replace("forged", "disagreement"),
        keys=True,
    ),
    Damage(
        "receipt-copied",
        "a receipt is added once more under the number of another batch; the audit has the keys",
        "the number of the first one: a sender keeps a receipt once",
        _add(_other_number),
        wanted=_REPEATED,
        keys=True,
    ),
    Damage(
        "inbound-receipt-edited",
        "the receipt in the receiver's own ledger is edited",
        "its digest",
        _at_receiver,
        wanted=_INBOUND_CHANGED,
    ),
    Damage(
        "receipt-edited-at-both-ends",
        "a receipt is edited at both ends alike; the audit has no keys",
        "",
        _at_both_ends(EDGE, _duplicate),
        blind=True,
    ),
    Damage(
        "receipt-edited-at-both-ends-under-keys",
        "a receipt is edited at both ends alike; the audit has the keys",
        "the signature of the receipt",
        _at_both_ends(EDGE, _duplicate),
        wanted=CHANGED,
        allowed=_INBOUND_CHANGED,
        keys=True,
    ),
    Damage(
        "receipt-signed-at-both-ends",
        "both ends agree on another receipt and sign it with the secret that they share",
        "",
        _at_both_ends(LINE, _duplicate_signed),
        blind=True,
        keys=True,
    ),
)
