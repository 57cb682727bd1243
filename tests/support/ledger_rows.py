"""Rows of ledgers for tests of the audit's parts, with the values of an event without faults where none are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from eventd.audit.arrays.columns import Columns
from eventd.audit.segments.link_rows import LinkRow, SelectionVersion
from eventd.lake.schema import COLUMNS, ColumnType, Ledger, arrow_schema

Row = dict[str, Any]
_EMPTY: dict[ColumnType, Any] = {
    ColumnType.INT64: 0,
    ColumnType.INT32: 0,
    ColumnType.INT16: 0,
    ColumnType.BOOL: False,
    ColumnType.STRING: "",
    ColumnType.WORD: "",
    ColumnType.TIME: 0,
    ColumnType.DIGEST: b"\0" * 32,
}
TO_B = LinkRow("g", "b", (SelectionVersion("{}"),), settled=100)
"""A link of `a` to `b` for all its events, which has passed the first hundred positions."""


def ledger_table(ledger: Ledger, rows: Sequence[Row]) -> pa.Table:
    """Return rows of a ledger as a table; a column that is not given is null, or empty if it may not be null."""
    columns = []
    for column, field in zip(COLUMNS[ledger], arrow_schema(ledger), strict=True):
        values = [row.get(column.name, None if column.null else _EMPTY[column.type]) for row in rows]
        form = pa.string() if column.type is ColumnType.WORD else field.type
        columns.append(pa.array(values, form).cast(field.type))
    return pa.Table.from_arrays(columns, schema=arrow_schema(ledger))


def columns_of(ledger: Ledger, rows: Sequence[Row]) -> Columns:
    """Return the columns of such a table."""
    return Columns(ledger_table(ledger, rows))


def fingerprint_of(number: int) -> int:
    """Return a fingerprint so large that sums of few of them wrap around."""
    return (number * 2**61 + 2**63) % 2**64 - 2**63


def event_row(number: int, **changes: Any) -> Row:
    """Return the row of an event that `a` emitted, in its own ledger."""
    row = {"node": "a", "group": "g", "source": "a", "type": "t", "own": True, "fingerprint": fingerprint_of(number)}
    return {**row, "number": number, "position": number, "seq": number, "id": f"e{number}", **changes}


def delivery_row(number: int, **changes: Any) -> Row:
    """Return the row of the delivery of this event to `b`, in the ledger of `a`."""
    row = {"node": "a", "group": "g", "peer": "b", "source": "a", "type": "t", "outcome": "delivered", "attempts": 1}
    row |= {"fingerprint": fingerprint_of(number)}
    return {**row, "number": number, "position": number, "id": f"e{number}", **changes}


def received_row(number: int, **changes: Any) -> Row:
    """Return the row of this event in the ledger of `b`."""
    return {**event_row(number), "node": "b", "own": False, "path": "a", **changes}
