"""SQL views over the ledgers of a lake, in a real Spark: their rows, the files that Spark opens, and other readers."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eventd.audit.source.spark_columns import spark_schema
from eventd.audit.spark import locations
from eventd.audit.spark.locations import Location
from eventd.audit.views import lake_views, register_views
from eventd.errors import Invalid, LakeUnusable, NotFound
from eventd.lake.compaction import compacting
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger, arrow_schema, segment_schema
from eventd.lake.storage import Storage, connect
from tests.support.lakes import EPOCH, NOON, ship, ship_state
from tests.support.spark_plans import scanned

DAY = 86_400_000_000
ODD = "Site_C:1@edge.example"
"""A node whose folder does not begin with its name."""
SHORT = "_7"
ODD_NODES = (ODD, SHORT, *(f"Host{n}.example" for n in range(20)))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """Events of site-a on two days, of site-b on one, in the archive and in the landing; deliveries of site-a.

    The path has all characters that have a meaning in Spark's patterns of paths, and some that have one in addresses.
    """
    storage = connect(str(tmp_path_factory.mktemp("lakes") / "a [b] {c,d} %20 é*?" / "lake"))
    for after in range(0, 30, 10):
        ship(storage, after, after + 10)
    ship(storage, 30, 40, at=NOON + DAY)
    ship(storage, 0, 5, node="site-b", at=NOON + DAY)
    ship(storage, 0, 3, book=Ledger.DELIVERIES)
    ship_state(storage, 40)
    ship_state(storage, 5, node="site-b")
    assert [done.compacted for done in compacting(storage, ["site-a"], now=NOON + 2 * DAY, after=DAY // 2)] == [1, 3, 1]
    return storage


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session of its own, so that the views of one test are not those of another."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own


def rows(session: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.sql(query).collect()]


def files_read(session: SparkSession, query: str) -> int:
    """Return the number of files that a query opened."""
    return scanned(session.sql(query), "numFiles")


def test_each_row_is_there_once_while_the_landing_still_holds_what_is_archived(
    session: SparkSession, lake: Storage
) -> None:
    assert list(Path(lake.url).glob("landing/events/*/node=site-a*/*.parquet"))
    assert list(Path(lake.url).glob("archive/events/*/node=site-a*/*.parquet"))
    views = register_views(session, lake.url)
    assert (list(views.names), views.troubles) == ([*map(str, Ledger)], [])
    found = rows(session, "SELECT node, number, dt FROM events ORDER BY node, number")
    assert found == [
        *(("site-a", number, date(2026, 11, 20 + (number > 30))) for number in range(1, 41)),
        *(("site-b", number, date(2026, 11, 21)) for number in range(1, 6)),
    ]
    assert rows(session, "SELECT count(*) FROM deliveries") == [(3,)]


def test_a_view_has_the_columns_of_its_ledger_and_the_day(session: SparkSession, lake: Storage) -> None:
    """Those of a ledger without rows, too. The settings of the session are as before."""
    names = [f"spark.sql.sources.parallelPartitionDiscovery.{name}" for name in ("threshold", "parallelism")]
    before = [session.conf.get(name) for name in names]
    register_views(session, lake.url)
    assert [session.conf.get(name) for name in names] == before
    for book in Ledger:
        view = session.table(book.value)
        assert view.columns == [*arrow_schema(book).names, "dt"]
        assert [field.dataType for field in view.schema][:-1] == [field.dataType for field in spark_schema(book)]
        assert view.schema["dt"].dataType.simpleString() == "date"


def test_only_files_of_the_nodes_and_days_of_a_query_are_opened(session: SparkSession, lake: Storage) -> None:
    register_views(session, lake.url)
    events = "SELECT max(number) FROM events"
    assert files_read(session, events) == 3
    assert files_read(session, f"{events} WHERE node = 'site-b'") == 1
    assert files_read(session, f"{events} WHERE node LIKE 'site-a%' AND dt = DATE'2026-11-20'") == 1
    assert files_read(session, f"{events} WHERE dt > DATE'2026-11-20'") == 2
    assert files_read(session, f"{events} WHERE node IN ('site-c')") == 0


def test_a_condition_on_the_group_skips_row_groups_without_it(session: SparkSession, lake: Storage) -> None:
    """Files are opened, because their folders do not name the group."""
    register_views(session, lake.url)
    query = "SELECT max(number) FROM events WHERE `group` = '{}'"
    assert scanned(session.sql(query.format("w")), "numOutputRows") == 45
    assert scanned(session.sql(query.format("x")), "numOutputRows") == 0
    assert files_read(session, query.format("x")) == 3


def test_nodes_have_their_true_names_and_files_are_selected_by_them(session: SparkSession, tmp_path: Path) -> None:
    storage = connect(str(tmp_path / "lake"))
    nodes = ["site-a", *ODD_NODES]
    for node in nodes:
        ship(storage, 0, 1, node=node)
    register_views(session, storage.url)
    assert sorted(row[0] for row in rows(session, "SELECT node FROM events")) == sorted(nodes)
    for node in (ODD, SHORT, "site-a"):
        assert rows(session, f"SELECT node, number FROM events WHERE node = '{node}'") == [(node, 1)]
        assert files_read(session, f"SELECT max(number) FROM events WHERE node = '{node}'") == 1


def test_segments_that_do_not_count_are_left_out_and_named(session: SparkSession, tmp_path: Path) -> None:
    storage = connect(str(tmp_path / "lake"))
    ship(storage, 0, 10)
    unmanifested, damaged = ship(storage, 10, 20), ship(storage, 20, 30)
    ship_state(storage, 40)
    storage.delete([unmanifested.place.manifest])
    storage.put(damaged.place.data, b"not Parquet")
    views = register_views(session, storage.url)
    assert rows(session, "SELECT min(number), max(number), count(*) FROM events") == [(1, 10, 10)]
    assert views.segments == 1
    assert [(trouble.after, trouble.upto) for trouble in views.troubles] == [(10, 20), (20, 30), (30, 40)]


def test_views_hold_what_the_lake_had_until_they_are_registered_again(session: SparkSession, tmp_path: Path) -> None:
    storage = connect(str(tmp_path / "lake"))
    ship(storage, 0, 10)
    register_views(session, storage.url)
    ship(storage, 10, 20)
    assert rows(session, "SELECT count(*) FROM events") == [(10,)]
    register_views(session, storage.url)
    assert rows(session, "SELECT count(*) FROM events") == [(20,)]


def test_a_place_without_a_lake_is_reported(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no lake at"):
        register_views(session, str(tmp_path))


def test_an_address_is_listed_and_read_by_spark_alone(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory stands in for a store."""
    ship(connect(str(tmp_path / "lake")), 0, 10)
    monkeypatch.setattr(lake_views, "locate", lambda lake: Location(lake, by_spark=True))
    monkeypatch.setattr(locations, "connect", lambda url: pytest.fail("Python opens the lake"))
    assert register_views(session, str(tmp_path / "lake")).segments == 1
    assert rows(session, "SELECT node, count(*), max(number) FROM events GROUP BY node") == [("site-a", 10, 10)]


def test_a_lake_is_a_path_or_an_address(session: SparkSession, lake: Storage) -> None:
    assert register_views(session, Path(lake.locate(""))).segments
    with pytest.raises(Invalid, match="the lake is 3, which is not a path or an address"):
        register_views(session, 3)  # type: ignore[arg-type]


def test_an_address_that_spark_cannot_read_is_reported(session: SparkSession) -> None:
    with pytest.raises(LakeUnusable, match="memory://views/lake") as refused:
        register_views(session, "memory://views/lake")
    assert "spark.jars.packages" in refused.value.hint
    assert "--storage" not in refused.value.hint, "neither `audit sql` nor this function has this option"


# --- plain Parquet, as the page shows it ----------------------------------------------------------------------------


def test_plain_parquet_has_the_true_names_with_the_options_of_the_page(session: SparkSession, lake: Storage) -> None:
    reader = session.read.option("pathGlobFilter", "*.parquet").option("recursiveFileLookup", "true")
    plain = reader.option("__globPaths__", "false").parquet(f"{lake.url}/landing/events")
    assert plain.columns == segment_schema(Ledger.EVENTS, leaves=False).names
    assert {row.node for row in plain.select("node").distinct().collect()} == {"site-a", "site-b"}
    assert plain.count() == 45


def test_plain_parquet_without_them_shows_folders_as_nodes(session: SparkSession, lake: Storage) -> None:
    reader = session.read.option("pathGlobFilter", "*.parquet").option("__globPaths__", "false")
    plain = reader.parquet(f"{lake.url}/landing/events")
    folders = {one.place.slug for one in survey(lake).segments}
    assert {row.node for row in plain.select("node").distinct().collect()} == folders
    assert plain.schema["dt"].dataType.simpleString() == "date"


def test_plain_parquet_of_landing_and_archive_has_rows_twice(session: SparkSession, lake: Storage) -> None:
    reader = session.read.option("pathGlobFilter", "*.parquet").option("recursiveFileLookup", "true")
    both = [f"{lake.url}/{tree}/events" for tree in ("landing", "archive")]
    plain = reader.option("__globPaths__", "false").parquet(*both)
    assert plain.count() == 85
    assert plain.dropDuplicates(["node", "epoch", "number"]).count() == 45
    assert {row.epoch for row in plain.select("epoch").distinct().collect()} == {EPOCH}
