"""Lakes and reports at addresses that only Spark reaches."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.state import INDEX
from eventd.audit.report.findings import Kind
from eventd.audit.report.report import Report
from eventd.audit.spark.access import Access
from eventd.audit.spark.locations import Location
from eventd.errors import LakeUnusable, NotFound
from eventd.lake.file_sizes import TooLargeFile
from eventd.lake.manifest import encode
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from eventd.lake.stored_files import Written
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, copy_generated
from tests.support.local_spark import run_audit
from tests.support.spark_mounts import mount
from tests.support.tampering import segments_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHA_OF_AB = "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603"
BOOKS = FullSettings(nodes=3, events=600, span=6 * 3600 * SECOND, segment_rows=300, lose=2, forge=1, duplicate=1)


@pytest.fixture(params=["viewfs", "file"])
def storage(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Storage:
    """The same folder as an address that needs Spark's settings, and as a path."""
    at = mount(spark, tmp_path) + "/lake" if request.param == "viewfs" else str(tmp_path / "lake")
    return Location(at, by_spark=True).open(spark)


# --- the storage ----------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_listed(storage: Storage, tmp_path: Path) -> None:
    storage.put("a/b/one", b"1")
    with storage.create("a/two") as draft:
        draft.write(b"a")
        draft.write(b"b")
        assert [file.path for file in storage.list("a")] == ["a/b/one"]
    assert draft.written == Written(2, SHA_OF_AB)
    storage.put("a/b/one", b"11")
    assert storage.list("a") == [("a/b/one", 2), ("a/two", 2)]
    assert storage.list("") == storage.list("a")
    assert storage.read_many(["a/two", "a/b/one", "a/none"]) == {"a/two": b"ab", "a/b/one": b"11"}
    assert storage.read_many([]) == {}
    assert (tmp_path / "lake" / "a" / "two").read_bytes() == b"ab"


def test_what_breaks_off_leaves_nothing_and_what_is_missing_is_named(storage: Storage) -> None:
    with suppress(ZeroDivisionError), storage.create("a/one") as draft:
        draft.write(b"a")
        raise ZeroDivisionError
    assert storage.list("a") == []
    with pytest.raises(NotFound, match="a/one is not in the lake at"):
        storage.read("a/one")


def test_a_file_of_more_bytes_than_wanted_is_not_read(storage: Storage) -> None:
    storage.put("a/two", b"ab")
    assert storage.read_within("a/two", 2) == b"ab"
    with pytest.raises(TooLargeFile, match="a/two in the lake at"):
        storage.read_within("a/two", 1)
    with pytest.raises(NotFound, match="a/none is not in the lake at"):
        storage.read_within("a/none", 2)


def test_what_is_deleted_is_gone_and_may_be_gone_before(storage: Storage, tmp_path: Path) -> None:
    storage.put("a/b/one", b"1")
    storage.put("a/two", b"2")
    storage.delete(["a/b/one", "a/none"])
    assert storage.list("a") == [("a/two", 1)]
    assert not (tmp_path / "lake" / "a" / "b").exists(), "an emptied folder is left"


def test_what_a_killed_writer_left_is_found_and_deleted(storage: Storage, tmp_path: Path) -> None:
    storage.put("state/index", b"1")
    (tmp_path / "lake" / "state" / ".index.tmp").write_bytes(b"2")
    (tmp_path / "lake" / "state" / "cells-1" / "_temporary" / "0").mkdir(parents=True)
    assert storage.list("state") == [("state/index", 1)]
    assert sorted(storage.unfinished("state")) == ["state/.index.tmp", "state/cells-1/_temporary"]
    storage.delete(storage.unfinished("state"))
    assert sorted(path.name for path in (tmp_path / "lake" / "state").glob("[!.]*")) == ["index"]


def test_an_address_that_spark_does_not_know_names_the_package_and_no_secret(spark: SparkSession) -> None:
    for url in ("s3://me:hush@bucket/lake", "abfss://lake@account.dfs.core.windows.net/x"):
        with pytest.raises(LakeUnusable, match="Spark has no file system for") as refused:
            Location(url, by_spark=True).open(spark).list("")
        assert "hush" not in str(refused.value)
        assert refused.value.hint.endswith(
            "under spark.jars.packages in the file spark-defaults.conf of SPARK_CONF_DIR"
        )


def test_only_audits_name_their_own_option_as_another_way(spark: SparkSession, tmp_path: Path) -> None:
    request = AuditRequest(lake="abfss://lake@account/x", out=str(tmp_path), access=Access.SPARK)
    with pytest.raises(LakeUnusable, match="Spark has no file system for") as refused:
        request.places(spark).lake.open(spark).list("")
    assert refused.value.hint.endswith("of SPARK_CONF_DIR, or use --storage fsspec")


# --- the audit ------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    copy_generated(BOOKS, str(tmp_path / "lake"))
    return tmp_path / "lake"


def request(at: str, access: Access = Access.SPARK) -> AuditRequest:
    return AuditRequest(lake=f"{at}/lake", out=f"{at}/out", access=access)


def told(report: Report) -> tuple[object, ...]:
    """Return the findings of a report, without how they were computed."""
    return (report.verdict, report.headline, report.totals, report.findings, report.pairs, report.hours, report.nodes)


def test_spark_reads_and_writes_what_python_does(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    """One state serves both: each continues where the other ended. One that was damaged is made anew."""
    other = run_audit(AuditRequest(lake=str(lake), out=str(tmp_path / "other")))
    at = mount(spark, tmp_path)
    first = run_audit(request(at), spark)
    assert told(first) == told(other)
    assert first.work.segments_read == first.lake.segments

    state = connect(str(tmp_path / "out"))
    cells = [file.path for file in state.list("state") if file.path != INDEX and file.path.endswith(".parquet")]
    assert cells
    assert {len(path.split("/")) for path in cells} == {3}, "Spark has not written them"
    for path in cells:
        state.put(path, bytes(reversed(state.read(path))))
        Path(tmp_path, "out", path).with_name(f".{Path(path).name}.crc").unlink()
    anew = run_audit(request(at), spark)
    assert (anew.work.segments_read, told(anew)) == (first.lake.segments, told(first))

    again = run_audit(request(str(tmp_path), Access.FSSPEC))
    assert (again.work.segments_read, told(again)) == (0, told(first))
    assert (tmp_path / "out" / "tables" / "findings" / "part-0.parquet").exists()


def test_damaged_segments_and_false_ranges_of_skipped_ones_are_found(spark: SparkSession, tmp_path: Path) -> None:
    copy_generated(replace(BOOKS, segment_rows=50, lose=0, forge=0, duplicate=0), str(tmp_path / "lake"))
    storage = connect(str(tmp_path / "lake"))
    at, since = mount(spark, tmp_path), BOOKS.start + 5 * 3600 * SECOND
    asked = dataclasses.replace(request(at), since=since)
    assert run_audit(asked, spark).verdict == "complete"
    changed = []
    for book in (Ledger.EVENTS, Ledger.DELIVERIES):
        segment = segments_of(storage, "site-01", book)[0]
        assert segment.manifest.slots is not None
        changed.append(segment.place.name)
        false = replace(segment.manifest, slots=(segment.manifest.slots[0] - 9, segment.manifest.slots[1] - 8))
        storage.put(segment.place.manifest, encode(false))
    damaged = segments_of(storage, "site-02", Ledger.DELIVERIES)[-1]
    storage.put(damaged.place.data, storage.read(damaged.place.data)[::-1])
    changed.append(damaged.place.name)
    found = run_audit(dataclasses.replace(asked, full=True), spark).findings
    assert sorted((one.kind, one.ids) for one in found) == [(Kind.CORRUPT, (name,)) for name in sorted(changed)]
