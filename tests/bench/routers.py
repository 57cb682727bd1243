"""Measures routers over one source: `python -m tests.bench.routers [in-step|alone] [options]`.

`in-step`: as in a node, routers at the same position read and commit together. `alone`: each is a consumer of its own
with its cursor and pages; nothing else differs. Records are written one by one, each once all copies of the one before
are there (`--every 0`), or in a steady stream. The output is the CPU time per copy, the time until all copies of a
record are there, and the longest time for which the loop and the writer did nothing else. Every run verifies that each
destination has each record once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from eventd.egress.loop.consumer import Consumer
from eventd.egress.loop.sink import Ack, OpenResult, OutboundBatch
from eventd.egress.routers.graph import NewRouterRules
from eventd.egress.routers.projection import CopySource, Options, Router, Shape, copy_of
from eventd.egress.routers.pump import Routing
from eventd.log.core.commit import Transaction
from eventd.log.core.eventlog import EventLog
from eventd.log.core.records import content_size, write_body
from eventd.log.core.topic_row import find_topic
from eventd.log.core.values import AppendResult, Drafts
from eventd.log.core.wire_page import WirePage
from eventd.log.cursors.cursors import Cursor
from eventd.log.routers.declare import PutRouter, RouterLimits, RouterSpec
from eventd.log.routers.source import CopyPage, Original
from eventd.log.topics.router_rows import RouterRow, read_routers
from eventd.log.topics.write import Write
from eventd.runtime.backoff import Backoff
from eventd.runtime.clock import SystemClock
from eventd.runtime.supervisor import Supervisor
from eventd.store.engine.database import Database
from eventd.store.engine.statements import execute, fetch
from eventd.store.schema.migrations import upgrade
from federation.lines import split_line
from tests.bench.rounds import databases, run_rounds

TICK = 0.0002
"""Seconds that the gauge of the loop sleeps."""


def main() -> None:
    options = _options()
    with databases(options.database) as make_url:

        def one() -> dict[str, float]:
            with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
                url = make_url() or f"sqlite:///{Path(directory) / 'eventd.db'}"
                return asyncio.run(_measure(url, options))

        run_rounds(vars(options), options.rounds, one)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.routers")
    parser.add_argument("how", choices=["in-step", "alone"], nargs="?", default="in-step")
    parser.add_argument("--routers", type=int, default=1000)
    parser.add_argument("--records", type=int, default=20)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    return parser.parse_args()


async def _measure(url: str, options: argparse.Namespace) -> dict[str, float]:
    sys.setswitchinterval(0.0005)  # as `serve` does
    async with AsyncExitStack() as stack:
        database = Database(url)
        stack.callback(database.close)
        database.write_now(upgrade, now=SystemClock().now())
        writer = _Writer()
        log = await EventLog.open(database, SystemClock(), timed=writer.timed)
        stack.push_async_callback(log.close)
        supervisor = Supervisor(SystemClock())
        stack.push_async_callback(supervisor.stop)
        for number in range(options.routers):
            router = Router(f"r{number}", "source", f"dest{number}")
            wanted = RouterSpec(router.name, router.source, router.dest, router.options.encode())
            unit = PutRouter(wanted, NewRouterRules(router), RouterLimits(), create_dest=True, random=os.urandom(16))
            await log.submit(unit)
        await _start(options.how, log, supervisor, stack)
        return await _run(log, supervisor, options, writer)


async def _start(how: str, log: EventLog, supervisor: Supervisor, stack: AsyncExitStack) -> None:
    if how == "in-step":
        routing = Routing(log, dict, supervisor.spawn)
        await routing.load()
        stack.push_async_callback(routing.stop)
        return
    for line in await log.database.read(read_routers):
        consumer = Consumer(
            log,
            line.cursor,
            _Alone(line),
            version=1,
            spawn=supervisor.spawn,
            backoff=Backoff(0.2, 2.0),
            chance=lambda: 0.5,
        )
        supervisor.spawn(consumer.run(), line.name)


async def _run(log: EventLog, supervisor: Supervisor, options: argparse.Namespace, writer: _Writer) -> dict[str, float]:
    body = write_body("n", "tag", json.dumps({"text": "x" * 100}), None)
    drafts = Drafts(
        (), [""] * options.batch, [body] * options.batch, frozenset(["tag"]), frozenset(["n"]), None,
        [content_size(body)] * options.batch,
    )  # fmt: skip
    await _write(log, drafts, options.routers)  # a warm-up
    longest: list[float] = []
    gauge = supervisor.spawn(_gauge(longest), "gauge")
    writer.longest, times = 0.0, []
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(options.records):
        at = time.perf_counter()
        await _write(log, drafts, options.routers)
        times.append(time.perf_counter() - at)
    spent, passed = time.process_time() - cpu, time.perf_counter() - begun
    gauge.cancel()
    await _verify(log, options, (options.records + 1) * options.batch)
    copies = options.records * options.batch * options.routers
    return {
        "cpu_us_per_copy": round(spent / copies * 1e6, 2),
        "copies_per_s": round(copies / passed),
        "all_there_ms": round(statistics.median(times) * 1000, 2),
        "loop_longest_ms": round(max(longest) * 1000, 2),
        "loop_p99_ms": round(statistics.quantiles(longest, n=100)[98] * 1000, 2),
        "writer_longest_ms": round(writer.longest * 1000, 2),
    }


async def _write(log: EventLog, drafts: Drafts, routers: int) -> None:
    """Write to the source, and wait until all routers have passed it."""
    head = log.wakeups.head + (routers + 1) * len(drafts)
    with log.watch(None) as watch:
        await log.submit(Write("source", drafts, flushes=log.flushes, create=False))
        await watch.beyond(head - 1)


async def _gauge(longest: list[float]) -> None:
    """Record how late the loop runs its callbacks."""
    while True:
        at = time.perf_counter()
        await asyncio.sleep(TICK)
        longest.append(time.perf_counter() - at - TICK)


async def _verify(log: EventLog, options: argparse.Namespace, records: int) -> None:
    counts = await log.database.read(
        lambda conn: fetch(conn, "SELECT name, next_seq - 1 FROM topics WHERE substr(name, 1, 4) = 'dest'")
    )
    assert len(counts) == options.routers, len(counts)
    assert {count for _, count in counts} == {records}, {count for _, count in counts}


class _Writer:
    """Records how long the transactions of the writer take."""

    longest = 0.0

    def timed(self, seconds: float, _records: int, _in_loop: bool) -> None:
        self.longest = max(self.longest, seconds)


class _Alone:
    """A router as a sink of the consumer loop: it does no I/O, and returns what is to be written."""

    window = 1
    own = False

    def __init__(self, line: RouterRow) -> None:
        self._line = line
        self._shape = Shape.of(Router(line.name, line.source, line.dest, Options()))

    async def read(self, log: EventLog, cursor: Cursor, after: int) -> WirePage:
        return await log.lines(
            self._line.source_id, after, _All(), limit=256, max_bytes=1 << 18, at_tail=True  # type: ignore[arg-type]
        )  # fmt: skip

    async def open(self, cursor: Cursor, page: WirePage, *, start: bool) -> OpenResult:
        return OpenResult(True)

    def select(self, page: WirePage, after: int, attempts: int) -> OutboundBatch | None:
        if not page.count:
            return None
        originals = []
        for line in page.body.decode().split("\n")[:-1]:
            position, _, body = split_line(line)
            originals.append(Original(int(position), int(position), page.oldest, 0, "", body))
        source = CopySource(self._line.source, self._line.source_id, 1, page.head.epoch)
        cut = CopyPage.of_records([copy_of(each, self._shape, source) for each in originals])
        return _Copies(after, page.upto, page.head.epoch, page.head.incarnation, (), cut=cut)

    async def deliver(self, parcel: Any) -> Ack:
        return Ack(parcel.upto, effect=_Copying(self._line, parcel.cut))

    def settled(self, ack: Ack) -> None: ...

    async def given_up(self) -> None: ...

    def wind_down(self) -> None: ...


class _All:
    """A filter that matches every record."""

    own = False
    settles: Callable[..., bool] = staticmethod(lambda _block, _now: True)


class _Copies(OutboundBatch):
    def __init__(self, *fields: Any, cut: CopyPage) -> None:
        super().__init__(*fields)
        object.__setattr__(self, "cut", cut)


class _Copying:
    """What the step of one router writes besides its cursor."""

    def __init__(self, line: RouterRow, cut: CopyPage) -> None:
        self._line = line
        self._cut = cut
        self.topic_id = line.dest_id
        self.weight = len(cut)

    def admit(self, tx: Transaction) -> Drafts:
        assert find_topic(tx.conn, self._line.dest) is not None
        return self._cut.drafts

    def write(self, tx: Transaction, appended: AppendResult) -> None:
        sql = "UPDATE routers SET seq = ?, forwarded = forwarded + ? WHERE id = ?"
        execute(tx.conn, sql, (self._cut.seqs[-1], len(self._cut), self._line.id))


if __name__ == "__main__":
    main()
