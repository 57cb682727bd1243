"""The sums of rows that a later audit compares with those of another segment."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from eventd.audit.arrays.columns import Columns
from eventd.audit.segments.row_sums import SUMS, RangeSum, range_sums, summed_columns
from eventd.lake.schema import COLUMNS, ColumnType, Ledger
from tests.support.lakes import table

KEY = bytes(range(16))
OTHER: dict[ColumnType, Any] = {
    ColumnType.INT64: 7,
    ColumnType.INT32: 7,
    ColumnType.INT16: 7,
    ColumnType.BOOL: True,
    ColumnType.STRING: "other",
    ColumnType.WORD: "other",
    ColumnType.TIME: 7,
    ColumnType.DIGEST: bytes(31) + b"\1",
}
NUMBERED = [(book, "position" if book is Ledger.EVENTS else "number") for book in Ledger]


def sums(book: Ledger, rows: pa.Table, *ranges: tuple[int, int]) -> list[RangeSum]:
    return range_sums(book, Columns(rows), ranges, KEY)


def numbered(book: Ledger, number: str, *numbers: int) -> pa.Table:
    return table(book, [{number: at} for at in numbers])


@pytest.mark.parametrize(
    ("book", "name"),
    [(book, name) for book in Ledger for name in summed_columns(book) if (book, name) not in NUMBERED],
    ids=str,
)
def test_each_column_changes_the_sum(book: Ledger, name: str) -> None:
    kind = next(column.type for column in COLUMNS[book] if column.name == name)
    (whole,) = sums(book, table(book, [{}, {}]), (0, 1))
    (changed,) = sums(book, table(book, [{}, {name: OTHER[kind]}]), (0, 1))
    assert (whole.rows, changed.rows) == (2, 2)
    assert whole.total != changed.total


def test_all_columns_are_summed_that_no_digest_stands_for() -> None:
    left_out = {column.name for book in Ledger for column in COLUMNS[book] if column.name not in summed_columns(book)}
    assert left_out == {"node", "epoch", "payload", "dedupe_key", "receipt", "tree", "leaf"}


@pytest.mark.parametrize(("book", "number"), NUMBERED, ids=str)
def test_the_sums_of_neighbouring_ranges_add_up_in_any_order_of_rows(book: Ledger, number: str) -> None:
    rows = numbered(book, number, 9, 3, 4, 10, 3)
    whole, first, second, none = sums(book, rows, (0, 10), (0, 4), (4, 10), (4, 8))
    assert (whole.rows, first.rows, second.rows) == (5, 3, 2)
    assert (first.total + second.total - whole.total) % (1 << 64) == 0
    assert (none.rows, none.total) == (0, 0)
    assert sums(book, numbered(book, number, 3, 3, 4), (0, 4)) == [first]


@pytest.mark.parametrize(("book", "number"), NUMBERED, ids=str)
def test_a_row_of_another_number_is_another_row(book: Ledger, number: str) -> None:
    (one,) = sums(book, numbered(book, number, 3, 4), (0, 10))
    (other,) = sums(book, numbered(book, number, 3, 5), (0, 10))
    assert (one.rows, other.rows) == (2, 2)
    assert one.total != other.total


def test_no_rows_have_no_sum_and_another_key_has_another() -> None:
    empty = table(Ledger.EVENTS, [])
    assert sums(Ledger.EVENTS, empty, (0, 5)) == [RangeSum(0, 5, 0, 0)]
    rows = Columns(table(Ledger.EVENTS, [{}]))
    (one,) = range_sums(Ledger.EVENTS, rows, [(0, 1)], KEY)
    (other,) = range_sums(Ledger.EVENTS, rows, [(0, 1)], bytes(16))
    assert one.total != other.total


def test_the_sums_of_this_version_are_these() -> None:
    """A history keeps them for later versions of the program: whoever changes one raises `SUMS`."""
    rows = {book: table(book, [{}, {number: 2}]) for book, number in NUMBERED}
    found = {book.value: range_sums(book, Columns(rows[book]), [(0, 9)], KEY)[0].total for book in Ledger}
    assert SUMS == 2
    assert found == {
        "events": -7946281464471361548,
        "deliveries": -2169580334318552499,
        "receipts": 6247228177657062702,
        "inbound": -4407684150872251900,
        "gaps": 7080673718038618182,
        "refusals": 1255151107702485613,
        "history": 4604764436019190495,
    }
