"""Measures the steps of the audit as Spark SQL: `python -m tests.bench.audit_steps --rows 1e7`.

The audit sums the rows of segments in numpy, inside of Spark's tasks, and not in Spark SQL. Here the same sums are
queries, over the same files and in the same session, one after the other: the first round of a query includes its
planning and compiling, as an audit does that runs once. The counts of both must be equal.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.run import QUICK, audit
from eventd.audit.spark.session import own_session
from eventd.lake.reader import survey
from eventd.lake.storage import connect
from eventd.runtime.clock import SystemClock
from tests.bench import audit as own
from tests.bench.audit_rivals import FAULTS, LEDGERS, files_of, links_of
from tests.bench.rounds import run_rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MINUTE: Final = "unix_micros(event_at) div 60000000"
_HOUR: Final = "unix_micros(event_at) div 3600000000"
_WRAP: Final = {"spark.sql.ansi.enabled": "false"}
"""Sums of fingerprints wrap around; Spark SQL refuses that by default."""
_PAIR: Final = "node, `group`, source, peer"
_LEGS: Final = {
    "acknowledged": "unix_micros(done_at) - unix_micros(recorded_at)",
    "peer_recorded": "unix_micros(peer_recorded_at) - unix_micros(attempt_at)",
    "whole": "unix_micros(peer_recorded_at) - unix_micros(event_at)",
}
_BIN: Final = "cast(log2(greatest({span}, 0) + 1) * 8 AS int)"


def _percentiles(histogram: str) -> str:
    """Return the query for the percentiles of each pair, and of each of its hours, from the bins of a histogram."""
    return f"""
        SELECT {_PAIR}, hour, min(bin) FILTER (WHERE seen >= 0.5 * whole) AS p50,
        min(bin) FILTER (WHERE seen >= 0.95 * whole) AS p95, min(bin) FILTER (WHERE seen >= 0.99 * whole) AS p99,
        max(high) AS longest FROM (
            SELECT {_PAIR}, hour, bin, high, sum(n) OVER (PARTITION BY {_PAIR}, hour ORDER BY bin) AS seen,
            sum(n) OVER (PARTITION BY {_PAIR}, hour) AS whole FROM (
                SELECT {_PAIR}, hour, bin, sum(n) AS n, max(high) AS high FROM {histogram}
                GROUP BY {_PAIR}, bin, GROUPING SETS ((hour), ())) binned) cumulated GROUP BY ALL"""


STEPS: Final = {
    "sums_of_deliveries": f"""
        SELECT {_PAIR}, {_MINUTE} AS slot, outcome = 'delivered' AS sent, count(*) AS n, sum(fingerprint) AS total,
        min(done_at) AS low FROM deliveries GROUP BY ALL""",
    "counts_of_deliveries": f"""
        SELECT {_PAIR}, type, {_HOUR} AS hour, outcome, count(*) AS n, sum(bytes) AS bytes
        FROM deliveries GROUP BY ALL""",
    **{
        f"histogram_{leg}": f"""
        SELECT {_PAIR}, type, {_HOUR} AS hour, {_BIN.format(span=span)} AS bin, count(*) AS n, max({span}) AS high
        FROM deliveries WHERE outcome = 'delivered' GROUP BY ALL"""
        for leg, span in _LEGS.items()
    },
    "sums_of_due": f"""
        SELECT e.node, e.`group`, e.source, l.peer, {_MINUTE} AS slot, e.position <= l.settled AS due, count(*) AS n,
        sum(fingerprint) AS total FROM events e JOIN links l ON l.node = e.node AND l.grp = e.`group`
        WHERE e.own AND l.peer <> e.source GROUP BY ALL""",
    "sums_of_held": f"""
        SELECT `group`, source, node AS peer, {_MINUTE} AS slot, count(*) AS n, sum(fingerprint) AS total
        FROM events WHERE NOT own GROUP BY ALL""",
    "balance": """
        SELECT s.`group`, s.source, s.peer, s.slot FROM
        (SELECT `group`, source, peer, slot, sum(n) AS n, sum(total) AS total FROM sums_of_deliveries WHERE sent
        GROUP BY ALL) s FULL OUTER JOIN sums_of_held h USING (`group`, source, peer, slot)
        FULL OUTER JOIN (SELECT * FROM sums_of_due WHERE due) d USING (`group`, source, peer, slot)
        WHERE NOT (s.n <=> h.n AND s.total <=> h.total AND s.n <=> d.n AND s.total <=> d.total)""",
    "pairs": f"""
        SELECT {_PAIR}, outcome, sum(n) AS n, sum(bytes) AS bytes FROM counts_of_deliveries GROUP BY ALL""",
    "hours": f"""
        SELECT {_PAIR}, type, hour, outcome, sum(n) AS n FROM counts_of_deliveries GROUP BY ALL""",
    **{f"latencies_{leg}": _percentiles(f"histogram_{leg}") for leg in _LEGS},
}
"""By step, its query; the results of earlier steps are views of these names."""
_RECONCILING: Final = frozenset({"balance", "pairs", "hours", *(f"latencies_{leg}" for leg in _LEGS)})
"""The steps that read no ledger: the audit's stage after the cells."""


def main() -> None:
    options = _options()
    with own.lakes_folder(options.lakes) as lakes:
        for rows in map(int, options.rows):
            truth, lake = own.make(lakes, rows, options, FAULTS)
            settings = {"rows": rows, "master": options.master, "memory": options.memory} | truth.totals
            deliveries = truth.totals["deliveries"]
            run_rounds(settings, options.rounds, lambda: _measure(lake, deliveries, options))  # noqa: B023


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit_steps")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6], help="rows of deliveries; several sizes")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lakes", type=Path, help="where lakes are kept from run to run; a temporary folder")
    parser.add_argument("--processes", type=int, default=2, help="that generate")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--memory", default="4g")
    return parser.parse_args()


def _measure(lake: Path, deliveries: int, options: argparse.Namespace) -> dict[str, float]:
    from eventd.audit.spark.session import open_session

    for path in lake.rglob("*.parquet"):  # so that neither of them waits for the disk
        path.read_bytes()
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as folder:
        # Each in a Java of its own, because they want different compilers.
        with open_session(options.master, app="bench", memory=options.memory, conf=QUICK) as spark:
            request = AuditRequest(lake=str(lake), out=f"{folder}/out", master=options.master)
            stages = audit(own_session(spark), request, clock=SystemClock()).report.work.stages
        with open_session(options.master, app="bench", memory=options.memory, conf=_WRAP) as spark:
            steps = _run_steps(spark, lake, Path(folder), deliveries)
    figures = {f"sql_{name}_s": seconds for name, seconds in steps.items()}
    figures |= {f"python_{name.replace(' ', '_')}_s": seconds for name, seconds in stages.items()}
    sums = sum(seconds for name, seconds in steps.items() if name not in _RECONCILING)
    reconciling = sum(steps[name] for name in _RECONCILING)
    return figures | {
        "sql_cells_s": round(sums, 2),
        "cells_sql_to_python": round(sums / stages["cells"], 2),
        "sql_reconciling_s": round(reconciling, 2),
        "reconciling_sql_to_python": round(reconciling / stages["reconcile"], 2),
    }


def _run_steps(spark: SparkSession, lake: Path, folder: Path, deliveries: int) -> dict[str, float]:
    """Return the seconds of each step; its result is written to Parquet, as the audit keeps its own."""
    surveyed = survey(connect(str(lake)))
    for book in LEDGERS:
        spark.read.parquet(*files_of(surveyed, lake, book)).createOrReplaceTempView(book)
    links = spark.createDataFrame(links_of(surveyed), "node string, grp string, peer string, settled long")
    links.createOrReplaceTempView("links")
    seconds = {}
    for name, query in STEPS.items():
        begun = time.perf_counter()
        spark.sql(query).write.parquet(str(folder / name))
        seconds[name] = round(time.perf_counter() - begun, 2)
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    counted = spark.sql("SELECT sum(n) FROM sums_of_deliveries").collect()[0][0]
    if counted != deliveries:
        raise SystemExit(f"the queries count {counted} deliveries; the lake has {deliveries}")
    print(json.dumps({"uneven_slots": spark.table("balance").count()}), flush=True)
    return seconds


if __name__ == "__main__":
    main()
