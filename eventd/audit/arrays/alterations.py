"""Compares rows of one event, of the ledgers of two nodes or of one. Free of input and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eventd.audit.arrays.columns import NEVER
from eventd.audit.arrays.row_hash import CONTENT, OUTLINE
from eventd.audit.report.findings import Evidence
from federation.event import format_time

Digest = bytes
"""A SHA-256: 32 bytes."""


class LedgerRow(NamedTuple):
    """A row of `events` or `deliveries`, with what it says of its event; times are in microseconds.

    A row of deliveries has no `subject`, `expires_at` and `digest`, and only such a row has a batch, a receipt and the
    key with which the batch was signed.
    """

    node: str
    epoch: str
    position: int
    id: str
    type: str
    event_at: int
    bytes: int
    fingerprint: int
    subject: str = ""
    expires_at: int = NEVER
    digest: Digest | None = None
    batch_id: str = ""
    receipt_digest: str = ""
    key_id: str = ""

    @classmethod
    def of(cls, columns: Mapping[str, Any] | None) -> LedgerRow | None:
        """Return the row of these columns; None without a node, which stands for no row."""
        return None if not columns or columns["node"] is None else cls(**columns)

    def is_of(self, other: LedgerRow) -> bool:
        """Return whether both rows are of one node and of one position of its log."""
        return self[:3] == other[:3]


def content_differences(one: LedgerRow, other: LedgerRow) -> tuple[str, ...]:
    """Return the names of the columns in which two rows of `events` of one event differ."""
    return tuple(name for name in CONTENT if getattr(one, name) != getattr(other, name))


def outline_differences(event: LedgerRow, delivery: LedgerRow) -> tuple[str, ...]:
    """Return the names of the columns in which a row of `events` and one of its deliveries differ."""
    return tuple(name for name in OUTLINE if getattr(event, name) != getattr(delivery, name))


def values_of(names: Sequence[str], one: LedgerRow, other: LedgerRow) -> tuple[str, ...]:
    """Return the values of both rows in these columns, as shown to operators: `column: value, value`."""
    return tuple(f"{name}: {_shown(one, name)}, {_shown(other, name)}" for name in names)


def _shown(row: LedgerRow, name: str) -> str:
    value = getattr(row, name)
    if name in ("event_at", "expires_at"):
        return format_time(None if value == NEVER else value)
    if name == "fingerprint":
        return hexadecimal(value)
    return value.hex() if isinstance(value, Digest) else repr(value) if isinstance(value, str) else str(value)


def hexadecimal(fingerprint: int) -> str:
    """Return a fingerprint as 16 hex digits: the beginning of its digest."""
    return f"{fingerprint & (1 << 64) - 1:016x}"


def evidence_of(
    source: LedgerRow | None,
    peer: LedgerRow | None,
    delivery: LedgerRow | None,
    *,
    sender: str,
    values: tuple[str, ...] = (),
) -> Evidence:
    """Return the evidence of the rows of an event at its source and at the peer, and of its delivery by `sender`."""
    known = next((row for row in (source, delivery, peer) if row is not None), None)
    fingerprints = tuple("" if row is None else hexadecimal(row.fingerprint) for row in (source or delivery, peer))
    return Evidence(
        sender=delivery.node if delivery is not None else sender,
        at=0 if known is None else known.event_at,
        batch="" if delivery is None else delivery.batch_id,
        receipt_digest="" if delivery is None else delivery.receipt_digest,
        key_id="" if delivery is None else delivery.key_id,
        fingerprints=fingerprints if any(fingerprints) else (),
        values=values,
    )
