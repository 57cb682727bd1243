"""The yardsticks of the same run: the minimum of the work, in one process, without a network.

`bare_loop` decodes the requests of a node and inserts the same rows with sqlite3, with a commit for each request.
`imports` starts Python and imports the three largest libraries of a node. `flush` makes a small write durable.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

FLUSHES = 100
LIBRARIES = "import sqlalchemy, aiohttp, pydantic"


class Bare(NamedTuple):
    """The result of the bare loop."""

    events_per_second: float
    cpu_us_per_event: float


class _Event(msgspec.Struct):
    id: str
    type: str
    subject: str
    observed_at: str = msgspec.field(name="observedAt")
    payload: msgspec.Raw


class _Request(msgspec.Struct):
    events: list[_Event]


def bare_loop(folder: Path, bodies: Sequence[bytes], events: int) -> Bare:
    """Decode and insert, as durably as a node does. Raises RuntimeError if not all of it is in the table."""
    with tempfile.TemporaryDirectory(prefix="bare-", dir=folder) as place, _open(Path(place) / "bare.db") as file:
        cpu, begun = time.process_time(), time.perf_counter()
        _insert(file, bodies)
        seconds, busy = time.perf_counter() - begun, time.process_time() - cpu
        [(found, last)] = file.execute("SELECT count(*), max(position) FROM events").fetchall()
    if (found, last) != (events, events):
        raise RuntimeError(f"the bare loop holds {found} events up to {last}, and not {events}")
    return Bare(events / seconds, busy / events * 1e6)


def _open(path: Path) -> closing[sqlite3.Connection]:
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA page_size=8192")
    file.execute("PRAGMA journal_mode=WAL")
    file.execute("PRAGMA synchronous=FULL")
    file.execute(
        "CREATE TABLE events (position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL,"
        " subject TEXT NOT NULL, observed_at TEXT NOT NULL, payload TEXT NOT NULL)"
    )
    return closing(file)


def _insert(file: sqlite3.Connection, bodies: Sequence[bytes]) -> None:
    decoder, position = msgspec.json.Decoder(_Request), 0
    for body in bodies:
        events = decoder.decode(body).events
        rows = [
            (position + at, one.id, one.type, one.subject, one.observed_at, bytes(one.payload).decode())
            for at, one in enumerate(events, start=1)
        ]
        position += len(rows)
        file.execute("BEGIN IMMEDIATE")
        file.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
        file.execute("COMMIT")


def imports() -> float:
    """Return the seconds that Python takes to start and to import what every start of a node needs."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", LIBRARIES], env=plain_environment(), check=True)
    return time.perf_counter() - begun


def flush(folder: Path) -> float:
    """Return the median seconds until a write of 4 KiB at the end of a file is on the disk."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(FLUSHES):
            os.write(file.fileno(), b"x" * 4096)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


def plain_environment() -> dict[str, str]:
    """Return this environment without what would configure a node, or have each process compile its code anew."""
    names = ("EVENTD_", "PYTHONDONTWRITEBYTECODE", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}
