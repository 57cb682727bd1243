"""An earlier report is read with all ids of its findings, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from eventd.audit.assembly.output_files import write_output
from eventd.audit.assembly.tables import schemas
from eventd.audit.report.file_names import FINDINGS as FILE
from eventd.audit.report.findings import MOST_IDS, EventEvidence, Finding, Kind
from eventd.audit.report.report import Report
from eventd.audit.review.earlier import read_earlier
from eventd.errors import Invalid, NotFound
from eventd.lake import page_sizes
from eventd.lake.file_sizes import TooLargeFile
from eventd.lake.storage import connect
from tests.support.audit_cases import MADE

MANY = tuple(f"e{number}" for number in range(MOST_IDS + 2))
FINDINGS = [
    Finding(Kind.MISSING, "edge", "a", "b", 1, len(MANY), MANY),
    Finding(Kind.ERASED, "edge", "a", "", 20_000, 20_001, (), "a hole", count=2),
    Finding(Kind.ERASED, "edge", "a", "", 20_005, 20_009, ("e5", "e7"), "a hole", count=5),
    Finding(
        *(Kind.ALTERED, "edge", "a", "b", 3, 3, ("e3",), "words"),
        evidence=(EventEvidence(id="e3", fingerprints=("1" * 16, "2" * 16)),),
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a report with more ids than report.json has."""
    made: Report = replace(MADE["clean"](), findings=tuple(one.shortened() for one in FINDINGS))
    write_output(connect(str(tmp_path)), made, FINDINGS, (), {})
    return tmp_path


@pytest.mark.parametrize("name", ["", "report.json"])
def test_ids_that_the_report_leaves_out_are_read_from_the_table(folder: Path, name: str) -> None:
    found = read_earlier(str(folder / name))
    assert found.findings == FINDINGS
    assert found.url == str(folder)
    assert found.sha256 == hashlib.sha256((folder / "report.json").read_bytes()).hexdigest()
    assert found.report.lake.url == "s3://audit/lake"


def test_a_report_with_more_events_than_a_lake_can_have_is_refused(folder: Path) -> None:
    whole = json.loads((folder / "report.json").read_text())
    whole["findings"][1]["count"] = 1 << 62
    (folder / "report.json").write_text(json.dumps(whole))
    with pytest.raises(Invalid, match="has a finding with 4,611,686,018,427,387,904 events: not a number from 0 to"):
        read_earlier(str(folder))


def test_a_report_that_lost_its_table_is_refused_if_it_needs_it(folder: Path) -> None:
    table = folder / "tables" / "findings" / "part-0.parquet"
    table.write_bytes(b"PAR1")
    with pytest.raises(Invalid, match="is not a table of findings"):
        read_earlier(str(folder))
    table.unlink()
    with pytest.raises(Invalid, match="has not all ids of its findings"):
        read_earlier(str(folder))
    whole = json.loads((folder / "report.json").read_text())
    whole["findings"] = whole["findings"][1:]
    (folder / "report.json").write_text(json.dumps(whole))
    assert read_earlier(str(folder)).findings == tuple(FINDINGS[1:])


def table_of(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schemas()["findings"])


def test_a_table_with_more_rows_than_the_report_has_events_is_refused(folder: Path) -> None:
    file = folder / "tables" / "findings" / "part-0.parquet"
    table = pq.read_table(file)
    pq.write_table(pa.concat_tables([table] * 3), file)
    with pytest.raises(Invalid, match=r"it has 30,018 rows, and report\.json has 10,010 events of findings"):
        read_earlier(str(folder))


@pytest.mark.parametrize("change", [{"detail": "x" * 100_000}, {"fingerprints": ["x" * 100_000]}])
@pytest.mark.parametrize("how", [{}, {"use_dictionary": False}])
def test_a_small_table_of_much_text_is_refused(
    folder: Path, change: dict[str, object], how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", 1 << 20)
    row: dict[str, object] = {"kind": "missing", "first": 1, "last": 1, "id": "a", "detail": "", "fingerprints": []}
    rows = [row | change] * 1000
    file = folder / "tables" / "findings" / "part-0.parquet"
    pq.write_table(table_of(rows), file, compression="zstd", **how)
    assert file.stat().st_size < 20_000
    with pytest.raises(Invalid, match="would take more than 1 MiB of memory"):
        read_earlier(str(folder))


def test_a_table_with_columns_of_other_types_is_refused(folder: Path) -> None:
    file = folder / "tables" / "findings" / "part-0.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("first")
    pq.write_table(table.set_column(at, "first", table["first"].cast(pa.string())), file)
    with pytest.raises(Invalid, match="its columns have other types"):
        read_earlier(str(folder))


@pytest.mark.parametrize(("path", "most"), [("report.json", "256 MiB"), (FILE, "2,048 MiB")])
def test_a_file_without_end_is_not_read(folder: Path, path: str, most: str) -> None:
    os.truncate(folder / path, 1 << 40)
    with pytest.raises(TooLargeFile, match=f"{path} in the report at .* has more than {most}"):
        read_earlier(str(folder))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', "\xff", '{"x": ' + "[" * 200_000])
def test_another_file_is_no_report(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text, encoding="latin-1")
    with pytest.raises(Invalid, match="is not a report: "):
        read_earlier(str(tmp_path))


def test_a_report_of_another_schema_is_refused(folder: Path) -> None:
    text = json.loads((folder / "report.json").read_text()) | {"schema": 2}
    (folder / "report.json").write_text(json.dumps(text))
    with pytest.raises(Invalid, match="has schema 2, and this program knows 1"):
        read_earlier(str(folder))


def test_no_report_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no report in"):
        read_earlier(str(tmp_path / "none"))
