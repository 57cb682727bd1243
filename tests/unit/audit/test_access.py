"""Whether Python or Spark reaches an address, and how Spark is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.audit.spark.access import Access
from eventd.audit.spark.locations import Location, require_apart
from eventd.audit.spark.spark_storage import path_below
from eventd.errors import Invalid


@pytest.mark.parametrize(
    ("url", "master", "by_spark"),
    [
        ("/srv/lake", "", False),
        ("s3://bucket/lake", "", False),
        ("s3://bucket/lake", "local[*]", False),
        ("s3://bucket/lake", "local", False),
        ("s3://bucket/lake", "local-cluster[2,1,1024]", True),
        ("hdfs://head/lake", "spark://head:7077", True),
        ("/srv/lake", "spark://head:7077", False),
        ("file:///srv/lake", "yarn", False),
    ],
)
def test_spark_reads_addresses_on_a_cluster_unless_something_else_is_asked_for(
    url: str, master: str, by_spark: bool
) -> None:
    assert Access.AUTO.is_by_spark(url, master) is by_spark
    assert Access.SPARK.is_by_spark(url, master)
    assert not Access.FSSPEC.is_by_spark(url, master)


@pytest.mark.parametrize(
    ("url", "spark_url"),
    [
        ("/srv/lake", "file:///srv/lake"),
        ("lake", f"file://{Path.cwd()}/lake"),
        ("s3://bucket/lake/", "s3a://bucket/lake"),
        ("abfss://lake@account/x", "abfss://lake@account/x"),
    ],
)
def test_an_address_is_written_as_spark_takes_it(url: str, spark_url: str) -> None:
    assert Location(url, by_spark=True).spark_url == spark_url
    assert Location(url, by_spark=True).for_spark("a/b") == f"{spark_url}/a/b"


def test_an_address_that_spark_takes_for_a_pattern_is_refused_without_its_password() -> None:
    with pytest.raises(Invalid, match="takes for a pattern") as refused:
        Location("s3://me:hush@bucket/{a,b}", by_spark=True).for_spark("a")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("lake", "out"),
    [
        ("/srv/lake", "/srv/lake"),
        ("/srv/lake", "/srv/lake/report"),
        ("/srv/lake", "/srv"),
        ("/srv/lake", "file:///srv/x/../lake/"),
        ("lake", f"{Path.cwd()}/lake/report"),
        ("s3://bucket/lake", "s3a://me:hush@bucket/lake/report?version=hush"),
        ("s3://bucket/a@b/lake", "s3a://me:hush@bucket/a@b/lake/report"),
        ("abfs://lake@account/edge", "abfss://lake@account/"),
        ("simplecache::s3://bucket/lake", "s3://bucket/lake//report"),
    ],
)
def test_an_output_to_which_nodes_could_write_is_refused(lake: str, out: str) -> None:
    with pytest.raises(Invalid, match="is, contains or lies in the lake") as refused:
        require_apart(Location(lake), Location(out, noun="output folder"))
    assert "hush" not in str(refused.value)


def test_an_output_that_a_link_leads_into_the_lake_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake" / "reports").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "lake" / "reports")
    with pytest.raises(Invalid):
        require_apart(Location(f"{tmp_path}/lake"), Location(f"{tmp_path}/link/today"))


@pytest.mark.parametrize(
    ("lake", "out"),
    [
        ("/srv/lake", "/srv/lake-report"),
        ("s3://bucket/lake", "s3://bucket/report"),
        ("hdfs://head:8020/one@x/lake", "hdfs://head:8020/two@x/lake"),
        ("s3://bucket/lake", "/bucket/lake"),
        ("abfss://lake@account/edge", "abfss://report@account/edge"),
    ],
)
def test_an_output_beside_the_lake_is_accepted(lake: str, out: str) -> None:
    require_apart(Location(lake), Location(out))


@pytest.mark.parametrize("address", ["file:/srv/lake/a/b", "file:///srv/lake/a/b", "viewfs://audit/srv/lake/a/b"])
def test_a_path_is_found_in_an_address_as_spark_reports_it(address: str) -> None:
    assert path_below("/srv/lake", address) == "a/b"
