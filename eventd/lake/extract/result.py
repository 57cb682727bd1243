"""What a reader of a book gets: rows as columns, how far they go, and what is missing among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eventd.lake.schema import COLUMNS, Book

Columns = dict[str, list[Any]]
"""By the names of a book's columns, lists of one length: times in microseconds, digests as bytes, None for no value."""


class Lost(NamedTuple):
    """Facts of a group that cannot be told any more: retention was faster than the reader.

    `reason` is the book's name and how it happened: `_lost` when events are gone that its rows would tell of, and then
    the bounds are positions; `_forgotten` when rows themselves are, and then they are numbers of the book. Of what lies
    in `(after, upto]`, about `missing` rows are missing; 0 says that nobody knows how many. `peer` is blank where they
    are not about one.
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
    """The rows of a book with numbers in `(after, upto]`.

    `columns` has every column of the book in its order. `full` says that more may be waiting; `upto` may be beyond the
    last row, where nothing in between is of the book. `lost` is to be noted, with `note_lost`, by whoever passes it on.
    """

    book: Book
    after: int
    upto: int
    columns: Columns
    full: bool
    lost: Sequence[Lost] = ()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.columns["number"])


def no_rows(book: Book) -> Columns:
    """The columns of a book, to be filled."""
    return {column.name: [] for column in COLUMNS[book]}
