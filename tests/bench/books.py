"""Measures how fast a node's delivery ledger is read: `python -m tests.bench.books [options]`.

A log is filled, batches of two peers are settled in it, and each ledger table is read from its beginning, as the
shipper reads it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from eventd.lake.extract import Ledger, Memory, read_ledger
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import create_cursor
from eventd.log.cursors.selections import declare_selection
from eventd.log.cursors.steps import Step
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.registry import put_resource
from eventd.store.schema.migrations import upgrade
from eventd.testing import NOW, ManualClock
from tests.bench.nodes import make_drafts
from tests.bench.rounds import databases, run_rounds
from tests.support.stored_batches import stored_batch

PEERS = ("b", "c")
APPENDED = 5000
"""Events of one append."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.books")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=350)
    parser.add_argument("--batch", type=int, default=500, help="events of a batch")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of an extract")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    options = parser.parse_args()
    with databases(options.database) as make_url, tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
        url = make_url() or f"sqlite:///{Path(directory) / 'eventd.db'}"
        with closing(Database(url)) as database:
            asyncio.run(_fill(database, options))
            run_rounds(vars(options), options.rounds, lambda: _measure(database, options))


async def _fill(database: Database, options: argparse.Namespace) -> None:
    database.write_now(upgrade, now=NOW)
    log = await EventLog.open(database, ManualClock())
    topic = await log.topic("group:g")
    await database.write(_declare, topic)
    drafts = make_drafts("a", options.events, options.size)
    for start in range(0, len(drafts), APPENDED):
        await log.append(topic, drafts[start : start + APPENDED])
    for after in range(0, options.events, options.batch):
        upto = min(after + options.batch, options.events)
        for peer in PEERS:
            name = f"peer:g/{peer}"
            row = stored_batch(name, after, upto)
            await log.settle(Step(name, after, upto, upto, NOW, [row]))
    await log.close()


def _declare(conn: Connection, topic: int) -> None:
    put_resource(conn, api_version="v", kind="EventGroup", name="g", annotations={}, spec={"nodeName": "a"}, now=NOW)
    for peer in PEERS:
        create_cursor(conn, f"peer:g/{peer}", kind="peer", topic_id=topic, position=0, now=NOW)
        declare_selection(conn, f"peer:g/{peer}", 1, {}, NOW)


def _measure(database: Database, options: argparse.Namespace) -> dict[str, float]:
    expected = {Ledger.EVENTS: options.events, Ledger.DELIVERIES: options.events * len(PEERS)}
    figures: dict[str, float] = {}
    for book in (Ledger.EVENTS, Ledger.DELIVERIES, Ledger.RECEIPTS):
        begun, worked = time.perf_counter(), time.process_time()
        rows = _read_all(database, book, options.rows)
        seconds, busy = time.perf_counter() - begun, time.process_time() - worked
        assert rows == expected.get(book, rows), f"{book}: {rows} rows"
        figures |= {f"{book}_rows_per_s": rows / seconds, f"{book}_rows_per_cpu_s": rows / busy}
    return figures


def _read_all(database: Database, book: Ledger, rows: int) -> int:
    memory = Memory()
    total = after = 0
    full = True
    while full:
        extract: Any = database.read_now(read_ledger, book, after, rows=rows, memory=memory)
        assert not extract.lost
        total, after, full = total + extract.rows, extract.upto, extract.full
    return total


if __name__ == "__main__":
    main()
