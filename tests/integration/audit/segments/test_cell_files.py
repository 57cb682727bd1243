"""A file of the state that holds no cells counts as damaged: its digest is that of no file of cells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventd.audit.segments.cell_files import read_cells
from eventd.lake.storage import connect

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
