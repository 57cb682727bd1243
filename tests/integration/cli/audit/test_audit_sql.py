"""`routerctl audit sql` as a user's command: the forms of its output, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from tests.integration.cli.conftest import Control
from tests.support.lakes import ship, ship_state

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


def test_columns_of_one_name_are_refused_where_they_would_hide_each_other(on_spark: Control, lake: Path) -> None:
    query = ("audit", "sql", "SELECT 1 AS a, 2 AS a", "--lake", str(lake))
    assert on_spark(*query).lines == ["a  a", "1  2"]
    assert "name them apart with AS" in on_spark(*query, "-o", "json", code=1).err


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
