"""`make bench`: a short run over the hot paths, each next to a yardstick, compared with stored ratios.

`python -m tests.bench.guard [--keep]`. It reports and does not judge: however slow a path is, it exits with status 0.
It exits with status 1 if the counts are wrong, because the figures are then not valid.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import eventd
from eventd.api.errors.codes import restore
from eventd.bench.federation import Federation
from eventd.bench.ingest import Ingest
from eventd.bench.latency import Latency
from eventd.bench.machine import usable_cores
from eventd.bench.result import Result, UnverifiedResult
from eventd.bench.running import Benchmark, run_bench
from eventd.bench.site import BenchPlan, Site
from eventd.bench.targets import PAGE, GroupTarget
from eventd.bench.wire import HttpConnection, now, read_answer
from eventd.errors import EventdError, Invalid
from eventd.runtime.clock import SystemClock
from tests.bench.kept_ratios import Measure, Row, table, to_keep, worse
from tests.bench.starts import Starts
from tests.bench.wire import run_alone
from tests.bench.yardsticks import bare_loop, flush, imports
from tests.support.option_values import read_count

KEPT = Path(__file__).with_name("guard.json")
SIZE = 350
BATCH = 256
LONE = 100
"""Single events of a round."""
TWICE = 2
"""How often each start is repeated in a round; the fastest counts, because other load only adds time."""

LOOP, FLUSH, IMPORTS = "decode + insert", "fdatasync", "imports"
INGEST = Measure("ingest over the API", "events/s", LOOP, is_rate=True)
INGEST_CPU = Measure("ingest, CPU of the node", "us/event", LOOP, digits=2)
PAGES = Measure("reading pages", "events/s", LOOP, is_rate=True)
CATCH_UP = Measure("catch-up, two nodes", "events/s", LOOP, is_rate=True)
CATCH_UP_CPU = Measure("catch-up, CPU of both", "us/event", LOOP, digits=2)
ALONE = Measure("a lone event, p50", "ms", FLUSH, digits=3)
NEW = Measure("start, a new node", "s", IMPORTS, digits=3)
EMPTY = Measure("start, empty", "s", IMPORTS, digits=3)
FULL = Measure("start, many events", "s", IMPORTS, digits=3)
VERSION = Measure("cold routerctl --version", "s", IMPORTS, digits=3)
GET = Measure("cold routerctl get EventGroup", "s", IMPORTS, digits=3)
ASK = Measure("the same, of a server", "s", IMPORTS, digits=3)
MEASURES = (INGEST, INGEST_CPU, PAGES, CATCH_UP, CATCH_UP_CPU, ALONE, NEW, EMPTY, FULL, VERSION, GET, ASK)

Figures = dict[Measure, list[tuple[float, float]]]


class NotVerified(Exception):
    """The counts are wrong: the figures are not valid."""


def main() -> int:
    options = _options()
    begun = time.perf_counter()
    machine = _machine()
    try:
        kept = _read_kept()
        _say(f"{machine['cores']} cores, load {os.getloadavg()[0]:.2f}, {options.rounds} rounds")
        figures = run_alone(_measure(options))
    except (EventdError, NotVerified, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rows = [Row.of(measure, *zip(*figures[measure], strict=True)) for measure in MEASURES]
    _report(rows, kept, machine)
    print(f"verified, {time.perf_counter() - begun:.0f} s")
    if options.keep:
        KEPT.write_text(json.dumps(to_keep(rows, machine), indent=2) + "\n")
        print(f"kept in {KEPT.name}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.guard")
    parser.add_argument("--keep", action="store_true", help="keep the ratios of this run, to be compared with")
    parser.add_argument("--rounds", type=read_count, default=3)
    parser.add_argument("--events", type=read_count, default=30_000, help="of a round")
    parser.add_argument("--held", type=read_count, default=1_000_000, help="events that a node holds when it starts")
    parser.add_argument("--folder", help="on the disk that is to be measured; the temporary one of the system")
    return parser.parse_args()


def _machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "version": eventd.__version__,
        "cores": usable_cores(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def _read_kept() -> dict[str, Any]:
    if not KEPT.exists():
        return {"ratios": {}}
    try:
        kept = json.loads(KEPT.read_text())
        return {name: kept[name] for name in ("date", "version", "cores", "ratios")}
    except (ValueError, KeyError, TypeError):
        raise Invalid(f"{KEPT} cannot be read: remove it, and keep the ratios anew with --keep") from None


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _report(rows: list[Row], kept: dict[str, Any], machine: dict[str, Any]) -> None:
    print("\n".join(table(rows, kept["ratios"])))
    print()
    if not kept["ratios"]:
        print("nothing is kept to compare with: --keep")
        return
    told = [*worse(rows, kept["ratios"])]
    print("\n".join(told) or f"nothing got worse by more than a fifth since {kept['date']} (version {kept['version']})")
    if kept["cores"] != machine["cores"]:
        print(f"note: kept on {kept['cores']} cores, measured on {machine['cores']}: the ratios say less")


async def _measure(options: argparse.Namespace) -> Figures:
    """Run all rounds. Each figure is stored with its yardstick of the same round."""
    figures: Figures = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="eventd-bench-", dir=options.folder) as directory:
        folder = Path(directory)
        starts = Starts(folder, options.held)
        _say(f"filling a node with {options.held:,} events")
        await starts.prepare()
        for number in range(options.rounds):
            _say(f"round {number + 1} of {options.rounds}")
            await _flow(figures, folder, options.events)
            await _starts(figures, starts)
    return figures


async def _flow(figures: Figures, folder: Path, events: int) -> None:
    """Measure events: many that are ingested, read, and delivered to another node; and a single one."""
    wanted = BenchPlan(events, size=SIZE, batch=BATCH, folder=str(folder))
    before = bare_loop(folder, _bodies(events), events)
    ingest = await _run(IngestAndRead(), wanted)
    catch_up = await _run(Federation(), wanted)
    after = bare_loop(folder, _bodies(events), events)
    bare, bare_cpu = ((one + other) / 2 for one, other in zip(before, after, strict=True))
    flushed = flush(folder) * 1000
    lone = await _run(Latency(), BenchPlan(LONE, size=SIZE, folder=str(folder)))
    flushed = (flushed + flush(folder) * 1000) / 2
    of_ingest, of_catch_up = ingest["figures"], catch_up["figures"]
    cpu_of_both = of_catch_up["sender_cpu_us_per_event"] + of_catch_up["receiver_cpu_us_per_event"]
    figures[INGEST].append((ingest["events_per_second"], bare))
    figures[INGEST_CPU].append((of_ingest["node_cpu_us_per_event"], bare_cpu))
    figures[PAGES].append((of_ingest["read_events_per_second"], bare))
    figures[CATCH_UP].append((catch_up["events_per_second"], bare))
    figures[CATCH_UP_CPU].append((cpu_of_both, bare_cpu))
    figures[ALONE].append((lone["p50_ms"], flushed))


def _bodies(events: int) -> list[bytes]:
    """Return the requests that the ingest sends."""
    target = GroupTarget("bench", "bench-a", "0" * 8, SIZE, SystemClock().now())
    return [target.batch(range(first, min(first + BATCH, events))) for first in range(0, events, BATCH)]


async def _run(bench: Benchmark, wanted: BenchPlan) -> dict[str, Any]:
    left: list[str] = []
    result: Result = await run_bench(bench, wanted, lambda _words, _done, _of: None, left)
    if not result.verified:
        raise NotVerified(f"the figures are not valid: {result.bench}: {'; '.join(result.problems)}")
    return result.show()


async def _starts(figures: Figures, starts: Starts) -> None:
    """Measure the unavoidable imports, and each start, one after the other."""
    taken: dict[Measure | str, list[float]] = defaultdict(list)
    for _ in range(TWICE):
        taken[IMPORTS].append(imports())
        taken[NEW].append(await starts.of_new_node())
        taken[EMPTY].append(await starts.of_empty_node())
        taken[FULL].append(await starts.of_full_node())
        taken[VERSION].append(starts.of_version())
        taken[GET].append(starts.of_get())
        taken[ASK].append(await starts.of_asking())
    for measure in (NEW, EMPTY, FULL, VERSION, GET, ASK):
        figures[measure].append((min(taken[measure]), min(taken[IMPORTS])))


class IngestAndRead(Ingest):
    """An ingest, followed by reading all events page by page; the pages are verified."""

    def __init__(self) -> None:
        super().__init__()
        self._pages: list[bytes] = []

    async def measure(self, site: Site) -> UnverifiedResult:
        """Return the result of the ingest, with the reading rate among its figures."""
        measured = await super().measure(site)
        target = self._pouring.target
        assert isinstance(target, GroupTarget)
        begun = now()
        await self._read(site, target)
        measured.figures["read_events_per_second"] = measured.events / (now() - begun)
        return measured

    async def _read(self, site: Site, target: GroupTarget) -> None:
        """Read over one connection; of each page only the cursor of the next one is parsed."""
        client, token = site.nodes[0].client, msgspec.json.Decoder(_Next)
        line = await client.open(HttpConnection)
        try:
            after: str | None = ""
            while after is not None:
                path = f"{target.path}?limit={PAGE}&includeExpired=true&after={after}"
                page = read_answer(await line.ask(client.request("GET", path)))
                if page.status != 200:
                    raise restore(page.status, page.body)
                self._pages.append(page.body)
                after = token.decode(page.body).next
        finally:
            line.close()

    async def verify(self, site: Site) -> list[str]:
        """Return the errors: each event must be there once, in order."""
        target = self._pouring.target
        assert isinstance(target, GroupTarget)
        events = [event for page in self._pages for event in msgspec.json.decode(page)["events"]]
        return self._pouring.ledger.problems(target.number_of(str(event["id"])) for event in events)


class _Next(msgspec.Struct):
    next: str | None


if __name__ == "__main__":
    sys.exit(main())
