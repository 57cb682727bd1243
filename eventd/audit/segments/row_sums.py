"""Sums of the rows of a segment, by which a later audit compares it with another segment that has the same rows.

Compaction copies rows to another file, so the digest of the file does not show that they are still the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers
from eventd.audit.arrays.row_hash import RowHash, contents, outlines
from eventd.lake.schema import COLUMNS, ColumnType, Ledger

SUMS: Final = 1
"""The version of the sums: to be raised whenever a row gets another hash. Sums of other versions are not compared."""

_CONTENT: Final = ("id", "type", "event_at", "bytes", "fingerprint", "subject", "expires_at", "digest")
"""The columns of `events` that `contents` covers."""
_OUTLINE: Final = _CONTENT[:5]
"""The columns of `deliveries` that `outlines` covers."""
_SUMMED: Final[dict[Ledger, tuple[str, ...]]] = {
    Ledger.EVENTS: ("position", "group", "seq", "source", "own", "recorded_at"),
    Ledger.DELIVERIES: (
        *("number", "group", "peer", "source", "attempts", "outcome", "recorded_at", "attempt_at", "done_at"),
        "peer_recorded_at",
    ),
    Ledger.RECEIPTS: (
        *("number", "group", "peer", "batch_id", "after", "upto", "repair", "sent", "accepted", "duplicates"),
        *("selector_version", "selection", "attempts", "sent_at", "acked_at", "peer_recorded_at", "status"),
        *("protocol", "key_id", "receipt_alg", "receipt_digest"),
    ),
    Ledger.INBOUND: (
        *("number", "group", "peer", "batch_id", "link_epoch", "after", "upto", "repair", "accepted"),
        *("duplicates", "key_id", "recorded_at", "receipt_digest"),
    ),
    Ledger.GAPS: ("number", "group", "peer", "gap_epoch", "after", "upto", "reason", "recorded_at"),
    Ledger.REFUSALS: ("number", "group", "peer", "reason", "count", "first_at", "last_at"),
}
"""The columns that are summed besides; first the one with the row's number. Payloads and receipts are not summed: their
digests stand for them.
"""
_COVERED: Final = {Ledger.EVENTS: _CONTENT, Ledger.DELIVERIES: _OUTLINE}


class RangeSum(msgspec.Struct, frozen=True, array_like=True):
    """The number of rows with numbers in (after, upto], and the sum of their hashes, in 64 bits."""

    after: int
    upto: int
    rows: int
    total: int


def summed_columns(book: Ledger) -> tuple[str, ...]:
    """Return the names of the columns of a ledger that are summed."""
    return (*_SUMMED[book], *_COVERED.get(book, ()))


def range_sums(book: Ledger, table: Columns, ranges: Iterable[tuple[int, int]], key: bytes) -> list[RangeSum]:
    """Return the sums of the rows in each range (after, upto]. `key`: that of the hashes, see `row_hash`."""
    if not table.rows:
        return [RangeSum(*one, 0, 0) for one in ranges]
    numbers, hashes = table.numbers(_SUMMED[book][0]), _hashes(book, table, key)
    order = np.argsort(numbers, kind="stable")
    numbers, totals = numbers[order], np.concatenate((np.zeros(1, np.int64), np.cumsum(hashes[order])))
    bounds = np.array([*ranges], np.int64).reshape(-1, 2)
    first, last = (np.searchsorted(numbers, bounds[:, side], side="right") for side in (0, 1))
    found = np.stack((bounds[:, 0], bounds[:, 1], last - first, totals[last] - totals[first]), axis=1)
    return [RangeSum(*row) for row in found.tolist()]


def _hashes(book: Ledger, table: Columns, key: bytes) -> Numbers:
    """Return a hash of each row, of all summed columns."""
    made = RowHash(key, table.rows)
    if book in _COVERED:  # the cells have computed these hashes already
        outline = outlines(table, key)
        made.add_numbers("event", contents(table, outline, key) if book is Ledger.EVENTS else outline)
    types = {column.name: column.type for column in COLUMNS[book]}
    for name in _SUMMED[book]:
        match types[name]:
            case ColumnType.WORD:
                words = table.words(name)
                made.add_words(name, words.values, words.codes)
            case ColumnType.STRING:
                made.add_texts(name, table.texts(name))
            case ColumnType.BOOL:
                made.add_numbers(name, table.booleans(name))
            case _:
                made.add_numbers(name, table.numbers(name))
    return made.sums()
