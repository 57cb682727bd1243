"""What is acknowledged is on the disk: no default of a server, a role or a library may weaken that."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import Any

import pytest

from eventd.errors import DatabaseUnavailable
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import mark_unsynced, touch_head
from eventd.store.engine import database as databases
from eventd.store.engine.database import LOCK_SECONDS, Connection, Database
from eventd.store.engine.statements import execute, fetch, run_of_system
from eventd.testing import ManualClock, draft
from tests.support.topics import Topics


def setting(name: str) -> Any:
    def ask(conn: Connection) -> Any:
        return fetch(conn, name)[0][0]

    return ask


async def test_every_commit_of_sqlite_is_flushed(migrated_sqlite_url: str) -> None:
    with closing(Database(migrated_sqlite_url)) as database:
        for ask, expected in (("PRAGMA synchronous", 2), ("PRAGMA journal_mode", "wal")):
            assert await database.write(setting(ask)) == expected
            assert await database.read(setting(ask)) == expected
        await database.take_over_checkpoints()
        assert await database.write(setting("PRAGMA synchronous")) == 2


async def test_the_writer_makes_no_files_on_the_side_and_who_sorts_whole_tables_does(migrated_sqlite_url: str) -> None:
    in_memory, in_files = 2, 0
    with closing(Database(migrated_sqlite_url)) as database:
        assert await database.write(setting("PRAGMA temp_store")) == in_memory, "a file for each commit takes 0.1 ms"
        assert await database.read(setting("PRAGMA temp_store")) == in_files, "an answer must not fill the memory"
        assert database.write_now(setting("PRAGMA temp_store")) == in_files, "neither must a migration"


async def test_every_commit_of_postgres_is_flushed_whatever_its_defaults_say(migrated_postgres_url: str) -> None:
    name = migrated_postgres_url.rsplit("/", 1)[1]
    with closing(Database(migrated_postgres_url)) as other:
        other.write_now(execute, f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        try:
            with closing(Database(migrated_postgres_url)) as database:
                assert await database.write(setting("SHOW synchronous_commit")) == "on"
                assert await database.read(setting("SHOW synchronous_commit")) == "on"
                assert await database.read(setting("SHOW fsync")) == "on", "the suite runs against what users have"
        finally:
            other.write_now(execute, f'ALTER DATABASE "{name}" RESET synchronous_commit')


async def test_a_wait_for_postgres_has_an_end(migrated_postgres_url: str) -> None:
    with closing(Database(migrated_postgres_url)) as database:
        assert await database.write(setting("SHOW lock_timeout")) == "5s"


async def test_a_reader_sees_one_moment(database: Database) -> None:
    def look_twice(conn: Connection) -> tuple[Any, Any]:
        before = fetch(conn, "SELECT epoch FROM log_heads")
        database.write_now(execute, "UPDATE log_heads SET epoch = epoch || 'x'")
        return before, fetch(conn, "SELECT epoch FROM log_heads")

    before, after = await database.read(look_twice)
    assert before == after


async def test_what_is_read_in_a_writing_transaction_still_holds_when_it_writes(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the right to write from its beginning; otherwise another could come in between, and it would fail."""
    monkeypatch.setattr(databases, "LOCK_SECONDS", 0.1)
    raised = "UPDATE log_heads SET incarnation = incarnation + 1"
    with closing(Database(migrated_sqlite_url)) as database, closing(Database(migrated_sqlite_url)) as other:

        def read_then_write(conn: Connection) -> None:
            before = fetch(conn, "SELECT incarnation FROM log_heads")
            with pytest.raises(DatabaseUnavailable, match="locked"):
                other.write_now(execute, raised)
            assert fetch(conn, "SELECT incarnation FROM log_heads") == before
            execute(conn, raised)

        await database.write(read_then_write)
        other.write_now(execute, raised)
        assert await database.read(fetch, "SELECT incarnation FROM log_heads") == [(3,)]


async def test_what_raises_is_undone(database: Database) -> None:
    def change(conn: Connection) -> None:
        execute(conn, "UPDATE log_heads SET epoch = 'changed'")
        raise RuntimeError("after it was written")

    with pytest.raises(RuntimeError, match="after it was written"):
        await database.write(change)
    assert await database.read(fetch, "SELECT epoch FROM log_heads WHERE epoch = 'changed'") == []


async def test_what_forces_a_flush_is_written(migrated_sqlite_url: str) -> None:
    """SQLite writes no row that stays as it was, and where it writes nothing it flushes nothing."""
    with closing(Database(migrated_sqlite_url)) as database:
        for _ in range(2):
            before = database.wal_bytes()
            await database.write(touch_head)
            assert database.wal_bytes() > before


async def test_a_durable_transaction_that_has_nothing_to_write_flushes_what_is_not_on_the_disk(
    migrated_sqlite_url: str, clock: ManualClock
) -> None:
    with closing(Database(migrated_sqlite_url)) as database:
        log = await EventLog.open(database, clock)
        topic = await log.topic("group:g")
        await log.append(topic, [draft("a")])
        flushes = "SELECT flushes FROM log_heads"
        await log.append(topic, [draft("a")])
        assert await database.read(fetch, flushes) == [(0,)], "all was on the disk"
        await database.write(mark_unsynced, "this run")
        await log.append(topic, [draft("a")])
        assert await database.read(fetch, flushes) == [(1,)]
        await log.close()


async def test_a_label_shows_no_password() -> None:
    with closing(Database("postgresql://eve:secret@127.0.0.1:1/x")) as database:
        assert database.label() == "postgresql+psycopg://eve:***@127.0.0.1:1/x"


async def test_appends_do_not_wait_for_whoever_reads_an_old_moment(migrated_sqlite_url: str) -> None:
    """A back-up does, for as long as it takes."""
    with closing(Database(migrated_sqlite_url)) as database, closing(sqlite3.connect(str(database.path))) as reader:
        await database.take_over_checkpoints()
        reader.execute("BEGIN")
        reader.execute("SELECT epoch FROM log_heads").fetchall()
        await database.write(execute, "UPDATE log_heads SET epoch = epoch || 'x'")
        begun = time.monotonic()
        await database.checkpoint(patient_bytes=1, urgent_bytes=1)
        assert time.monotonic() - begun < LOCK_SECONDS / 2
        assert await database.write(setting("PRAGMA busy_timeout")) == LOCK_SECONDS * 1000
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_writer_that_lost_its_connection_still_leaves_checkpoints_to_others(migrated_sqlite_url: str) -> None:
    def lose(conn: Connection) -> None:
        conn.driver.close()
        raise DatabaseUnavailable("it is gone")

    with closing(Database(migrated_sqlite_url)) as database:
        await database.take_over_checkpoints()
        assert await database.write(setting("PRAGMA wal_autocheckpoint")) == 0
        with pytest.raises(DatabaseUnavailable):
            await database.write(lose)
        assert await database.write(setting("PRAGMA wal_autocheckpoint")) == 0
        assert await database.write(setting("PRAGMA temp_store")) == 2


# --- a database that comes back with less -------------------------------------------------------------------------


async def test_a_server_that_began_again_by_itself_is_another_run(migrated_postgres_url: str) -> None:
    """It does so when one of its processes is killed: that loses commits, and its start time stays as it was."""
    with closing(Database(migrated_postgres_url)) as database:
        before = await database.read(run_of_system)
        assert await database.read(run_of_system) == before
        await database.write(fetch, "SELECT pg_stat_reset_shared('bgwriter')")
        assert await database.read(run_of_system) != before


def forget_last(conn: Connection) -> None:
    """What a crash of the server does to commits that were not flushed before the answer."""
    execute(conn, "DELETE FROM blocks WHERE position = (SELECT max(position) FROM blocks)")
    execute(conn, "UPDATE topics SET next_seq = next_seq - 1, bytes = bytes - 1 WHERE name = 't'")
    execute(conn, "UPDATE log_heads SET next_position = next_position - 1")


async def test_a_log_that_lost_its_end_beneath_a_process_begins_a_new_history_beyond_it(
    log: EventLog, database: Database
) -> None:
    topics = Topics(log)
    topic = await topics.make("t")
    await topics.put("t", 1)
    await topics.put("t", 2)
    before = await topics.slice("t")
    assert [before.head.last, before.head_seq] == [2, 2]
    await database.write(forget_last)
    with log.watch([topic]) as watch:
        waiting = watch.beyond(2)
        await topics.put("t", 3)
        await asyncio.wait_for(waiting, 5)
    assert (await log.look_around()).last == 3, "no position that was seen is given again"
    told = await topics.slice("t", before.next_from_seq, epoch=before.epoch)
    assert told.tombstone is not None
    assert told.tombstone.reason == "recreated"
    assert told.epoch != before.epoch
    assert [record["data"] for record in await topics.page("t")] == [1, 3]
    await topics.put("t", 4)
    assert (await topics.slice("t")).epoch == told.epoch, "once"
