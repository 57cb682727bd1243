"""Compares the audit with DuckDB and with plain Spark SQL: `python -m tests.bench.audit_rivals --rows 1e6 1e7`.

All three answer the same questions about the same generated lake: which events are missing, delivered twice, without an
origin, or claimed by one side alone, and how long deliveries took, by pair. The two rivals get one query for each
question, over the Parquet files that count. Their counts must be those of the injected faults, as the audit's findings
must be. Each contender runs in a process of its own, and the order changes from round to round.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from eventd.audit.generate import Truth
from eventd.audit.report.findings import NO_ORIGIN, NOT_HELD, Kind
from eventd.lake.reader import Survey, survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from tests.bench import audit as own
from tests.bench.rounds import run_rounds

FAULTS: Final = {"lose": 30, "duplicate": 20, "forge": 10, "loop": 10, "disagree": 10, "skew": 40_000_000}
"""Faults that a query over the rows can find; corrupt files and epochs are no question for SQL."""
LEDGERS: Final = (Ledger.EVENTS, Ledger.DELIVERIES)
CONTENDERS: Final = ("audit", "duckdb", "spark")

QUESTIONS: Final = {
    "missing": """
        SELECT count(*) FROM events e JOIN links l ON l.node = e.node AND l.grp = e."group"
        WHERE e.own AND e.position <= l.settled AND l.peer <> e.source
        AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.node = e.node AND d.peer = l.peer AND d.id = e.id)
        AND NOT EXISTS (SELECT 1 FROM events h WHERE h.node = l.peer AND h.id = e.id)""",
    "duplicate": """
        SELECT count(*) FROM (SELECT node, peer, id FROM deliveries WHERE outcome = 'delivered'
        GROUP BY node, peer, id HAVING count(*) > 1) twice""",
    "no_origin": """
        SELECT count(*) FROM events h WHERE NOT h.own
        AND NOT EXISTS (SELECT 1 FROM events e WHERE e.own AND e.source = h.source AND e.id = h.id)""",
    "disputed": """
        SELECT count(*) FROM (SELECT DISTINCT source, peer, id FROM deliveries d WHERE outcome = 'delivered'
        AND peer <> source
        AND NOT EXISTS (SELECT 1 FROM events h WHERE h.node = d.peer AND h.id = d.id)) denied""",
    "latencies": """
        SELECT count(*) FROM (SELECT "group", source, peer, count(*) AS n, PERCENTILE AS p FROM deliveries
        WHERE outcome = 'delivered' GROUP BY "group", source, peer) pairs WHERE n > 0""",
}
"""By question, a query that counts its answers. PERCENTILE stands for each engine's own function."""


def main() -> None:
    options = _options()
    if options.contender:
        print(json.dumps(_ENGINES[options.contender](options.lake, options.master, options.memory)))
        return
    with own.lakes_folder(options.lakes) as lakes:
        for rows in map(int, options.rows):
            truth, lake = own.make(lakes, rows, options, FAULTS)
            settings = {"rows": rows, "master": options.master, "memory": options.memory} | truth.totals
            turns = _turns()
            run_rounds(settings, options.rounds, lambda: _measure(lake, truth, options, next(turns)))  # noqa: B023


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit_rivals")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6], help="rows of deliveries; several sizes")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lakes", type=Path, help="where lakes are kept from run to run; a temporary folder")
    parser.add_argument("--processes", type=int, default=2, help="that generate")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--limit", type=float, default=1800, help="seconds after which a rival is stopped")
    parser.add_argument("--contender", choices=sorted(_ENGINES), help=argparse.SUPPRESS)
    parser.add_argument("--lake", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _turns() -> Iterator[tuple[str, ...]]:
    """Yield the order of the contenders of each round: each comes first in its turn."""
    at = 0
    while True:
        yield (*CONTENDERS[at:], *CONTENDERS[:at])
        at = (at + 1) % len(CONTENDERS)


def _measure(lake: Path, truth: Truth, options: argparse.Namespace, order: tuple[str, ...]) -> dict[str, float]:
    for path in lake.rglob("*.parquet"):  # so that none of them waits for the disk
        path.read_bytes()
    expected = _expected(truth)
    figures: dict[str, float] = {}
    for contender in order:
        if contender == "audit":
            figures |= _audit(lake, truth, options)
        else:
            figures |= _rival(contender, lake, expected, options)
    figures |= {
        f"audit_to_{rival}": round(figures["audit_s"] / figures[f"{rival}_s"], 2)
        for rival in CONTENDERS[1:]
        if f"{rival}_s" in figures
    }
    return dict(sorted(figures.items()))


def _expected(truth: Truth) -> dict[str, int]:
    """Return the number of injected faults that each question counts."""
    injected = Counter((finding.kind, finding.detail) for finding in truth.findings for _ in finding.ids)
    by_kind = Counter(finding.kind for finding in truth.findings for _ in finding.ids)
    return {
        "missing": by_kind[Kind.MISSING],
        "duplicate": by_kind[Kind.DUPLICATE],
        "no_origin": injected[Kind.FORGED, NO_ORIGIN],
        "disputed": injected[Kind.DISAGREEMENT, NOT_HELD],
    }


def _audit(lake: Path, truth: Truth, options: argparse.Namespace) -> dict[str, float]:
    routerctl = str(Path(sys.executable).with_name("routerctl"))
    out = Path(tempfile.mkdtemp(prefix="eventd-bench-"))
    try:
        command = [routerctl, "audit", "run", "--lake", str(lake), "--out", str(out), "-o", "json"]
        process = own.FinishedProcess([*command, "--master", options.master, "--memory", f"{options.memory.upper()}iB"])
        report = json.loads((out / "report.json").read_text())
    finally:
        shutil.rmtree(out)
    own.compare_findings(report, truth)
    return {"audit_s": round(process.seconds, 2), "audit_MiB": round(process.peak / 2**20)}


def _rival(name: str, lake: Path, expected: dict[str, int], options: argparse.Namespace) -> dict[str, float]:
    """Return the figures of a rival. One that fails, as for lack of memory, or takes too long has no duration."""
    command = [sys.executable, "-m", "tests.bench.audit_rivals", "--contender", name, "--lake", str(lake)]
    command += ["--master", options.master, "--memory", options.memory]
    try:
        process = own.FinishedProcess(command, limit=options.limit)
    except subprocess.TimeoutExpired:
        return {f"{name}_stopped_after_s": options.limit}
    except SystemExit as failure:
        print(failure, file=sys.stderr)
        return {f"{name}_failed": 1}
    answers = json.loads(process.output)
    for question, count in expected.items():
        if answers[question]["count"] != count:
            raise SystemExit(f"{name} counts {answers[question]['count']} of {question}; {count} were injected")
    figures = {f"{name}_{question}_s": answer["seconds"] for question, answer in answers.items()}
    return {f"{name}_s": round(process.seconds, 2), f"{name}_MiB": round(process.peak / 2**20), **figures}


def files_of(lake: Survey, root: Path, book: Ledger) -> list[str]:
    return [str(root / one.place.data) for one in lake.segments if one.place.book is book]


def links_of(lake: Survey) -> list[tuple[str, str, str, int]]:
    """Return node, group, peer, and the position up to which all is settled, of every link."""
    return [
        (state.node, group.group, peer.peer, peer.cursor)
        for state in lake.nodes
        for group in state.groups
        for peer in group.peers
    ]


def _timed(ask: Callable[[str], int], percentile: str, quote: str) -> dict[str, dict[str, float]]:
    answers = {}
    for name, query in QUESTIONS.items():
        begun = time.perf_counter()
        count = ask(query.replace("PERCENTILE", percentile).replace('"', quote))
        answers[name] = {"count": count, "seconds": round(time.perf_counter() - begun, 2)}
    return answers


def _ask_duckdb(root: Path, master: str, memory: str) -> dict[str, dict[str, float]]:
    import duckdb

    lake, db = survey(connect(str(root))), duckdb.connect()
    db.execute(f"SET memory_limit = '{memory.upper()}B'")
    for book in LEDGERS:
        files = ", ".join(f"'{path}'" for path in files_of(lake, root, book))
        db.execute(f"CREATE VIEW {book} AS SELECT * FROM read_parquet([{files}], hive_partitioning = false)")
    db.execute("CREATE TABLE links (node VARCHAR, grp VARCHAR, peer VARCHAR, settled BIGINT)")
    db.executemany("INSERT INTO links VALUES (?, ?, ?, ?)", links_of(lake))
    percentile = "approx_quantile(epoch_us(done_at) - epoch_us(recorded_at), 0.99)"
    return _timed(lambda query: int(db.sql(query).fetchall()[0][0]), percentile, '"')


def _ask_spark(root: Path, master: str, memory: str) -> dict[str, dict[str, float]]:
    from eventd.audit.spark.session import open_session

    lake = survey(connect(str(root)))
    with open_session(master, app="bench", memory=memory) as spark:
        for book in LEDGERS:
            spark.read.parquet(*files_of(lake, root, book)).createOrReplaceTempView(book)
        spark.createDataFrame(
            links_of(lake), "node string, grp string, peer string, settled long"
        ).createOrReplaceTempView("links")
        percentile = "percentile_approx(unix_micros(done_at) - unix_micros(recorded_at), 0.99)"
        return _timed(lambda query: int(spark.sql(query).collect()[0][0]), percentile, "`")


_ENGINES: Final[dict[str, Callable[[Path, str, str], dict[str, dict[str, float]]]]] = {
    "duckdb": _ask_duckdb,
    "spark": _ask_spark,
}

if __name__ == "__main__":
    main()
