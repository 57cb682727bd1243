"""Delta tables of a report: what their readers get, earlier versions, and what is refused before an audit."""

from __future__ import annotations

import sys
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventd.audit.assembly.delta_tables import TableFormat, prepare_delta, write_delta_tables
from eventd.audit.assembly.tables import schemas
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.run import run_on
from eventd.audit.generate import GeneratorSettings, generate
from eventd.audit.report.file_names import DELTA
from eventd.errors import Invalid, LakeUnavailable, MissingExtra
from eventd.lake.storage import connect
from eventd.runtime.clock import SECOND
from tests.support.local_spark import run_audit

HOUR = 3600 * SECOND
ROWS = pa.table({"id": pa.array(["a", "b"], pa.string()), "at": pa.array([0, 1], pa.timestamp("us", tz="UTC"))})


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of two audits of a lake, which lost two events before the first and had them back in the second."""
    folder = tmp_path_factory.mktemp("audits")
    for lake, lost in (("lossy", 2), ("sound", 0)):
        generate(GeneratorSettings(nodes=3, events=600, span=3 * HOUR, lose=lost, seed=1), str(folder / lake))
        request = AuditRequest(str(folder / lake), str(folder / "out"), full=True, table_format=TableFormat.DELTA)
        report = run_audit(request)
        assert (report.totals.missing, report.settings.table_format) == (lost, "delta")
    return folder / "out"


@pytest.mark.parametrize("name", schemas())
def test_a_delta_table_has_the_rows_and_types_of_its_parquet_table(audited: Path, name: str) -> None:
    table = deltalake.DeltaTable(audited / DELTA / name)
    assert table.to_pyarrow_table() == pq.read_table(audited / "tables" / name)
    assert table.metadata().name == name


def test_each_audit_is_a_version_that_pandas_reads(audited: Path) -> None:
    table = deltalake.DeltaTable(audited / DELTA / "findings")
    assert table.version() == 1
    before = deltalake.DeltaTable(audited / DELTA / "findings", version=0).to_pandas()
    assert list(before.kind) == ["missing", "missing"]
    assert before.id.is_unique
    assert table.to_pandas().empty


def test_an_audit_without_the_option_writes_none(audited: Path, tmp_path: Path) -> None:
    run_audit(AuditRequest(str(audited.parent / "sound"), str(tmp_path)))
    assert not (tmp_path / DELTA).exists()


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingExtra, match="needs the package deltalake") as refused:
        prepare_delta(str(tmp_path))
    assert refused.value.hint == "in a clone: pip install '.[audit,delta]'"


@pytest.mark.parametrize("name", ["[a]", "a|b", "a^b", "100%", "a\\b"])
def test_a_path_that_the_package_does_not_understand_is_refused_before_the_audit(tmp_path: Path, name: str) -> None:
    """There is no lake, which the audit would report first."""
    request = AuditRequest(str(tmp_path / "lake"), str(tmp_path / name), table_format=TableFormat.DELTA)
    with pytest.raises(Invalid, match="has a character that the package deltalake does not understand"):
        run_on(request)


@pytest.mark.parametrize("name", ["a b", "é{c},d", "a@b#c?d&e=f", "a:b+c*d"])
def test_other_paths_are_written(tmp_path: Path, name: str) -> None:
    write_delta_tables(connect(str(tmp_path / name)), {"rows": ROWS})
    assert deltalake.DeltaTable(str(tmp_path / name / DELTA / "rows")).to_pyarrow_table() == ROWS


def test_a_store_that_cannot_be_written_is_named_without_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(LakeUnavailable, match=r"cannot write the Delta table rows to .*/file"):
        write_delta_tables(connect(str(tmp_path / "file")), {"rows": ROWS})
    with pytest.raises(LakeUnavailable) as refused:
        write_delta_tables(connect("memory://user:SECRET@host/out?token=SECRET"), {"rows": ROWS})
    assert "SECRET" not in str(refused.value)
