"""Files of cells in the state: how they are written, and that one without cells counts as damaged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.segments import segment_jobs
from eventd.audit.segments.cell_files import read_cells
from eventd.lake.storage import connect
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, copy_generated
from tests.support.local_spark import run_audit

ENOUGH = 1 << 20
FILE = "state/cells-1/part-0.parquet"
"""A file that Spark wrote: the cells are in a column."""


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"other": [b"cells"]}, id="it has no cells"),
        pytest.param({"cells": pa.array([None], pa.binary())}, id="its cells are null"),
        pytest.param({"cells": [5]}, id="its cells are a number"),
        pytest.param({"cells": pa.array([], pa.binary())}, id="it has no row"),
        pytest.param({"cells": [b"one", b"two"]}, id="it has two rows"),
    ],
)
def test_a_parquet_file_of_another_program_holds_no_cells(tmp_path: Path, columns: dict[str, Any]) -> None:
    (tmp_path / FILE).parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), tmp_path / FILE, compression="none")
    assert read_cells(connect(str(tmp_path)), FILE, ENOUGH) == b""


def test_a_file_that_is_not_parquet_holds_no_cells(tmp_path: Path) -> None:
    storage = connect(str(tmp_path))
    storage.put(FILE, b"nothing")
    assert read_cells(storage, FILE, ENOUGH) == b""


def test_the_cells_are_those_of_the_only_row(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir(parents=True)
    pq.write_table(pa.table({"result": [b"result"], "cells": [b"cells"]}), tmp_path / FILE, compression="none")
    assert read_cells(connect(str(tmp_path)), FILE, ENOUGH) == b"cells"


def test_a_small_file_that_would_expand_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).parent.mkdir(parents=True)
    cells = pa.array([b"0" * (64 << 20)], pa.binary())
    pq.write_table(pa.table({"cells": cells}), tmp_path / FILE, compression="zstd", use_dictionary=False)
    size = (tmp_path / FILE).stat().st_size
    assert size < ENOUGH
    before = pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    assert read_cells(connect(str(tmp_path)), FILE, size) == b""
    assert pa.total_allocated_bytes() - before < ENOUGH
    assert pool.bytes_allocated() - before < ENOUGH


@pytest.mark.parametrize("file", [FILE, "state/cells-1.parquet"])
def test_a_file_that_has_grown_is_not_read(tmp_path: Path, file: str) -> None:
    storage = connect(str(tmp_path))
    storage.put(file, b"cells")
    os.truncate(tmp_path / file, 1 << 40)
    assert read_cells(storage, file, 5) == b""


@pytest.mark.parametrize(("enough", "is_one"), [(1 << 13, True), (1, False)])
def test_small_segments_share_a_row_group_until_it_has_enough_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enough: int, is_one: bool
) -> None:
    monkeypatch.setattr(segment_jobs, "_ROW_GROUP", enough)
    copy_generated(FullSettings(nodes=2, events=60, span=3600 * SECOND, segment_rows=15), str(tmp_path / "lake"))
    run_audit(AuditRequest(lake=str(tmp_path / "lake"), out=str(tmp_path / "out")))
    files = [pq.ParquetFile(path) for path in (tmp_path / "out" / "state").glob("cells-*.parquet")]
    segments = [len({*file.read()["segment"].to_pylist()}) for file in files]
    assert max(segments) > 1
    assert [file.num_row_groups for file in files] == [min(count, 1) if is_one else count for count in segments]
