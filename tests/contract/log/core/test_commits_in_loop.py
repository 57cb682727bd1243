"""A lone brief unit is committed in the thread of the loop while the disk is fast, with the same outcome as ever."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from eventd.errors import DatabaseUnavailable
from eventd.log.core.commit import Transaction
from eventd.log.core.eventlog import EventLog
from eventd.log.core.loop_budget import FIRST_PAUSE, SLOW, TRUSTED
from eventd.log.core.units import Publish
from eventd.log.core.values import FEW_BYTES, FEW_RECORDS, AppendResult, Draft, Outcome
from eventd.log.core.wakeups import FEW_READERS
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from eventd.testing import ManualClock, draft
from tests.support.ports import free_port
from tests.support.stored import read_stored


@dataclass
class Trusted:
    """A log whose disk was fast; `noted`: see `in_loop`."""

    log: EventLog
    topic: int
    noted: list[bool] = field(default_factory=list)

    async def in_loop(self) -> list[bool]:
        """Return of each further transaction whether it ran in the loop, once all are counted."""
        for _ in range(3):
            await asyncio.sleep(0)
        return self.noted

    async def ids(self) -> list[str]:
        return [record.event_id for record in await self.log.database.read(read_stored, self.topic)][TRUSTED:]


@pytest.fixture
def database(migrated_sqlite_url: str) -> Iterator[Database]:
    with closing(Database(migrated_sqlite_url)) as opened:
        yield opened


@pytest.fixture
async def trusted(database: Database, clock: ManualClock) -> AsyncIterator[Trusted]:
    in_loop: list[bool] = []
    await database.take_over_checkpoints()
    log = await EventLog.open(database, clock, timed=lambda _seconds, _records, there: in_loop.append(there))
    topic = await log.topic("group:g")
    for number in range(TRUSTED):
        await log.append(topic, [draft(f"{number}")])
    assert in_loop == [False] * TRUSTED
    in_loop.clear()
    yield Trusted(log, topic, in_loop)
    await log.close()


def sized(name: str, size: int) -> Draft:
    return draft(name, payload={"k": "x" * size})


async def test_a_lone_event_is_committed_in_the_loop(trusted: Trusted) -> None:
    ran: list[threading.Thread] = []

    class Noting(Publish):
        def finish(self, tx: Transaction, appended: AppendResult) -> AppendResult:
            ran.append(threading.current_thread())
            return appended

    appended = await trusted.log.submit(Noting(trusted.topic, [draft("a")]))
    assert (appended.outcomes, await trusted.in_loop(), ran) == ([Outcome.NEW], [True], [threading.main_thread()])
    assert await trusted.ids() == ["a"]


@pytest.mark.parametrize(("watches", "first"), [(FEW_READERS, "push"), (FEW_READERS + 1, "answer")])
async def test_a_few_readers_begin_their_push_before_the_client_is_answered(
    trusted: Trusted, watches: int, first: str
) -> None:
    order: list[str] = []

    async def push() -> None:
        order.append("push")

    async def follow() -> None:
        with trusted.log.watch((trusted.topic,)) as watch:
            await watch.beyond(trusted.log.wakeups.head)
            await asyncio.create_task(push())

    following = [asyncio.create_task(follow()) for _ in range(watches)]
    await asyncio.sleep(0)
    await trusted.log.append(trusted.topic, [draft("a")])
    order.append("answer")
    await asyncio.gather(*following)
    assert (await trusted.in_loop(), order[0]) == ([True], first)


async def test_what_is_large_or_has_company_goes_to_the_writer_thread(trusted: Trusted) -> None:
    log, topic = trusted.log, trusted.topic
    await log.append(topic, [draft(f"m{n}") for n in range(FEW_RECORDS + 1)])
    await log.append(topic, [sized("large", FEW_BYTES)])
    await asyncio.gather(log.append(topic, [draft("x")]), log.append(topic, [draft("y")]))
    assert await trusted.in_loop() == [False] * 3
    await log.append(topic, [draft(f"n{n}") for n in range(FEW_RECORDS)])
    assert (await trusted.in_loop())[3:] == [True]


async def test_units_keep_their_order_while_loop_and_thread_alternate(trusted: Trusted, database: Database) -> None:
    names: list[str] = []
    units: list[asyncio.Future[AppendResult]] = []
    for number in range(60):
        if number % 7 == 3:
            database.start_write(lambda conn: execute(conn, "UPDATE log_heads SET flushes = flushes + 1"))
        drafts = [draft(f"e{number}/{n}") for n in range(1 + 9 * (number % 3 == 1))]
        names += [one.event_id for one in drafts]
        units.append(trusted.log.submit(Publish(trusted.topic, drafts)))
        if number % 5 == 0:
            await units[-1]
        elif number % 5 == 2:
            await asyncio.sleep(0)
    results = await asyncio.gather(*units)
    assert {*await trusted.in_loop()} == {True, False}
    assert await trusted.ids() == names
    positions = [position for result in results for position in result.positions]
    assert positions == sorted(positions)


async def test_a_known_event_is_recognised_in_the_loop(trusted: Trusted) -> None:
    again = await trusted.log.append(trusted.topic, [draft("3"), draft("new")])
    assert (again.outcomes, await trusted.in_loop()) == ([Outcome.DUPLICATE, Outcome.NEW], [True])


async def test_a_slow_disk_holds_up_the_loop_once_for_each_pause(trusted: Trusted, clock: ManualClock) -> None:
    """The worst disk: fast until it is trusted, and slow as soon as the loop waits for it."""

    class Slow(Publish):
        def finish(self, tx: Transaction, appended: AppendResult) -> AppendResult:
            if threading.current_thread() is threading.main_thread():
                clock.advance(2 * SLOW)
            return appended

    slow_at: list[float] = []
    while len(slow_at) < 5:
        await trusted.log.submit(Slow(trusted.topic, [draft(f"{len(trusted.noted)} slow")]))
        if (await trusted.in_loop())[-1]:
            slow_at.append(clock.monotonic())
        clock.advance(1.0)
    pauses = [after - before for before, after in pairwise(slow_at)]
    assert all(pause >= least for pause, least in zip(pauses, (FIRST_PAUSE, 20, 40, 80), strict=True))


async def test_the_loop_waits_for_no_other_process(trusted: Trusted, database: Database) -> None:
    assert database.path is not None
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waits = trusted.log.submit(Publish(trusted.topic, [draft("a")]))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waits.done(), "the thread waits for it"
        other.execute("ROLLBACK")
        assert (await waits).outcomes == [Outcome.NEW]
        assert await trusted.in_loop() == [False]
        await trusted.log.append(trusted.topic, [draft("b")])
        assert await trusted.in_loop() == [False, False], "others write to the database"


async def test_a_full_disk_is_the_error_that_it_is_in_the_thread(trusted: Trusted, database: Database) -> None:
    def limit(conn: Connection) -> None:
        pages = fetch(conn, "PRAGMA page_count")[0][0]
        fetch(conn, f"PRAGMA max_page_count = {pages}")

    await database.write(limit)
    error: DatabaseUnavailable | None = None
    while error is None:
        try:
            await trusted.log.append(trusted.topic, [sized(f"f{len(trusted.noted)}", 8000)])
        except DatabaseUnavailable as caught:
            error = caught
    assert "full" in error.message
    assert {*await trusted.in_loop()} <= {True}
    assert trusted.log.work.failing
    stored = await trusted.ids()
    assert len(stored) == len(trusted.noted), "what was acknowledged is stored"


async def test_after_a_failed_flush_the_writer_thread_writes_the_log_again(
    trusted: Trusted, database: Database
) -> None:
    def fail(_conn: Connection) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    assert database.may_write_in_loop
    failed = database.write_in_loop(fail)
    assert failed is not None
    assert isinstance(failed.exception(), DatabaseUnavailable)
    assert not database.may_write_in_loop
    assert database.write_in_loop(lambda _: None) is None, "it would write the log again"
    await trusted.log.append(trusted.topic, [draft("a")])
    assert (await trusted.in_loop(), database.may_write_in_loop) == ([False], True)


async def test_the_loop_commits_nothing_during_a_checkpoint(trusted: Trusted, database: Database) -> None:
    checkpoint = asyncio.create_task(database.checkpoint(patient_bytes=0))
    await asyncio.sleep(0)
    assert not database.may_write_in_loop
    await checkpoint
    assert database.may_write_in_loop


async def test_a_write_that_was_given_up_hides_none_that_runs(trusted: Trusted, database: Database) -> None:
    go_on = threading.Event()
    running = database.start_write(lambda _: go_on.wait(20))
    database.start_write(lambda _: None).cancel()
    assert not database.may_write_in_loop
    go_on.set()
    await asyncio.wrap_future(running)
    assert database.may_write_in_loop


async def test_a_database_that_is_closed_or_shared_or_makes_checkpoints_in_commits_is_not_written_in_the_loop(
    migrated_sqlite_url: str, clock: ManualClock
) -> None:
    for apart, shared in ((True, True), (False, False), (True, False)):
        with closing(Database(migrated_sqlite_url, shared=shared)) as database:
            if apart:
                await database.take_over_checkpoints()
            await database.write(lambda _: None)
            assert database.may_write_in_loop is (apart and not shared)
        assert not database.may_write_in_loop


async def test_postgres_is_not_waited_for_in_the_loop() -> None:
    with closing(Database(f"postgresql://postgres@127.0.0.1:{free_port()}/x")) as database:
        await database.take_over_checkpoints()
        with pytest.raises(DatabaseUnavailable):
            await database.write(lambda _: None)
        assert not database.may_write_in_loop
