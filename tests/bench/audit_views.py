"""Compares SQL on views with plain Parquet: `python -m tests.bench.audit_views --rows 1e6 1e7`.

The same queries run on the views of a lake, on `spark.read.parquet` of the same files and, with `--source`, through the
source "eventd". Each way has to give the same rows. The first run of each query is not counted: it compiles.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventd.audit.spark.session import open_session
from eventd.audit.views import register_views
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from tests.bench import audit as own
from tests.bench.rounds import run_rounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERIES: Final[Mapping[str, str]] = {
    "by_pair": "SELECT node, peer, outcome, count(*) AS n FROM {rows} GROUP BY ALL ORDER BY ALL",
    "one_node": "SELECT peer, count(*) AS n, max(done_at) FROM {rows} WHERE node = '{node}' GROUP BY ALL ORDER BY ALL",
    "late": "SELECT node, peer, max(done_at - event_at) AS most FROM {rows} GROUP BY ALL ORDER BY ALL",
    "one_id": "SELECT node, peer, done_at FROM {rows} WHERE id = '{id}' ORDER BY ALL",
}
_TIMES: Final = 3
"""Counted runs of each query and way in a round; the fastest counts."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit_views")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6], help="rows of deliveries; several sizes")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lakes", type=Path, help="where lakes are kept from run to run; a temporary folder")
    parser.add_argument("--processes", type=int, default=2, help="that generate")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--source", action="store_true", help="measure the source, too, which takes long")
    options = parser.parse_args()
    with own.lakes_folder(options.lakes) as lakes:
        for rows in map(int, options.rows):
            _, lake = own.make(lakes, rows, options)
            settings = {"rows": rows, "master": options.master, "memory": options.memory}
            with open_session(options.master, app="views", memory=options.memory) as spark:
                run_rounds(settings, options.rounds, partial(_measure, spark, str(lake), with_source=options.source))


def _measure(spark: SparkSession, lake: str, *, with_source: bool) -> dict[str, float]:
    ways: dict[str, Callable[[], DataFrame]] = {
        "views": lambda: spark.table(Ledger.DELIVERIES.value),
        "plain": lambda: spark.read.parquet(*_files(lake)),
    }
    if with_source:
        ways["source"] = lambda: spark.read.format("eventd").option("book", Ledger.DELIVERIES.value).load(lake)
    begun = time.perf_counter()
    register_views(spark, lake)
    figures = {"register_s": round(time.perf_counter() - begun, 3)}
    example: Any = spark.table(Ledger.DELIVERIES.value).select("node", "id").first()
    for way, rows in ways.items():
        rows().createOrReplaceTempView(f"measured_{way}")
    for name, query in QUERIES.items():
        texts = {way: query.format(rows=f"measured_{way}", node=example.node, id=example.id) for way in ways}
        figures |= {f"{name}_{way}_s": seconds for way, seconds in _run(spark, texts).items()}
    for name in QUERIES:
        for way in ways:
            if way != "plain":
                figures[f"{name}_{way}_to_plain"] = round(figures[f"{name}_{way}_s"] / figures[f"{name}_plain_s"], 2)
    return figures


def _files(lake: str) -> list[str]:
    storage = connect(lake)
    places = (segment.place for segment in survey(storage).segments)
    return [storage.locate(place.data) for place in places if place.book is Ledger.DELIVERIES]


def _run(spark: SparkSession, queries: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds of each way: of the fastest run after a first one. The ways take turns."""
    seconds: dict[str, list[float]] = {way: [] for way in queries}
    answers = []
    for _ in range(_TIMES + 1):
        for way, query in queries.items():
            begun = time.perf_counter()
            answers.append(spark.sql(query).collect())
            seconds[way].append(time.perf_counter() - begun)
            assert answers[-1] == answers[0], f"{way} answers otherwise: {query}"
    return {way: round(min(times[1:]), 3) for way, times in seconds.items()}


if __name__ == "__main__":
    main()
