"""`routerctl audit sql` as a user's command: the forms of its output, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eventd.audit.views import lake_views
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from tests.integration.cli.conftest import Control
from tests.support.lakes import ship, ship_state
from tests.support.spark_cluster import quick_spark
from tests.support.spark_mounts import mount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTED = (
    "SELECT node, count(*) AS events, max(recorded_at) AS latest, nullif(node, node) AS none FROM events GROUP BY node"
)
VALUES = (
    "SELECT DATE'2026-11-20' AS day, X'00FF' AS bytes, 1.50 AS decimal, true AS yes, double('NaN') AS nothing,"
    " array(1, NULL) AS list, named_struct('at', TIMESTAMP'2026-11-20 12:00:00.5') AS inner, 'a, \"b\"' AS text"
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with three events of site-a."""
    folder = tmp_path_factory.mktemp("lakes") / "lake"
    storage = connect(str(folder))
    ship(storage, 0, 3)
    ship_state(storage, 3)
    return folder


@pytest.fixture
def on_spark(spark: SparkSession, control: Control) -> Control:
    """The command on a Spark that runs already, as in a notebook."""
    return control


def test_the_result_is_a_table_with_the_names_of_the_query(on_spark: Control, lake: Path) -> None:
    shown = on_spark("audit", "sql", COUNTED, "--lake", str(lake))
    assert shown.lines == [
        "node    events  latest                none",
        "site-a  3       2026-11-20T12:00:00Z  -",
    ]
    assert shown.err == ""
    bare = on_spark("audit", "sql", "-", "--lake", str(lake), "--no-headers", stdin="SELECT 7 AS number;\n")
    assert bare.lines == ["7"]


def test_other_programs_get_csv_json_and_yaml(on_spark: Control, lake: Path) -> None:
    asked = ("audit", "sql", VALUES, "--lake", str(lake), "-o")
    value = {
        "day": "2026-11-20",
        "bytes": "00ff",
        "decimal": "1.50",
        "yes": True,
        "nothing": None,
        "list": [1, None],
        "inner": {"at": "2026-11-20T12:00:00.500000Z"},
        "text": 'a, "b"',
    }
    assert on_spark(*asked, "json").json == [value]
    assert yaml.safe_load(on_spark(*asked, "yaml").out) == [value]
    assert on_spark(*asked, "csv").lines == [
        "day,bytes,decimal,yes,nothing,list,inner,text",
        '2026-11-20,00ff,1.50,true,,"[1, null]","{""at"": ""2026-11-20T12:00:00.500000Z""}","a, ""b"""',
    ]
    assert on_spark(*asked, "csv", "--no-headers").lines[0].startswith("2026-11-20,")


def test_the_views_are_those_of_the_command_alone(on_spark: Control, spark: SparkSession, lake: Path) -> None:
    on_spark("audit", "sql", "SELECT 1", "--lake", str(lake))
    assert not spark.catalog.tableExists(Ledger.EVENTS.value)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT evnt FROM events", "error: Spark refuses the query: [UNRESOLVED_COLUMN"),
        ("SELEKT 1", "error: Spark refuses the query: [PARSE_SYNTAX_ERROR]"),
        ("SELECT raise_error('it broke')", "error: the query failed in Spark: [USER_RAISED_EXCEPTION] it broke"),
    ],
)
def test_what_spark_refuses_is_one_line(on_spark: Control, lake: Path, query: str, told: str) -> None:
    ended = on_spark("audit", "sql", query, "--lake", str(lake), code=1)
    (line,) = ended.err.splitlines()
    assert line.startswith(told)
    assert ended.out == ""


@pytest.mark.parametrize(("form", "out"), [("csv", ""), ("json", "[]\n")])
def test_a_statement_without_a_result_is_noted(on_spark: Control, lake: Path, form: str, out: str) -> None:
    ended = on_spark("audit", "sql", "DROP VIEW events", "--lake", str(lake), "-o", form)
    assert (ended.out, ended.err) == (out, "the statement has no result\n")


def test_a_query_that_needs_more_memory_than_there_is_ends_with_one_error(lake: Path, tmp_path: Path) -> None:
    asked = (sys.executable, "-m", "eventd.cli.routerctl", "audit", "sql", "SELECT repeat('x', 2000000000)")
    asked = (*asked, "--lake", str(lake), "--memory", "512MiB")
    ended = subprocess.run(asked, capture_output=True, text=True, env=os.environ | quick_spark(tmp_path))
    assert (ended.returncode, ended.stdout) == (1, "")
    hint = "(let the query return less, or raise --memory)"
    assert ended.stderr.splitlines() == [
        "Terminating due to java.lang.OutOfMemoryError: Java heap space",
        f"error: the query failed in Spark: Java had too little memory and has ended {hint}",
    ]


def test_columns_of_one_name_are_refused_where_they_would_hide_each_other(on_spark: Control, lake: Path) -> None:
    query = ("audit", "sql", "SELECT 1 AS a, 2 AS a", "--lake", str(lake))
    assert on_spark(*query).lines == ["a  a", "1  2"]
    err = on_spark(*query, "-o", "json", code=1).err
    assert err.startswith("error: two columns of the result are called 'a' (name them apart with AS)")


def test_a_result_with_more_rows_than_the_limit_is_refused_and_nothing_is_printed(
    on_spark: Control, lake: Path
) -> None:
    query = "SELECT concat('row-', number) AS n FROM events ORDER BY n"
    asked = ("audit", "sql", query, "--lake", str(lake), "-o", "csv")
    whole = on_spark(*asked, "--limit", "3").out
    assert whole.count("row-") == 3
    assert on_spark(*asked).out == whole
    ended = on_spark(*asked, "--limit", "2", code=1)
    assert ended.out == ""
    assert ended.err == "error: the result has more than 2 rows (group or filter the rows, or raise --limit)\n"


def test_a_limit_that_spark_cannot_count_is_a_mistake_in_the_option(control: Control, lake: Path) -> None:
    asked = ("audit", "sql", "SELECT 1", "--lake", str(lake), "--limit")
    assert "2147483646" in control(*asked, "2147483647", code=2).err


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("table", "DATE'+10000-01-01'"),
        ("csv", "array(TIMESTAMP'+10000-01-01 00:00:00')"),
        ("json", "map('a', TIMESTAMP_NTZ'-0044-03-15')"),
    ],
)
def test_a_time_that_python_does_not_have_is_named_and_nothing_is_printed(
    on_spark: Control, lake: Path, form: str, value: str
) -> None:
    query = f"SELECT id, CASE WHEN id = 4000 THEN {value} END AS at FROM range(5000) ORDER BY id"
    ended = on_spark("audit", "sql", query, "--lake", str(lake), "-o", form, code=1)
    assert (ended.out, ended.err) == (
        "",
        "error: a time in the column 'at' lies outside of the years 1 to 9999"
        " (select the column as text, with CAST(… AS STRING))\n",
    )


def test_an_interval_is_a_text(on_spark: Control, lake: Path) -> None:
    query = "SELECT INTERVAL '1 02:03:04' DAY TO SECOND AS lag"
    assert on_spark("audit", "sql", query, "--lake", str(lake), "-o", "json").json == [{"lag": "1 day, 2:03:04"}]


def test_rows_keep_their_order_over_many_batches(on_spark: Control, lake: Path) -> None:
    query = "SELECT id AS n FROM range(5000) ORDER BY n DESC"
    lines = on_spark("audit", "sql", query, "--lake", str(lake), "-o", "csv").lines
    assert lines == ["n", *map(str, range(4999, -1, -1))]


def test_a_segment_that_is_deleted_while_the_views_are_made_is_one_line(
    on_spark: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = connect(str(tmp_path / "lake"))
    ship(storage, 0, 3)
    ship_state(storage, 3)

    def then_delete(*given: Any) -> Any:
        found = survey(*given)
        storage.delete([segment.place.data for segment in found.segments])
        return found

    monkeypatch.setattr(lake_views, "survey", then_delete)
    ended = on_spark("audit", "sql", "SELECT 1", "--lake", storage.url, code=1)
    (line,) = ended.err.splitlines()
    assert line.startswith(f"error: Spark cannot read the lake at {storage.url}: [PATH_NOT_FOUND]")
    assert "run the query again" in line


def test_no_secret_of_the_address_is_in_names_of_files_or_plans(
    on_spark: Control, spark: SparkSession, tmp_path: Path
) -> None:
    storage = connect(str(tmp_path / "lake"))
    ship(storage, 0, 3)
    ship_state(storage, 3)
    url = mount(spark, tmp_path, user="me:hushhush@") + "/lake"
    asked = ("audit", "sql", "--lake", url, "-o", "csv")
    for query in (
        "SELECT path, collect_set(path) AS paths, named_struct('in', map(path, array(path))) AS nested"
        " FROM (SELECT input_file_name() AS path FROM events) GROUP BY path",
        "EXPLAIN EXTENDED SELECT id FROM events",
        "EXPLAIN FORMATTED SELECT id FROM events WHERE id = 'e1'",
    ):
        shown = on_spark(*asked, query)
        assert "hushhush" not in shown.out + shown.err
        assert "/lake/landing" in shown.out
    for query in ("SELECT nothing FROM events", "SELECT * FROM parquet.`x`"):
        ended = on_spark(*asked, query, code=1)
        assert "hushhush" not in ended.out + ended.err


def test_data_with_the_words_of_the_address_is_not_changed(
    on_spark: Control, spark: SparkSession, tmp_path: Path
) -> None:
    storage = connect(str(tmp_path / "lake"))
    ship(storage, 0, 3)
    ship_state(storage, 3)
    url = mount(spark, tmp_path, user="eventd:edge@") + "/lake"
    query = (
        "SELECT 'eventd-1' AS node, 'edge.eventd.seen' AS type, 'https://ann@shop/?x=y' AS subject, array('edge') AS a"
    )
    lines = on_spark("audit", "sql", "--lake", url, "-o", "csv", query).lines
    assert lines == ["node,type,subject,a", 'eventd-1,edge.eventd.seen,https://ann@shop/?x=y,"[""edge""]"']


def test_a_lake_without_a_segment_it_should_have_is_noted(on_spark: Control, tmp_path: Path) -> None:
    storage = connect(str(tmp_path / "lake"))
    ship(storage, 0, 3)
    ship_state(storage, 5)
    shown = on_spark("audit", "sql", "SELECT count(*) AS n FROM events", "--lake", storage.url)
    assert shown.lines == ["n", "3"]
    assert shown.err.startswith("the views lack rows: ")
    assert "no segment contains these numbers" in shown.err


def test_it_is_refused_before_spark_starts(control: Control, tmp_path: Path) -> None:
    assert "there is no lake at" in control("audit", "sql", "SELECT 1", "--lake", str(tmp_path), code=3).err
    assert "the query is empty" in control("audit", "sql", " ; ", "--lake", str(tmp_path), code=1).err
