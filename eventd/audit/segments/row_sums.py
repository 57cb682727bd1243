"""Sums of the rows of a segment, by which a later audit compares it with another segment that has the same rows.

Compaction copies rows to another file, so the digest of the file does not show that they are still the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers
from eventd.audit.arrays.row_hash import CONTENT, OUTLINE, RowHash, contents, outlines
from eventd.lake.manifest import Int64, Number
from eventd.lake.schema import COLUMNS, LEAVES, ColumnType, Ledger

SUMS: Final = 2
"""The version of the sums: to be raised whenever a row gets another hash. Sums of other versions are not compared."""

_COVERED: Final = {Ledger.EVENTS: CONTENT, Ledger.DELIVERIES: OUTLINE}
_UNSUMMED: Final = frozenset({"node", "epoch", "payload", "dedupe_key", "receipt", *LEAVES})
"""The columns that are not summed: a ledger has one node and epoch; digests stand for payloads, keys and receipts, and
checkpoints for leaves."""
_NUMBERS: Final = {Ledger.EVENTS: "position"}
"""The column with the row's number in (after, upto], unless it is `number`."""


class RangeSum(msgspec.Struct, frozen=True, array_like=True):
    """The number of rows with numbers in (after, upto], and the sum of their hashes, in 64 bits."""

    after: Number
    upto: Number
    rows: Number
    total: Int64


def summed_columns(book: Ledger) -> tuple[str, ...]:
    """Return the names of the columns of a ledger that are summed."""
    return tuple(column.name for column in COLUMNS[book] if column.name not in _UNSUMMED)


def range_sums(book: Ledger, table: Columns, ranges: Iterable[tuple[int, int]], key: bytes) -> list[RangeSum]:
    """Return the sums of the rows in each range (after, upto]. `key`: that of the hashes, see `row_hash`."""
    if not table.rows:
        return [RangeSum(*one, 0, 0) for one in ranges]
    numbers, hashes = table.numbers(_NUMBERS.get(book, "number")), _hashes(book, table, key)
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
    covered = _UNSUMMED.union(_COVERED.get(book, ()))
    for name, kind in ((column.name, column.type) for column in COLUMNS[book] if column.name not in covered):
        match kind:
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
