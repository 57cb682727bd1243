"""The node under test and its rival, as processes of their own, and what the measurements of topics have in common."""

from __future__ import annotations

import asyncio
import io
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from eventd.bench.machine import cpu_of
from tests.bench import rival
from tests.bench.wire import call, load, request
from tests.support.processes import Process, Processes

Figures = dict[str, float]

_MANY = {
    "EVENTD_MAX_CONNECTIONS": "8192",
    "EVENTD_MAX_TOPICS": "0",
    "EVENTD_MAX_INFLIGHT_PER_KEY": "0",
    "EVENTD_LOG_LEVEL": "warning",
}


class Site:
    """One node over a new SQLite file, and the rival."""

    def __init__(self, processes: Processes, directory: Path, url: str | None, env: Mapping[str, str]) -> None:
        self.node = processes.serve("node", database_url=url, env={**_MANY, **env})
        self.rival = processes.start("rival", [sys.executable, rival.__file__]).wait_ready()
        self.database = directory / "node" / "eventd.db"

    @property
    def port(self) -> int:
        return self.node.port

    async def restart(self) -> float:
        """Restart the node; return the seconds until it is ready."""
        begun = time.perf_counter()
        self.node.start()
        while not _is_ready(self.node):
            assert self.node.running, self.node.log_tail()
            await asyncio.sleep(0.002)
        return time.perf_counter() - begun

    def ask_file(self, sql: str, *values: object) -> list[Any]:
        """Query the node's database file directly, without a request to the node."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as file:
            return file.execute(sql, values).fetchall()


@contextmanager
def site(directory: Path, url: str | None = None, **env: str) -> Iterator[Site]:
    """Yield a site whose processes are killed at the end; their logs are shown only after a failure.

    `url` is that of a migrated Postgres database, None for a SQLite file of its own. `env` configures the node.
    """
    processes = Processes(directory)
    try:
        yield Site(processes, directory, url, env)
    except BaseException:
        processes.close()
        raise
    with redirect_stdout(io.StringIO()):
        processes.close()


def _is_ready(process: Process) -> bool:
    try:
        return process.get("/v0/ready", seconds=2.0)[0] == 200
    except (AssertionError, ValueError, OSError):
        return False


def resident_mib(process: Process) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel does not tell")


def cpu_seconds(process: Process) -> float:
    """Return the CPU seconds of a process since its start."""
    return cpu_of(process.pid) or 0.0


# --- records ------------------------------------------------------------------------------------------------------


def make_record(number: int, size: int) -> dict[str, Any]:
    """Return a record that differs from all others; its data have about `size` bytes."""
    return {"data": {"n": number, "pad": "x" * max(0, size - 24)}, "tag": "bench:tag"}


def write_of(topic: str, numbers: Sequence[int], size: int) -> bytes:
    """Return the request that writes one batch."""
    return request("POST", f"/v0/topics/{topic}", {"records": [make_record(number, size) for number in numbers]})


def parts(count: int, size: int, *, first: int = 1) -> list[range]:
    """Return `count` numbers from `first` on, in batches."""
    end = first + count
    return [range(start, min(end, start + size)) for start in range(first, end, size)]


async def fill(port: int, topic: str, count: int, size: int, *, first: int = 1) -> None:
    """Write `count` records from number `first` on, in order, as fast as one client can."""
    done = await load(port, [[write_of(topic, numbers, size) for numbers in parts(count, 1000, first=first)]])
    assert sum(one["count"] for one in done.jsons()[0]) == count


async def read_numbers(port: int, topic: str, at: int = 0) -> list[int]:
    """Return the numbers of all records of a topic after a seq, as readers get them; no seq may be missing."""
    numbers: list[int] = []
    while True:
        page = await call(port, "POST", f"/v0/topics/{topic}/diff", {"from_seq": at, "limit": 1000})
        assert page["tombstone"] is None, page["tombstone"]
        seqs = [one["$seq"] for one in page["records"]]
        assert seqs == [*range(at + 1, page["next_from_seq"] + 1)], f"{topic}: a seq is missing after {at}"
        numbers += [one["data"]["n"] for one in page["records"]]
        at = page["next_from_seq"]
        if page["caught_up"]:
            return numbers


async def verify(port: int, topic: str, told: Sequence[Sequence[Any]], written: Sequence[Sequence[range]]) -> None:
    """Check that each batch that a client wrote is in the topic once, at the seqs of its answer, and nothing else."""
    found = await read_numbers(port, topic)
    assert len(found) == sum(len(batch) for row in written for batch in row), "as many records as were written"
    for answers, batches in zip(told, written, strict=True):
        for answer, batch in zip(answers, batches, strict=True):
            assert found[answer["first_seq"] - 1 : answer["last_seq"]] == [*batch], "a batch is where its answer told"
