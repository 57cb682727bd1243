"""Wakeups by position: an append anywhere wakes its readers, and a lost wakeup costs no more than a poll."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from statistics import median
from typing import Any

import psycopg
import pytest

from eventd.log.core import commit
from eventd.log.core.eventlog import EventLog
from eventd.log.core.wakeups import Watch
from eventd.runtime.clock import SystemClock
from eventd.store.engine.changes import POLL, Notifications
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.testing import draft, give_turns, until
from tests.support import writers
from tests.support.fresh import on_sqlite
from tests.support.ports import free_port

WITHIN = 0.25
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'eventd-listen' AND datname = current_database()"

on_postgres = pytest.mark.parametrize(
    "migrated_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
"""For what only Postgres has: notifications. On SQLite the file itself shows each change."""


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    with closing(Database(migrated_url)) as opened:
        yield opened


@pytest.fixture
async def log(database: Database) -> AsyncIterator[EventLog]:
    opened = await EventLog.open(database, SystemClock())
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
async def _threads_of_the_loop_end() -> AsyncIterator[None]:
    yield
    await asyncio.get_running_loop().shutdown_default_executor()


@asynccontextmanager
async def following(log: EventLog) -> AsyncIterator[list[int]]:
    """Look around at every sign of a change, as a node does; the declared versions that were seen."""
    versions: list[int] = []
    source = log.database.change_source(log.clock.sleep)

    async def follow() -> None:
        while True:
            await source.wait()
            versions.append((await log.look_around()).registry_version)

    task = asyncio.get_running_loop().create_task(follow())
    try:
        if log.database.kind == "postgresql":
            await until(lambda: log.database.read(fetch, LISTENERS), "the connection that listens")
        yield versions
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await source.close()


async def wake(watch: Watch, position: int) -> None:
    async with asyncio.timeout(10):
        await watch.beyond(position)


# --- within a process ---------------------------------------------------------------------------------------------


@on_sqlite
async def test_an_append_here_wakes_its_topic_at_once_and_no_other(log: EventLog) -> None:
    topic, other = await log.topic("group:g"), await log.topic("group:h")
    with log.watch((topic,)) as mine, log.watch((other,)) as others, log.watch(None) as all_topics:
        sleeping = others.beyond(0)
        await log.append(topic, [draft("a"), draft("b")])
        await wake(mine, 0)
        await wake(mine, 1)
        await wake(all_topics, 1)
        await give_turns()
        assert not sleeping.done()
        await log.append(other, [draft("c")])
        await wake(others, 2)
        assert not mine.beyond(2).done(), "its own topic has not grown since"


@on_sqlite
async def test_what_was_appended_before_the_wait_is_not_waited_for(log: EventLog) -> None:
    topic = await log.topic("group:g")
    with log.watch((topic,)) as watch:
        await log.append(topic, [draft("a")])
        assert watch.beyond(0).done()
        assert not watch.beyond(1).done()


@on_sqlite
async def test_who_wants_only_own_records_is_woken_only_by_those(log: EventLog) -> None:
    topic = await log.topic("group:g")
    with log.watch((topic,), own=True) as own, log.watch((topic,)) as every, log.watch(None, own=True) as own_of_all:
        waits = [own.beyond(0), own_of_all.beyond(0)]
        await log.append(topic, [draft("a", path="b")])
        await wake(every, 0)
        await give_turns()
        assert not any(wait.done() for wait in waits)
        await log.append(topic, [draft("c")])
        await asyncio.wait_for(asyncio.gather(*waits), 10)


@on_sqlite
async def test_each_waits_for_its_own_position(log: EventLog) -> None:
    topic = await log.topic("group:g")
    with log.watch((topic,)) as watch:
        early, late = watch.beyond(0), watch.beyond(5)
        given_up = watch.beyond(0)
        given_up.cancel()
        await log.append(topic, [draft("a")])
        assert (early.done(), late.done()) == (True, False)
        await log.append(topic, [draft(f"{n}") for n in range(5)])
        assert late.done()


@on_sqlite
async def test_a_watch_that_ended_is_forgotten(log: EventLog) -> None:
    topic = await log.topic("group:g")
    with log.watch((topic,)):
        pass
    with log.watch(None):
        pass
    assert not any((log.wakeups._by_topic, log.wakeups._all, log.wakeups._everything))


async def test_after_an_append_of_another_process_everybody_looks(log: EventLog, database: Database) -> None:
    """This process does not know the topic of the append."""
    topic, other = await log.topic("group:g"), await log.topic("group:h")
    elsewhere = await EventLog.open(database, SystemClock())
    with log.watch((topic,)) as mine, log.watch((other,)) as others:
        await elsewhere.append(other, [draft("a")])
        sleeping = others.beyond(0)
        await log.append(topic, [draft("b")])
        await wake(mine, 1)
        assert sleeping.done(), "the own append came behind a hole: another process's"
        again = mine.beyond(2)
        await elsewhere.append(topic, [draft("c")])
        await log.look_around()
        assert again.done()
    await elsewhere.close()


# --- between processes --------------------------------------------------------------------------------------------


async def test_an_append_of_another_process_wakes_in_time(log: EventLog, migrated_url: str) -> None:
    topic = await log.topic("group:g")
    late: list[float] = []
    with writers.pool(1) as pool:
        async with following(log):
            with log.watch((topic,)) as watch:
                for number in range(7):
                    job = pool.submit(writers.append_one, migrated_url, "group:g", f"{number}")
                    await wake(watch, number)
                    woken = log.clock.monotonic()
                    late.append(woken - await asyncio.wrap_future(job))
    assert median(late) < WITHIN, f"seconds between the acknowledgement there and the waking here: {late}"


async def test_a_declaration_of_another_process_is_seen(log: EventLog, migrated_url: str) -> None:
    with writers.pool(1) as pool:
        async with following(log) as versions:
            version = await asyncio.wrap_future(pool.submit(writers.declare, migrated_url))
            await until(lambda: version in versions)


@on_postgres
async def test_a_sign_that_is_lost_costs_a_poll(
    log: EventLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await log.topic("group:g")
    silent = await EventLog.open(database, SystemClock())
    async with following(log):
        with log.watch((topic,)) as watch:
            monkeypatch.setattr(commit, "notify_head", lambda conn: None)
            await silent.append(topic, [draft("a")])
            await wake(watch, 0)
    await silent.close()


# --- trouble ------------------------------------------------------------------------------------------------------


async def test_a_listener_that_was_cut_off_listens_again(migrated_postgres_url: str) -> None:
    with closing(Database(migrated_postgres_url)) as database:
        log = await EventLog.open(database, SystemClock())
        topic = await log.topic("group:g")
        async with following(log):
            for number in range(2):
                ((pid,),) = await database.read(fetch, LISTENERS)
                await database.read(fetch, "SELECT pg_terminate_backend(?)", (pid,))
                with writers.pool(1) as pool, log.watch((topic,)) as watch:
                    job = pool.submit(writers.append_one, migrated_postgres_url, "group:g", f"{number}")
                    await wake(watch, number)
                    await asyncio.wrap_future(job)

                async def another(old: int = pid) -> bool:
                    return [pid for (pid,) in await database.read(fetch, LISTENERS)] not in ([], [old])

                await until(another, "a new connection that listens")
        await log.close()


async def test_the_sessions_of_our_own_notice_a_server_that_is_gone_without_a_word(migrated_postgres_url: str) -> None:
    """The engine's connections have the same."""
    with closing(Database(migrated_postgres_url)) as database:
        source, claim = database.change_source(SystemClock().sleep), database.claim("", "1 on here")
        assert isinstance(source, Notifications)
        assert claim is not None
        await source.wait()
        claim.take()
        with database._reading.use() as conn:
            pooled: Any = conn.driver
            found = [_keepalives(one.fileno()) for one in (source._connection, claim._session, pooled)]
        assert found == [(1, 10, 5, 3, 30_000)] * 3
        assert claim._session.execute("SHOW tcp_keepalives_idle").fetchone() == ("10",)
        claim.close()
        await source.close()


def _keepalives(number: int) -> tuple[int, ...]:
    with socket.socket(fileno=os.dup(number)) as link:
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        told = [link.getsockopt(socket.IPPROTO_TCP, option) for option in options]
        return (link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), *told)


async def test_a_server_that_is_away_ends_no_wait_with_an_error() -> None:
    with closing(Database(f"postgresql://postgres@127.0.0.1:{free_port()}/x")) as database:
        source = database.change_source(SystemClock().sleep)
        async with asyncio.timeout(10):
            await source.wait()
        await source.close()


async def test_stopped_while_it_connects_it_leaves_no_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixture fails the test when a session is left."""
    connecting, go_on, done = threading.Event(), threading.Event(), threading.Event()
    connect = psycopg.connect

    def slow(*args: Any, **kwargs: Any) -> Any:
        connecting.set()
        assert go_on.wait(10)
        try:
            return connect(*args, **kwargs)
        finally:
            done.set()

    monkeypatch.setattr(psycopg, "connect", slow)
    with closing(Database(postgres_url)) as database:
        source = database.change_source(SystemClock().sleep)
        waiting = asyncio.ensure_future(source.wait())
        await until(connecting.is_set)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await source.close()
        go_on.set()
        await until(done.is_set)


async def test_a_file_that_cannot_be_read_is_a_sign_to_look(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Database(sqlite_url)) as database:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        def broken() -> int:
            raise sqlite3.OperationalError("disk I/O error")

        source = database.change_source(sleep)
        monkeypatch.setattr(source, "_version", broken)
        await asyncio.wait_for(source.wait(), 10)
        await source.close()
    assert slept == [POLL]
