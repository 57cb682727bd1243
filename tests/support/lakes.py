"""Rows and segments for tests of the lake: small, and valid in every column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from eventd.lake.layout import landing
from eventd.lake.manifest import NodeState, SegmentRange
from eventd.lake.schema import COLUMNS, LEAVES, Column, ColumnType, Ledger, arrow_schema
from eventd.lake.storage import Storage, make_lake
from eventd.lake.writer import Segment, write_segment, write_state
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND

EPOCH = "aaaaaaaaaaaaaaaa"
NOON = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()) * SECOND
"""A time of the tests, in microseconds."""

_PLAIN: Mapping[ColumnType, Any] = {
    ColumnType.INT64: 1,
    ColumnType.INT32: 1,
    ColumnType.INT16: 200,
    ColumnType.BOOL: False,
    ColumnType.STRING: "s",
    ColumnType.WORD: "w",
    ColumnType.TIME: NOON,
    ColumnType.DIGEST: bytes(32),
}


def table(book: Ledger, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows of a ledger table; columns that are not given have a default."""
    columns = [pa.array([_value(column, row) for row in rows], _type(book, column)) for column in COLUMNS[book]]
    return pa.table(columns, schema=arrow_schema(book))


def _type(book: Ledger, column: Column) -> pa.DataType:
    return arrow_schema(book).field(column.name).type


def _value(column: Column, row: Mapping[str, Any]) -> Any:
    return row.get(column.name, None if column.null and column.name in LEAVES else _PLAIN[column.type])


def numbered(
    book: Ledger, numbers: Sequence[int], *, at: int = NOON, node: str = "site-a", epoch: str = EPOCH
) -> pa.Table:
    """Return rows with these numbers, all of one time."""
    times = {column.name: at for column in COLUMNS[book] if column.type is ColumnType.TIME}
    rows = [{"number": number, "position": number, "node": node, "epoch": epoch, **times} for number in numbers]
    return table(book, rows)


def ship(
    storage: Storage,
    after: int,
    upto: int,
    *,
    book: Ledger = Ledger.EVENTS,
    node: str = "site-a",
    epoch: str = EPOCH,
    at: int = NOON,
) -> Segment:
    """Write a segment with a row for each number in (after, upto]."""
    make_lake(storage, at, SYSTEM)
    rows = numbered(book, range(after + 1, upto + 1), at=at, node=node, epoch=epoch)
    return write_segment(storage, landing(book, node, epoch, after, upto, at=at), rows, node=node, now=at)


def ship_state(
    storage: Storage,
    upto: int,
    *,
    after: int = 0,
    book: Ledger = Ledger.EVENTS,
    node: str = "site-a",
    epoch: str = EPOCH,
    instance: str = "i",
    began_at: int = NOON,
    as_of: int = NOON,
    interval: int = 0,
) -> NodeState:
    """Write a node's state that promises the numbers in (after, upto] of one table."""
    make_lake(storage, began_at, SYSTEM)
    state = NodeState(
        node=node,
        epoch=epoch,
        instance=instance,
        began_at=began_at,
        as_of=as_of,
        head=upto,
        complete_until=as_of,
        books={book: upto},
        segments={book: SegmentRange(after=after, upto=upto)},
        interval=interval,
    )
    write_state(storage, state)
    return state
