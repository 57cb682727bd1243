"""Measures the audit: `python -m tests.bench.audit --rows 1e6 1e7`. Its findings are compared with the injected faults.

A lake is generated once for each size and reused from the folder `--lakes`. The audit runs in a process of its own, as
a user runs it, without cached files. In the same round and on the same files, Spark alone counts the rows of deliveries
and reads all their columns, then those of deliveries and events together: the minimum that the audit has to read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from eventd.audit.generate import Truth
from eventd.audit.report.findings import Finding
from eventd.runtime.clock import SECOND
from tests.bench.rounds import run_rounds
from tests.support.federations import FullSettings, generate

FAULTS = {
    **{"lose": 30, "duplicate": 20, "forge": 10, "loop": 10, "disagree": 10, "corrupt": 3, "epoch": 2},
    **{"expire": 100, "dead_letter": 50, "retry": 200, "pending": 20, "skew": 40 * SECOND},
}


def main() -> None:
    options = _options()
    if options.bare:
        print(json.dumps(scan_bare(options.bare, options.master, options.memory)))
        return
    with lakes_folder(options.lakes) as lakes:
        for rows in map(int, options.rows):
            truth, lake = make(lakes, rows, options)
            settings = {"rows": rows, "master": options.master, "memory": options.memory} | truth.totals
            run_rounds(settings, options.rounds, lambda: measure(lake, truth, options))  # noqa: B023


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6], help="rows of deliveries; several sizes")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lakes", type=Path, help="where lakes are kept from run to run; a temporary folder")
    parser.add_argument("--processes", type=int, default=1, help="that generate")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


@contextmanager
def lakes_folder(named: Path | None) -> Iterator[Path]:
    if named is not None:
        named.mkdir(parents=True, exist_ok=True)
        yield named
        return
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as folder:
        yield Path(folder)


def make(lakes: Path, rows: int, options: argparse.Namespace, faults: Mapping[str, int] = FAULTS) -> tuple[Truth, Path]:
    """Return a lake with about this number of delivery rows, and its faults; it is generated if it is missing."""
    events = round(rows / (options.nodes - 1))
    settings = FullSettings(nodes=options.nodes, events=events, seed=options.seed, **faults)
    lake = lakes / f"{rows:.0e}-{options.nodes}-{options.seed}-{len(faults)}"
    file = lakes / f"{lake.name}.json"
    if file.exists() and json.loads(file.read_bytes())["settings"] == msgspec.to_builtins(settings):
        return msgspec.json.decode(file.read_bytes(), type=Truth), lake
    shutil.rmtree(lake, ignore_errors=True)
    begun = time.perf_counter()
    truth = generate(settings, str(lake), processes=options.processes)
    seconds = time.perf_counter() - begun
    file.write_bytes(truth.to_json())
    told = {"lake": lake.name, "seconds": round(seconds, 1), "bytes": _size(lake)}
    print(json.dumps({"generated": told | {"deliveries/s": round(truth.totals["deliveries"] / seconds)}}), flush=True)
    return truth, lake


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(lake: Path, truth: Truth, options: argparse.Namespace) -> dict[str, float]:
    """Measure one round: Spark alone, then the audit."""
    for path in lake.rglob("*.parquet"):  # so that neither of them waits for the disk
        path.read_bytes()
    spark = ["--master", options.master, "--memory", options.memory]
    bare = FinishedProcess([sys.executable, "-m", "tests.bench.audit", "--bare", str(lake), *spark])
    with tempfile.TemporaryDirectory(prefix="eventd-bench-") as out:
        command = [str(Path(sys.executable).with_name("routerctl")), "audit", "run", "--lake", str(lake), "--out", out]
        audit = FinishedProcess([*command, "-o", "json", *spark])
        report = json.loads((Path(out) / "report.json").read_text())
    compare_findings(report, truth)
    scans, job = json.loads(bare.output), report["work"]["seconds"]
    rows = truth.totals["deliveries"]
    return {
        "audit_s": round(audit.seconds, 2),
        "job_s": job,
        **{f"{name.replace(' ', '_')}_s": seconds for name, seconds in report["work"]["stages"].items()},
        **{f"bare_{name}_s": seconds for name, seconds in scans.items()},
        "rows/s": round(rows / job),
        "ratio_to_count": round(job / scans["count"], 2),
        "ratio_to_scan": round(job / scans["scan"], 2),
        "ratio_to_scan_both": round(job / scans["scan_both"], 2),
        "peak_MiB": round(audit.peak / 2**20),
        "bare_peak_MiB": round(bare.peak / 2**20),
    }


def compare_findings(report: dict[str, Any], truth: Truth) -> None:
    """Exit if the audit's findings differ from the injected faults."""
    found = [msgspec.convert(one, Finding) for one in report["findings"]]
    wrong = Counter(map(_what, found))
    wrong.subtract(map(_what, truth.findings))
    if any(wrong.values()):
        told = [f"{'missed' if count < 0 else 'made up'}: {what}" for what, count in wrong.items() if count]
        raise SystemExit("\n".join(["the audit is wrong", *told[:20]]))


def _what(one: Finding) -> tuple[object, ...]:
    return (one.kind, one.group, one.source, one.peer, one.first, one.last, one.ids)


# --- processes and their memory -------------------------------------------------------------------------------------


class FinishedProcess:
    """An exited process: its output, its duration, and the peak memory of it and its children.

    Raises SystemExit if it fails, and TimeoutExpired if it was killed after `limit` seconds.
    """

    def __init__(self, command: list[str], *, limit: float | None = None) -> None:
        self.peak = 0
        begun = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            watcher = threading.Thread(target=self._watch, args=(process,), daemon=True)
            watcher.start()
            try:
                self.output = process.communicate(timeout=limit)[0]
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # with Java, which would go on
                raise
        self.seconds = time.perf_counter() - begun
        watcher.join()
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")

    def _watch(self, process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            self.peak = max(self.peak, sum(map(_memory, process_family(process.pid))))
            time.sleep(0.3)


def process_family(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from process_family(int(child))


def _memory(pid: int) -> int:
    """Return the memory of a process in bytes; shared memory is divided between the processes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def scan_bare(lake: Path, master: str, memory: str) -> dict[str, float]:
    """Return the seconds that Spark takes for the same files without the audit: the first run of each query, without
    Spark's start."""
    from eventd.audit.spark.session import open_session

    both = [str(lake / "landing" / book) for book in ("deliveries", "events")]
    with open_session(master, app="bench", memory=memory) as spark:
        spark.range(10).selectExpr("sum(id)").collect()

        files = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")

        def timed(*folders: str, what: str) -> float:
            begun = time.perf_counter()
            for folder in folders:
                files.parquet(folder).selectExpr(what).collect()
            return round(time.perf_counter() - begun, 3)

        every = "bit_xor(xxhash64(*))"
        return {
            "count": timed(both[0], what="count(*)"),
            "scan": timed(both[0], what=every),
            "scan_both": timed(*both, what=every),
        }


if __name__ == "__main__":
    main()
