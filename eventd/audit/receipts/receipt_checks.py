"""Checks the receipts of a segment: each text against its digest and its row and, with keys, its signature."""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers
from eventd.audit.receipts.receipt_terms import ReceiptTerms
from eventd.audit.report.findings import Discrepancy, Evidence, Kind
from eventd.lake.manifest import Number, Time
from eventd.lake.receivers import is_callback
from eventd.lake.schema import Ledger
from federation.errors import MessageError
from federation.event import micros
from federation.signing import StoredAnswer, verify_stored
from federation.wire import Receipt

ANSWER: Final = "the answer of the peer"
COPY: Final = "the peer's copy of its answer"
NO_TEXT: Final = "has no receipt that can be read"
OTHER_TEXT: Final = "is not the text that its digest was made of"
OTHER_ROW: Final = "differs from its row:"
RANGE: Final = "range"
MOST_FAULTS: Final = 1_000
"""Maximum number of faults of a segment that are named. The results of all segments are in memory at once, and in the
state of the audit, and all receipts of a lake may be invalid."""
_WORDS: Final = ("node", "peer", "group", "link_epoch", "receipt_digest")
_NUMBERS: Final = ("incarnation", "accepted", "duplicates", "refused", "upto")
_OF_RECEIPTS: Final = (*_WORDS, "protocol", "receipt_alg", "receipt_key_id")
_COUNTED: Final = (*_NUMBERS, "status", "sent", "peer_upto", "peer_recorded_at", "acked_at")
RECEIPT_TEXTS: Final = (*_OF_RECEIPTS, *_COUNTED, "batch_id", "receipt", "repair")
"""The columns of `receipts` that the check reads."""
INBOUND_TEXTS: Final = (*_WORDS, *_NUMBERS, "body_digest", "recorded_at", "batch_id", "receipt", "repair")
"""The columns of `inbound` that the check reads."""


class ReceiptCount(msgspec.Struct, array_like=True):
    """The receipts that `peer` gave `sender`, with one signature algorithm, and the results of their check.

    A receipt is `checked` if it was in the share. Then it is `verified` by its signature, or `invalid`, or neither:
    its text, digest and row agree, but the key that signed it was not given.
    """

    group: str
    sender: str
    peer: str
    algorithm: str
    count: Number = 0
    checked: Number = 0
    verified: Number = 0
    invalid: Number = 0


class ReceiptFault(msgspec.Struct, array_like=True):
    """A receipt that contradicts its digest, its row, or its signature. For `at` and `key_id` see `Evidence`."""

    group: str
    sender: str
    peer: str
    batch: str
    at: Time
    digest: str
    key_id: str
    detail: str

    @property
    def discrepancy(self) -> Discrepancy:
        """Return the fault as a discrepancy of the batch."""
        evidence = Evidence(self.sender, self.at, self.batch, self.digest, self.key_id)
        return Discrepancy(Kind.FORGED, self.group, self.sender, self.peer, 0, self.batch, self.detail, evidence)


class ReceiptResults(msgspec.Struct):
    """The results for the receipts in a segment of `receipts`, or for the copies (`of_copies`) in one of `inbound`.

    `faults` has the first `MOST_FAULTS` that are `invalid`.
    """

    of_copies: bool = False
    counts: list[ReceiptCount] = []
    faults: list[ReceiptFault] = []


class _StoredReceipt(msgspec.Struct, gc=False):
    body: str
    headers: dict[str, str] = {}
    status: int = 0
    request: str = ""


_STORED: Final = msgspec.json.Decoder(_StoredReceipt)
_BODY: Final = msgspec.json.Decoder(Receipt)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)


class _ReceiptRow(NamedTuple):
    """A row of `receipts` or `inbound`: the batch, its ends, and the text of its receipt; in `inbound`, only its body.

    `at` is when the receipt was recorded (microseconds). The receipt has to state what `stated` says.
    """

    group: str
    sender: str
    peer: str
    batch: str
    at: int
    digest: str
    algorithm: str
    key_id: str
    text: str
    upto: int
    repair: bool
    stated: Mapping[str, object]


def check_receipts(book: Ledger, table: Columns, terms: ReceiptTerms) -> ReceiptResults:
    """Count the receipts in a segment of `receipts` or `inbound`, and check the share that the terms demand."""
    counts: dict[tuple[str, str, str, str], ReceiptCount] = {}
    results = ReceiptResults(of_copies=book is Ledger.INBOUND)
    for row in _received(table) if book is Ledger.RECEIPTS else _copies(table):
        ends = (row.group, row.sender, row.peer, row.algorithm)
        count = counts.get(ends) or counts.setdefault(ends, ReceiptCount(*ends))
        count.count += 1
        if not is_chosen(row.batch, terms.percent):
            continue
        count.checked += 1
        fault = _fault_of(row, terms, count) if book is Ledger.RECEIPTS else _fault_of_copy(row)
        if fault:
            count.invalid += 1
            known = (row.group, row.sender, row.peer, row.batch, row.at, row.digest, row.key_id)
            if len(results.faults) < MOST_FAULTS:
                results.faults.append(ReceiptFault(*known, fault))
    results.counts = [counts[ends] for ends in sorted(counts)]
    return results


def verified_algorithms(table: Columns, terms: ReceiptTerms) -> dict[tuple[str, str, str, str], str]:
    """Return the receipts in rows of `receipts` that the keys of the terms verify, whatever share they demand.

    By group, peer, batch and digest, the signature algorithm of each.
    """
    found = {}
    for row in _received(table):
        count = ReceiptCount(row.group, row.sender, row.peer, row.algorithm)
        if not _fault_of(row, terms, count) and count.verified:
            found[row.group, row.peer, row.batch, row.digest] = row.algorithm
    return found


def texts_of(book: Ledger) -> tuple[str, ...]:
    """Return the names of the columns that the check of a ledger reads; none for a ledger without receipts."""
    return {Ledger.RECEIPTS: RECEIPT_TEXTS, Ledger.INBOUND: INBOUND_TEXTS}.get(book, ())


def is_chosen(batch: str, percent: float) -> bool:
    """Return whether the receipt of a batch is in the share to be checked: the same in each run, and at both ends."""
    return percent >= 100 or zlib.crc32(batch.encode()) < percent / 100 * (1 << 32)


# --- rows ---------------------------------------------------------------------------------------------------------


def _received(table: Columns) -> Iterator[_ReceiptRow]:
    """Yield the rows of `receipts` that have a receipt, or should have one: in protocol v2, an answer 200 of a peer
    contains a receipt.

    The endpoint of a callback signs no answer.
    """
    answered = table.words("protocol").where(lambda name: name == "v2") & (table.numbers("status") == 200)
    signed = (answered | table.words("receipt_digest").where(bool)) & ~table.words("peer").where(is_callback)
    for row in _rows(table, signed, _OF_RECEIPTS, _COUNTED):
        stated = _stated(row, row["node"], row["peer"], row["peer_recorded_at"]) | {
            "position of the link": row["peer_upto"],
            "number of events": row["sent"],
        }
        at = row["acked_at"] if row["peer_recorded_at"] == NEVER else row["peer_recorded_at"]
        names = (row["group"], row["node"], row["peer"], row["batch_id"], at, row["receipt_digest"])
        yield _ReceiptRow(*names, row["receipt_alg"], row["receipt_key_id"], *_rest(row), stated)


def _copies(table: Columns) -> Iterator[_ReceiptRow]:
    for row in _rows(table, np.ones(table.rows, bool), (*_WORDS, "body_digest"), (*_NUMBERS, "recorded_at")):
        stated = _stated(row, row["peer"], row["node"], row["recorded_at"]) | {
            "digest of the batch": row["body_digest"]
        }
        names = (row["group"], row["peer"], row["node"], row["batch_id"], row["recorded_at"], row["receipt_digest"])
        yield _ReceiptRow(*names, "", "", *_rest(row), stated)


def _rows(table: Columns, wanted: Mask, words: Sequence[str], numbers: Sequence[str]) -> Iterator[dict[str, Any]]:
    places = np.flatnonzero(wanted)
    columns: dict[str, Iterable[Any]] = {name: _texts(table, name, places) for name in words}
    columns |= {name: table.numbers(name)[places].tolist() for name in numbers}
    columns |= {name: table.some(name, wanted) for name in ("batch_id", "receipt")}
    columns["repair"] = table.booleans("repair")[places].tolist()
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _rest(row: Mapping[str, Any]) -> tuple[str, int, bool]:
    return row["receipt"], row["upto"], row["repair"]


def _texts(table: Columns, name: str, places: Numbers) -> list[str]:
    column = table.words(name)
    return [column.values[code] for code in column.codes[places].tolist()]


def _stated(row: Mapping[str, Any], sender: str, peer: str, recorded_at: int) -> dict[str, object]:
    return {
        "group": row["group"],
        "sender": sender,
        "peer": peer,
        "batch": row["batch_id"],
        "epoch": row["link_epoch"],
        "incarnation": row["incarnation"],
        "accepted": row["accepted"],
        "duplicates": row["duplicates"],
        "refused": row["refused"],
        "time": recorded_at,
    }


# --- checks -------------------------------------------------------------------------------------------------------


def _fault_of(row: _ReceiptRow, terms: ReceiptTerms, count: ReceiptCount) -> str:
    """Return the fault of a receipt; empty if it has none. Adds one to `verified` if its signature is valid."""
    try:
        stored = _STORED.decode(row.text or "")
        body = _BODY.decode(stored.body)
        total = body.accepted + body.duplicates + len(body.refused)
        found = _stated_in(body) | {
            "position of the link": NEVER if body.upto is None else body.upto,
            "number of events": total,
        }
        data = stored.body.encode()
    except _UNREADABLE:
        return f"{ANSWER} {NO_TEXT}"
    digest = hashlib.sha256(data)
    named = stored.headers.get("content-digest", "")
    if digest.hexdigest() != row.digest or b64encode(digest.digest()).decode() not in named:
        return f"{ANSWER} {OTHER_TEXT}"
    if found != row.stated or not _reaches(body, row):
        return f"{ANSWER} {OTHER_ROW} {_differences(found, row.stated) or RANGE}"
    signed = stored.headers.get("signature-input", "")
    if f'"{row.key_id}"' not in signed or f'"{row.algorithm}"' not in signed:
        return f"{ANSWER} {OTHER_ROW} key"
    ring = terms.rings.get(row.group)
    if ring is None or ring.find(row.key_id) is None:
        return ""
    try:
        key = verify_stored(StoredAnswer(stored.status, stored.headers, data, stored.request), row.peer, ring)
    except MessageError as error:
        return f"the signature of {ANSWER} does not verify: {error.message}"
    if key.algorithm != row.algorithm:  # a shared secret must not pass for a key that the peer alone has
        return f"{ANSWER} {OTHER_ROW} key"
    count.verified += 1
    return ""


def _fault_of_copy(row: _ReceiptRow) -> str:
    """Return the fault of a peer's copy of its answer; empty if it has none."""
    try:
        body = _BODY.decode(row.text or "")
        found = _stated_in(body) | {"digest of the batch": body.digest}
    except _UNREADABLE:
        return f"{COPY} {NO_TEXT}"
    if hashlib.sha256(row.text.encode()).hexdigest() != row.digest:
        return f"{COPY} {OTHER_TEXT}"
    if found == row.stated and _reaches(body, row):
        return ""
    return f"{COPY} {OTHER_ROW} {_differences(found, row.stated) or RANGE}"


def _reaches(body: Receipt, row: _ReceiptRow) -> bool:
    """Return whether the mark of the link reaches the end of the batch's range, as it does after every batch.

    A repair has no range, and a receipt for a batch of another epoch states no mark: these count as reaching it.
    """
    return row.repair or body.upto is None or body.upto >= row.upto


def _stated_in(body: Receipt) -> dict[str, object]:
    return {
        "group": body.group,
        "sender": body.from_node,
        "peer": body.to_node,
        "batch": body.batch,
        "epoch": body.epoch,
        "incarnation": body.incarnation,
        "accepted": body.accepted,
        "duplicates": body.duplicates,
        "refused": len(body.refused),
        "time": micros(body.recorded_at),
    }


def _differences(found: Mapping[str, object], stated: Mapping[str, object]) -> str:
    return ", ".join(name for name, value in found.items() if value != stated[name])
