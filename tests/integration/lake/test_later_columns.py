"""Segments of a later version, which has added columns, are read and not copied without these."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from eventd.lake.compaction import compacting
from eventd.lake.ledger_files import DAY
from eventd.lake.manifest import encode
from eventd.lake.reader import survey
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import Segment
from tests.support.lakes import NOON, ship, ship_state


def lake_with(folder: Path, *columns: tuple[str, pa.DataType, bool]) -> tuple[Storage, Segment]:
    """Return a lake whose segment of events has these columns at its end: name, type, and whether nullable."""
    storage = connect(str(folder))
    ship(storage, 0, 5)
    ship_state(storage, 5)
    (segment,) = survey(storage).segments
    file = folder / segment.place.data
    table = pq.read_table(file)
    for name, kind, nullable in columns:
        field = pa.field(name, kind, nullable)
        table = table.append_column(field, pa.array([None if nullable else 0] * len(table), kind))
    pq.write_table(table, file)
    data = file.read_bytes()
    manifest = replace(segment.manifest, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    (folder / segment.place.manifest).write_bytes(encode(manifest))
    return storage, Segment(segment.place, manifest)


def test_nullable_columns_that_a_later_version_added_are_skipped(tmp_path: Path) -> None:
    storage, segment = lake_with(tmp_path, ("weight", pa.int64(), True), ("salt", pa.binary(32), True))
    assert read_segment(storage, segment, ["id", "number"])["number"].to_pylist() == [1, 2, 3, 4, 5]
    with pytest.raises(BadSegment, match="columns of a later version: weight, salt"):
        read_segment(storage, segment)
    assert list(compacting(storage, [segment.manifest.node], now=NOON + 3 * DAY, after=1)) == []
    assert [one.place for one in survey(storage).segments] == [segment.place], "a copy would lack what they hold"


@pytest.mark.parametrize(
    "column",
    [("weight", pa.int64(), False), ("tree", pa.string(), True), ("weight", pa.list_(pa.int64()), True)],
    ids=["not nullable", "known", "a list"],
)
def test_other_columns_are_those_of_no_version(tmp_path: Path, column: tuple[str, pa.DataType, bool]) -> None:
    storage, segment = lake_with(tmp_path, column)
    with pytest.raises(BadSegment, match="has other columns"):
        read_segment(storage, segment, ["id"])
