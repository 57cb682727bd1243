"""Measures and verifies a node after kill -9.

`recovery`: seconds from the start of the process to the first 200 of /v0/ready, of an empty node and of one that was
killed while it wrote to a topic with many records; everything acknowledged is read again. `kills`: a node is killed at
random moments while clients write to a topic with flushed commits, and two routers in a chain and one next to them, all
exactly_once, copy. Every client repeats an unanswered write under the same key until it is answered. Verified at the
end: each batch is in its topic once, at the seqs of its answer; each destination holds the same records in the same
order; the file is intact.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from pathlib import Path
from random import Random
from typing import Any

from eventd.errors import EventdError, Unavailable
from tests.bench.topics_site import Figures, Site, fill, make_record, read_numbers, resident_mib, site, write_of
from tests.bench.wire import HttpConnection, call, open_line, read_answer, request

TOPIC = "records"
SLICE = 100_000
"""Records whose requests are prepared at once."""

SOURCE = "source"
ROUTERS = {"copy": SOURCE, "beside": SOURCE, "onward": "copy"}
"""Destination and source of each router."""
MOST_RECORDS = 20
LONGEST = 120.0
ALIVE_SECONDS = (0.05, 1.5)
"""How long a ready node lives until it is killed."""


async def measure_recovery(directory: Path, options: argparse.Namespace) -> Figures:
    with site(directory) as at:
        at.node.kill9()
        empty = await at.restart()
        for first in range(0, options.held, SLICE):
            await fill(at.port, TOPIC, min(SLICE, options.held - first), options.size, first=first + 1)
        acknowledged = await _write_until_killed(at, options)
        full = await at.restart()
        resident = resident_mib(at.node)
        found = await read_numbers(at.port, TOPIC)
        assert found[:acknowledged] == [*range(1, acknowledged + 1)], "all that was acknowledged, in its order"
        assert found == [*range(1, len(found) + 1)], "and of what was not, only what is whole and in order"
        _require_sound(at)
        stored = at.database.stat().st_size / 2**20
    return {
        "empty_ready_seconds": round(empty, 3),
        "ready_seconds": round(full, 3),
        "ready_to_empty": round(full / empty, 2),
        "resident_mib": round(resident, 1),
        "file_mib": round(stored, 1),
    }


async def _write_until_killed(at: Site, options: argparse.Namespace) -> int:
    """Write, and kill the node meanwhile; return the number up to which all was acknowledged."""
    line, acknowledged = await open_line(at.port), options.held
    killing = asyncio.create_task(_kill_after(at, 0.3))
    with contextlib.suppress(Unavailable):
        while True:
            numbers = range(acknowledged + 1, acknowledged + 101)
            answer = read_answer(await line.ask(write_of(TOPIC, numbers, options.size))).json()
            acknowledged = answer["last_seq"]
    await killing
    return acknowledged


async def _kill_after(at: Site, seconds: float) -> None:
    await asyncio.sleep(seconds)
    at.node.kill9()


def _require_sound(at: Site) -> None:
    assert at.ask_file("PRAGMA quick_check") == [("ok",)], "the file is sound"


# --- kills --------------------------------------------------------------------------------------------------------


async def measure_kills(directory: Path, options: argparse.Namespace) -> Figures:
    lot = Random(options.seed)
    with site(directory) as at:
        await _declare(at)
        writers = [_Writer(at, number, options.size, Random(lot.random())) for number in range(options.writers)]
        tasks = [asyncio.create_task(writer.run()) for writer in writers]
        starts = []
        for _ in range(options.kills):
            await asyncio.sleep(lot.uniform(*ALIVE_SECONDS))
            at.node.kill9()
            starts.append(await at.restart())
        for writer in writers:
            writer.stopping = True
        async with asyncio.timeout(LONGEST):
            await asyncio.gather(*tasks)
        begun = time.perf_counter()
        numbers = await _verify_source(at, writers)
        for dest in ROUTERS:
            await _verify_copies(at, dest, numbers)
        seconds = time.perf_counter() - begun
        _require_sound(at)
    return {
        "kills": options.kills,
        "batches": sum(len(writer.told) for writer in writers),
        "records": len(numbers),
        "copies": len(numbers) * len(ROUTERS),
        "repeated": sum(writer.repeated for writer in writers),
        "written_before_the_kill": sum(writer.deduped for writer in writers),
        "lost": 0,
        "doubled": 0,
        "missing": 0,
        "ready_p50_seconds": round(statistics.median(starts), 3),
        "ready_longest_seconds": round(max(starts), 3),
        "verified_in_seconds": round(seconds, 1),
    }


async def _declare(at: Site) -> None:
    await call(at.port, "PUT", f"/v0/topics/{SOURCE}", {"durability": "fsync", "idempotency_window_ms": 3_600_000})
    for dest, source in ROUTERS.items():
        await call(at.port, "PUT", f"/v0/topics/{dest}", {"durability": "fsync"})
        declared = {"source": source, "dest": dest, "guarantee": "exactly_once"}
        assert (await call(at.port, "PUT", f"/v0/routers/to-{dest}", declared))["created"]


class _Writer:
    """One client. `told`: the seq of each batch, and its numbers."""

    def __init__(self, at: Site, number: int, size: int, lot: Random) -> None:
        self.told: list[tuple[int, int, range]] = []
        self.stopping = False
        self.repeated = self.deduped = 0
        self._at = at
        self._name = f"writer-{number}"
        self._next = number * 10**8
        self._size = size
        self._lot = lot
        self._line: HttpConnection | None = None

    async def run(self) -> None:
        """Write until it is stopped, and its last batch is acknowledged."""
        while not self.stopping:
            count = self._lot.randint(1, MOST_RECORDS)
            batch, self._next = range(self._next, self._next + count), self._next + count
            records = [make_record(number, self._size) for number in batch]
            key = f"{self._name}-{batch[0]}"
            body = {"records": records, "idempotency_key": key}
            answer = await self._until_answered(request("POST", f"/v0/topics/{SOURCE}", body))
            self.deduped += answer["deduped"]
            self.told.append((answer["first_seq"], answer["last_seq"], batch))

    async def _until_answered(self, asked: bytes) -> Any:
        tries = 0
        while True:
            try:
                self._line = self._line or await open_line(self._at.port)
                answer = read_answer(await self._line.ask(asked))
                if answer.status < 500:
                    self.repeated += bool(tries)
                    return answer.json()
            except (OSError, AssertionError, EventdError):  # no port file, no listener, or a lost connection
                self._line = None
            tries += 1
            await asyncio.sleep(0.01)


async def _verify_source(at: Site, writers: list[_Writer]) -> list[int]:
    """Return the numbers in the source, in order."""
    found = await read_numbers(at.port, SOURCE)
    for writer in writers:
        for first, last, batch in writer.told:
            assert found[first - 1 : last] == [*batch], f"the batch at {first} is at the seqs of its answer"
    assert len(found) == sum(len(batch) for writer in writers for *_, batch in writer.told), "nothing else, none twice"
    return found


async def _verify_copies(at: Site, dest: str, numbers: list[int]) -> None:
    async with asyncio.timeout(LONGEST):
        while (await call(at.port, "GET", f"/v0/topics/{dest}"))["head_seq"] < len(numbers):  # noqa: ASYNC110 another process
            await asyncio.sleep(0.1)
    assert await read_numbers(at.port, dest) == numbers, f"{dest}: each copy once, in the order of the source"
    router = await call(at.port, "GET", f"/v0/routers/to-{dest}")
    assert router["forwarded_total"] == len(numbers), f"{dest}: and the router knows"
