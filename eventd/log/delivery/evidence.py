"""Decodes the receipts of batches, as the sender and the receiver store them; verifies no signature."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import NamedTuple

import msgspec

from federation.errors import MessageError
from federation.event import micros
from federation.peers import LABEL
from federation.structured import InnerList, parse_dictionary


class Proof(NamedTuple):
    """A receipt. `digest` is the SHA-256 of its text in hex, the same at both ends; `upto` is the receiver's mark.

    `upto` is None if the receipt names no mark. `accepted`, `duplicates` and `refused` are numbers of events;
    `recorded_at` is in microseconds, by the receiver's clock.
    """

    digest: str
    recorded_at: int
    accepted: int
    duplicates: int
    refused: int
    upto: int | None


class _Evidence(msgspec.Struct, gc=False):
    body: str
    headers: dict[str, str] = {}


class _Receipt(msgspec.Struct, rename="camel", gc=False):
    accepted: int
    duplicates: int
    refused: list[msgspec.Raw]
    recorded_at: datetime
    upto: int | None = None
    digest: str = ""


_EVIDENCE = msgspec.json.Decoder(_Evidence)
_RECEIPT = msgspec.json.Decoder(_Receipt)


def read_answer(text: str) -> Proof:
    """Return the receipt in the body of a response. Raises `msgspec.MsgspecError` for any other text."""
    receipt = _RECEIPT.decode(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    refused = len(receipt.refused)
    return Proof(digest, micros(receipt.recorded_at), receipt.accepted, receipt.duplicates, refused, receipt.upto)


def read_proof(evidence: str) -> Proof | None:
    """Return the receipt in the stored evidence of a batch; None if it holds none, as for v1."""
    try:
        return read_answer(_EVIDENCE.decode(evidence).body) if evidence else None
    except msgspec.MsgspecError:
        return None


def digest_of_batch(evidence: str) -> str | None:
    """Return the Content-Digest of the batch that the receipt in the stored evidence states; None without a receipt."""
    try:
        return _RECEIPT.decode(_EVIDENCE.decode(evidence).body).digest if evidence else None
    except msgspec.MsgspecError:
        return None


def read_signer(evidence: str) -> tuple[str, str] | None:
    """Return the key id and the algorithm that the signature in the stored evidence names; None without a signature."""
    try:
        signed = (
            parse_dictionary(_EVIDENCE.decode(evidence).headers["signature-input"]).get(LABEL) if evidence else None
        )
    except (msgspec.MsgspecError, MessageError, KeyError):
        return None
    if not isinstance(signed, InnerList):
        return None
    return str(signed.params.get("keyid", "")), str(signed.params.get("alg", ""))
