"""The result of reading a ledger: rows as columns, the number reached, and the rows that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eventd.lake.schema import COLUMNS, Ledger

Columns = dict[str, list[Any]]
"""Lists of equal length by column name: times in microseconds, digests as bytes, None for a missing value."""


class EvictedRows(NamedTuple):
    """A range of a group with rows that cannot be produced any more: they were deleted before they were read.

    `reason` is the ledger's name with a suffix: `_lost` if the events that the rows describe were evicted (then
    `after` and `upto` are positions), `_forgotten` if the rows themselves were deleted (then they are row numbers).
    About `missing` rows of `(after, upto]` are missing; 0 if unknown. `peer` is empty unless they concern one peer.
    """

    group: str
    peer: str
    epoch: str
    after: int
    upto: int
    missing: int
    reason: str


@dataclass(frozen=True, slots=True)
class Extract:
    """The rows of a ledger with numbers in `(after, upto]`.

    `columns` has every column of the ledger in its order. `full`: rows after `upto` may exist already. `upto` may lie
    beyond the last row, because the numbers between belong to other groups or topics, or to deleted rows. The caller
    that stores the rows must pass `lost` to `note_lost`.
    """

    book: Ledger
    after: int
    upto: int
    columns: Columns
    full: bool
    lost: Sequence[EvictedRows] = ()

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.columns["number"])


def no_rows(book: Ledger) -> Columns:
    """Return the empty columns of a ledger."""
    return {column.name: [] for column in COLUMNS[book]}
