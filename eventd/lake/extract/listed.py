"""Converts table rows to ledger rows: `receipts` (from batches), `inbound`, `gaps` and `refusals`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventd.lake.extract.batches import BatchRow, Selections
from eventd.lake.extract.result import Columns, no_rows
from eventd.lake.extract.scope import LocalGroup, Scope
from eventd.lake.schema import COLUMNS, Ledger
from eventd.log.delivery.evidence import read_answer, read_proof, read_signer
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.errors import Malformed
from federation.ranges import Range

Row = Mapping[str, Any]

_INBOUND: Final = "id, topic_id, node, batch_id, key_id, covers, digest, receipt, recorded_at"
_GAPS: Final = "id, topic_id, node, epoch, after, upto, reason, recorded_at"
_REFUSALS: Final = "id, group_name, peer, key_id, reason, count, first_at, last_at"


def as_columns(book: Ledger, rows: Iterator[Row]) -> Columns:
    """Convert rows of a ledger to its columns."""
    columns = no_rows(book)
    for row in rows:
        for column in COLUMNS[book]:
            columns[column.name].append(row[column.name])
    return columns


def receipts(batches: Sequence[BatchRow], places: Scope, selections: Selections) -> Iterator[Row]:
    """Yield a row of `receipts` for each batch: the batch as sent to the peer, and the peer's answer."""
    for batch in batches:
        peer = places.peers[batch.cursor]
        proof, signer = read_proof(batch.receipt), read_signer(batch.receipt)
        yield _kept(batch.id, peer.place, places.epoch) | {
            "peer": peer.peer,
            "batch_id": batch.batch_id,
            "link_epoch": batch.epoch,
            "incarnation": batch.incarnation,
            "after": batch.after,
            "upto": batch.upto,
            "repair": bool(batch.picked),
            "sent": batch.events + (proof.refused if proof else 0),
            "accepted": proof.accepted if proof else None,
            "duplicates": proof.duplicates if proof else None,
            "refused": proof.refused if proof else None,
            "peer_upto": proof.upto if proof else None,
            "selector_version": batch.selector_version,
            "selection": selections.text(batch.cursor, batch.selector_version),
            "attempts": batch.attempts,
            "sent_at": batch.sent_at,
            "acked_at": batch.acked_at,
            "peer_recorded_at": proof.recorded_at if proof else None,
            "status": batch.status,
            "protocol": batch.protocol,
            "key_id": batch.key_id,
            "receipt_key_id": signer[0] if signer else None,
            "receipt_alg": signer[1] if signer else None,
            "receipt_digest": proof.digest if proof else "",
            "receipt": batch.receipt,
            "exceptions": json.dumps(sorted(batch.exceptions.items()), separators=(",", ":")),
        }


def inbound(rows: Sequence[Sequence[Any]], places: Scope) -> Iterator[Row]:
    """Yield the rows of `inbound`: this node's answers to batches of its peers, without groups outside the scope."""
    for number, topic_id, node, batch_id, key_id, covers, digest, receipt, recorded_at in rows:
        place = places.topics.get(topic_id)
        if place is not None:
            yield (
                _kept(number, place, places.epoch)
                | _answered(receipt)
                | _covered(covers)
                | {
                    "peer": node,
                    "batch_id": batch_id,
                    "key_id": key_id,
                    "body_digest": digest,
                    "recorded_at": recorded_at,
                    "receipt": receipt,
                }
            )


def _answered(receipt: str) -> dict[str, Any]:
    try:
        proof = read_answer(receipt)
    except msgspec.MsgspecError:  # no release of this program writes such a line
        return {"accepted": 0, "duplicates": 0, "refused": 0, "receipt_digest": ""}
    counts = {"accepted": proof.accepted, "duplicates": proof.duplicates, "refused": proof.refused}
    return counts | {"receipt_digest": proof.digest}


def _covered(text: str) -> dict[str, Any]:
    try:
        covers = Range.from_header(text)
    except Malformed:
        covers = Range(epoch="")
    return {
        "link_epoch": covers.epoch,
        "incarnation": covers.incarnation,
        "after": covers.after,
        "upto": covers.upto,
        "repair": covers.repair,
    }


def gaps(rows: Sequence[Sequence[Any]], places: Scope) -> Iterator[Row]:
    """Yield the rows of `gaps`, without groups outside the scope."""
    for number, topic_id, node, epoch, after, upto, reason, recorded_at in rows:
        place = places.topics.get(topic_id)
        if place is not None:
            yield _kept(number, place, places.epoch) | {
                "peer": node,
                "gap_epoch": epoch,
                "after": after,
                "upto": upto,
                "reason": reason,
                "recorded_at": recorded_at,
            }


def refused(rows: Sequence[Sequence[Any]], places: Scope) -> Iterator[Row]:
    """Yield the rows of `refusals`, without groups outside the scope."""
    groups = {place.group: place for place in places.topics.values()}
    for number, group, peer, key_id, reason, count, first_at, last_at in rows:
        if group in groups:
            yield _kept(number, groups[group], places.epoch) | {
                "peer": peer,
                "key_id": key_id,
                "reason": reason,
                "count": count,
                "first_at": first_at,
                "last_at": last_at,
            }


def _kept(number: int, place: LocalGroup, epoch: str) -> dict[str, Any]:
    return {"number": number, "node": place.node, "epoch": epoch, "group": place.group}


Lister = Callable[[Sequence[Sequence[Any]], Scope], Iterator[Row]]

LISTS: Final[Mapping[Ledger, tuple[str, str, Lister]]] = {
    Ledger.INBOUND: ("inbound_batches", _INBOUND, inbound),
    Ledger.GAPS: ("inbound_gaps", _GAPS, gaps),
    Ledger.REFUSALS: ("refusals", _REFUSALS, refused),
}
"""The table, columns and conversion of each ledger that is shipped as a list of rows."""


def read_list(conn: Connection, book: Ledger, places: Scope, after: int, rows: int) -> tuple[Columns, int, bool]:
    """Return up to `rows` rows after the number `after` as columns, the number reached, and whether more may exist."""
    table, names, lister = LISTS[book]
    found = fetch(conn, f"SELECT {names} FROM {table} WHERE id > ? ORDER BY id LIMIT ?", (after, rows))
    columns = as_columns(book, lister(found, places))
    return columns, found[-1][0] if found else after, len(found) == rows
