"""Other processes that use a log under test: they append to it, tail it, and are killed while they append.

The processes are forked off a small server that has imported everything, so that to start and kill one takes
milliseconds. Each opens the database itself: no open connection survives a fork.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, closing
from threading import Barrier

from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.rows.registry import announce
from eventd.store.schema import migrations
from eventd.testing import NOW, draft
from tests.support.reading import read_records

PATIENCE = 30.0
"""Seconds after which a tail returns what it has: the process that should have written has failed, and reports it."""

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload([__name__])


def pool(processes: int) -> ProcessPoolExecutor:
    """Return a pool of processes to run the functions below; use it in a `with`."""
    return ProcessPoolExecutor(processes, mp_context=FORKED)


@asynccontextmanager
async def open_log(url: str) -> AsyncIterator[EventLog]:
    """Yield the log behind `url`, opened and closed as a node does."""
    database = Database(url)
    try:
        log = await EventLog.open(database, SystemClock())
        yield log
        await log.close()
    finally:
        database.close()


def upgrade(url: str) -> list[str]:
    """Apply the migrations; return those that were applied."""
    with closing(Database(url)) as database:
        return database.write_now(migrations.upgrade, now=NOW)


def open_together(urls: list[str], barrier: Barrier) -> int:
    """Open each database at the same moment as the other processes; return how many were opened."""
    opened = 0
    for url in urls:
        barrier.wait(PATIENCE)
        with closing(Database(url)) as database:
            opened += database.write_now(lambda _conn: 1)
    return opened


def append(url: str, topics: list[str], name: str, *, commits: int, size: int) -> list[tuple[str, int]]:
    """Append `commits` units of `size` events, one after the other, to each of the topics: (id, position) of all."""

    async def work() -> list[tuple[str, int]]:
        given: list[tuple[str, int]] = []
        async with open_log(url) as log:
            ids = [await log.topic(topic) for topic in topics]
            for commit in range(commits):
                for topic in ids:
                    drafts = [draft(f"{name}/{topic}/{commit:05}/{n}") for n in range(size)]
                    appended = await log.append(topic, drafts)
                    given += zip((d.event_id for d in drafts), appended.positions, strict=True)
        return given

    return asyncio.run(work())


def tail(url: str, topic: str, *, count: int) -> list[tuple[int, int, str]]:
    """Follow a topic from its beginning until `count` records were read: (position, seq, id), in the order of
    reading."""

    async def work() -> list[tuple[int, int, str]]:
        seen: list[tuple[int, int, str]] = []
        async with open_log(url) as log:
            topic_id, after = await log.topic(topic), 0
            give_up = log.clock.monotonic() + PATIENCE
            while len(seen) < count and log.clock.monotonic() < give_up:
                page = await read_records(log, topic_id, after)
                seen += [(record.position, record.seq, record.event_id) for record in page.items]
                after = page.upto
                await asyncio.sleep(0 if page.items else 0.001)
        return seen

    return asyncio.run(work())


def append_until_killed(url: str, topic: str, name: str, acknowledged: str) -> None:
    """Append in units of one, two and more events until killed; write each acknowledged id to a file."""
    file = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    parent = os.getppid()

    async def append_and_tell(log: EventLog, topic_id: int, unit: list[str]) -> None:
        await log.append(topic_id, [draft(event_id) for event_id in unit])
        os.write(file, "".join(f"{event_id}\n" for event_id in unit).encode())

    async def work() -> None:
        number = 0
        async with open_log(url) as log:
            topic_id = await log.topic(topic)
            while os.getppid() == parent:  # otherwise the test that should have killed this process is itself gone
                units = [[f"{name}/{number + i}/{n}" for n in range(size)] for i, size in enumerate((1, 2, 40))]
                number += len(units)
                await asyncio.gather(*(append_and_tell(log, topic_id, unit) for unit in units))

    asyncio.run(work())


def append_one(url: str, topic: str, event_id: str) -> float:
    """Append one event; return when it was acknowledged, on the clock that all processes of this machine share."""

    async def work() -> float:
        async with open_log(url) as log:
            await log.append(await log.topic(topic), [draft(event_id)])
            return log.clock.monotonic()

    return asyncio.run(work())


def declare(url: str) -> int:
    """Notify that resources have changed; return the new version."""
    with closing(Database(url)) as database:
        return database.write_now(announce)
