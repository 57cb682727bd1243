"""Failures of the database: a clear answer, nothing acknowledged is lost, and the log works again afterwards."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eventd.errors import DatabaseUnavailable, DatabaseUnusable, EventdError, SettingsError
from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head, touch_head
from eventd.log.core.units import Publish
from eventd.log.core.values import AppendResult, Draft, Drafts
from eventd.store.engine import database as databases
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from eventd.store.schema import migrations
from eventd.testing import NOW, ManualClock, draft, until
from tests.support import writers
from tests.support.ports import free_port
from tests.support.reading import read_records
from tests.support.stored import read_stored

BIG = 200_000

RIGHTS = "check that the folder exists, and that this user may read and write it and the file"


def sized(name: str, size: int) -> Draft:
    return draft(name, payload={"k": "x" * size})


async def fill(log: EventLog, topic: int, *, size: int = 20_000) -> tuple[list[str], EventdError]:
    """Append until it fails: what was acknowledged, and the error."""
    taken: list[str] = []
    for number in range(10_000):
        try:
            await log.append(topic, [sized(f"{number:05}", size)])
        except EventdError as error:
            return taken, error
        taken.append(f"{number:05}")
    raise AssertionError("nothing ever failed")


async def stored(log: EventLog, topic: int) -> list[str]:
    return [record.event_id for record in await log.database.read(read_stored, topic)]


def error_of(attempt: Callable[[], object]) -> EventdError:
    with pytest.raises(EventdError) as caught:
        attempt()
    return caught.value


# --- opening ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "must be a file, not memory"),
        ("sqlite:///:memory:", "must be a file, not memory"),
        ("mysql://h/x", "unsupported database 'mysql'"),
        ("nonsense", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_what_can(url: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        Database(url)
    assert "sqlite:///PATH" in caught.value.hint


def test_a_sqlite_that_is_too_old_is_told_before_it_fails_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 1))
    error = error_of(lambda: Database(f"sqlite:///{tmp_path}/x.db"))
    assert "a node needs 3.38 or later" in error.message
    assert not (tmp_path / "x.db").exists()


def opening(url: str) -> EventdError:
    with closing(Database(url)) as opened:
        return error_of(lambda: opened.read_now(fetch, "SELECT * FROM log_heads"))


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    error = opening(f"sqlite:///{tmp_path}/none/eventd.db")
    assert (type(error), error.hint) == (DatabaseUnavailable, RIGHTS)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "eventd.db"
    file.write_bytes(b"a letter to my mother\n" * 1000)
    error = opening(f"sqlite:///{file}")
    assert (type(error), "restore a backup" in error.hint) == (DatabaseUnusable, True)
    assert "file is not a database" in str(error)
    assert file.read_bytes().startswith(b"a letter"), "and it is left as it was"


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[30 * 8192 :] = b"\xff" * (len(content) - 30 * 8192)
    file.write_bytes(content)


async def test_a_damaged_file(migrated_sqlite_url: str, clock: ManualClock) -> None:
    file = Path(migrated_sqlite_url.removeprefix("sqlite:///"))
    with closing(Database(migrated_sqlite_url)) as database:
        log = await EventLog.open(database, clock)
        topic = await log.topic("group:g")
        await log.append(topic, [sized(f"{n}", 1000) for n in range(200)])
        await log.close()
    damage(file)
    told = pytest.raises(DatabaseUnusable, match=r"malformed.*restore a backup")  # whichever page is read first
    with closing(Database(migrated_sqlite_url)) as database, told:
        await (await EventLog.open(database, clock)).read(topic, 0)


@pytest.mark.postgres
def test_a_server_that_is_not_there_and_nothing_of_the_password() -> None:
    error = opening(f"postgresql://postgres:secret@127.0.0.1:{free_port()}/x")
    assert (type(error), error.hint) == (DatabaseUnavailable, "check that the server runs and can be reached")
    assert "secret" not in str(error)


def test_a_postgres_database_or_role_that_does_not_exist(postgres_url: str) -> None:
    error = opening(postgres_url + "_none")
    assert (type(error), error.hint) == (DatabaseUnavailable, "create the database, or correct its URL")
    error = opening(postgres_url.replace("postgres@", "nobody@"))
    assert (type(error), error.hint) == (DatabaseUnavailable, "create the role, or correct the database's URL")


def test_a_database_without_our_tables_says_which_command_to_run(database_url: str) -> None:
    error = opening(database_url)
    assert (type(error), "routerd-eventd migrate" in error.hint) == (DatabaseUnusable, True)


# --- read-only ----------------------------------------------------------------------------------------------------


def write_as_nobody(url: str) -> tuple[str, str, int]:
    """What an append says in a process without the right to write, and how much it can still read."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    with closing(Database(url)) as database:
        try:
            database.write_now(touch_head)
        except EventdError as error:
            try:
                count = len(database.read_now(read_stored))
            except EventdError:
                count = -1
            return type(error).__name__, error.hint, count
    return "none", "", 0


def permit(file: Path, mode: int, directory_mode: int) -> None:
    file.chmod(mode)
    file.parent.chmod(directory_mode)


@pytest.mark.parametrize("where", ["file", "directory"])
async def test_without_the_right_to_write(where: str, clock: ManualClock) -> None:
    with tempfile.TemporaryDirectory(prefix="eventd-readonly-") as name:
        file = Path(name) / "eventd.db"
        url = f"sqlite:///{file}"
        with closing(Database(url)) as database:
            database.write_now(migrations.upgrade, now=NOW)
            log = await EventLog.open(database, clock)
            await log.append(await log.topic("group:g"), [draft("a")])
            await log.close()
        permit(file, 0o444, 0o777 if where == "file" else 0o555)
        with writers.pool(1) as pool:
            kind, hint, count = await asyncio.wrap_future(pool.submit(write_as_nobody, url))
        permit(file, 0o644, 0o755)
        assert kind == "DatabaseUnavailable"
        assert hint == RIGHTS
        assert (where, count) in (("file", 1), ("directory", -1))
        with closing(Database(url)) as database:
            log = await EventLog.open(database, clock)
            topic = await log.topic("group:g")
            await log.append(topic, [draft("b")])
            assert await stored(log, topic) == ["a", "b"]
            await log.close()


# --- a full disk --------------------------------------------------------------------------------------------------


async def test_a_file_that_may_not_grow(migrated_sqlite_url: str, clock: ManualClock) -> None:
    """The database's own limit on its size: what a full disk looks like to it, wherever the tests run."""
    with closing(Database(migrated_sqlite_url)) as database:
        log = await EventLog.open(database, clock)
        topic = await log.topic("group:g")
        limit = "PRAGMA max_page_count = {}"
        await database.write(fetch, limit.format(150))
        taken, error = await fill(log, topic)
        assert (type(error), error.hint) == (
            DatabaseUnavailable, "free some space; nothing that was acknowledged is lost",
        )  # fmt: skip
        assert await stored(log, topic) == taken
        units = [log.submit(Publish(topic, [sized(f"x{n}", BIG)])) for n in range(3)]
        done = await asyncio.gather(*units, return_exceptions=True)
        assert [type(fate) for fate in done] == [DatabaseUnavailable] * 3
        await database.write(fetch, limit.format(100_000))
        await log.append(topic, [sized("after", BIG)])
        assert await stored(log, topic) == [*taken, "after"]
        assert (await log.look_around()).last == len(taken) + 1
        await log.close()


def fill_under_limit(url: str, limit: int) -> tuple[list[str], str, str]:
    """Append until a file of `limit` bytes is reached, in a process that may not write more."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    async def work() -> tuple[list[str], str, str]:
        async with writers.open_log(url) as log:
            taken, error = await fill(log, await log.topic("group:g"))
            return taken, type(error).__name__, error.hint

    return asyncio.run(work())


async def test_a_quota_that_is_used_up(migrated_sqlite_url: str, clock: ManualClock) -> None:
    with writers.pool(1) as pool:
        job = pool.submit(fill_under_limit, migrated_sqlite_url, 600_000)
        taken, kind, hint = await asyncio.wrap_future(job)
    assert len(taken) > 3
    assert (kind, hint) == ("DatabaseUnavailable", "check the disk: it may be full, over a quota, or failing")
    with closing(Database(migrated_sqlite_url)) as database:
        log = await EventLog.open(database, clock)
        topic = await log.topic("group:g")
        assert await stored(log, topic) == taken
        await log.append(topic, [draft("after")])
        assert (await log.look_around()).last == len(taken) + 1
        await log.close()


@contextmanager
def tiny_disk(directory: Path) -> Iterator[Path]:
    """A file system of four megabytes, where this process may make one."""
    directory.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(made, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a file system of its own")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


async def test_a_full_disk(tmp_path: Path, clock: ManualClock) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(b"x" * 1_500_000)
        with closing(Database(f"sqlite:///{disk}/eventd.db")) as database:
            database.write_now(migrations.upgrade, now=NOW)
            log = await EventLog.open(database, clock)
            topic = await log.topic("group:g")
            taken, error = await fill(log, topic)
            assert (type(error), error.hint) == (
                DatabaseUnavailable, "free some space; nothing that was acknowledged is lost",
            )  # fmt: skip
            # more than the cache holds is written before the commit: the database undoes the transaction by itself
            units: list[Sequence[Draft]] = [
                [sized("s1", 10)],
                [sized(f"x{n}", 10**6) for n in range(24)],
                [sized("s2", 9)],
            ]
            done = await asyncio.gather(*(log.append(topic, unit) for unit in units), return_exceptions=True)
            assert [type(fate) for fate in done] == [DatabaseUnavailable] * 3
            assert all("disk is full" in str(fate) for fate in done)
            assert await stored(log, topic) == taken
            (disk / "ballast").unlink()
            await log.append(topic, [sized("after", 10)])
            assert await stored(log, topic) == [*taken, "after"]
            assert (await log.look_around()).last == len(taken) + 1
            await log.close()


# --- the transaction is gone --------------------------------------------------------------------------------------


class Undone:
    """A unit during which the database undoes the whole transaction by itself."""

    cursor = None
    durable = True
    turn = Turn.FRONT
    is_brief = False
    weight = 1

    def __init__(self, topic_id: int) -> None:
        self.topic_id = topic_id
        self.tries = 0

    def admit(self, tx: Transaction) -> Drafts:
        return Drafts.of([draft("undone")])

    def finish(self, tx: Transaction, appended: AppendResult) -> None:
        self.tries += 1
        if tx.conn.dialect == "sqlite":
            execute(tx.conn, "ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")
        execute(tx.conn, "SELECT pg_terminate_backend(pg_backend_pid())")


async def test_units_are_not_tried_again_outside_of_the_transaction(log: EventLog) -> None:
    """Each would be a transaction of its own, without the head's lock: records beyond the head, and no way on."""
    topic = await log.topic("group:g")
    undone = Undone(topic)
    units: list[Any] = [Publish(topic, [draft("a")]), undone, Publish(topic, [draft("b")])]
    done = await asyncio.gather(*map(log.submit, units), return_exceptions=True)
    assert [type(fate) for fate in done] == [DatabaseUnavailable] * 3
    assert undone.tries == 1
    assert await stored(log, topic) == []
    appended = await log.append(topic, [draft("a"), draft("b")])
    assert list(appended.positions) == [1, 2]


# --- held by another ----------------------------------------------------------------------------------------------


async def test_a_database_that_another_process_holds(
    migrated_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "LOCK_SECONDS", 0.1)
    held, let_go = threading.Event(), threading.Event()

    def hold(conn: Connection) -> None:
        lock_head(conn)
        held.set()
        assert let_go.wait(20)

    with closing(Database(migrated_url)) as database, closing(Database(migrated_url)) as other:
        log = await EventLog.open(database, clock)
        topic = await log.topic("group:g")
        await log.append(topic, [draft("a")])
        holding = other.start_write(hold)
        await until(held.is_set)
        units = [log.submit(Publish(topic, [draft(f"{n}")])) for n in range(3)]
        done = await asyncio.gather(*units, return_exceptions=True)
        assert [type(fate) for fate in done] == [DatabaseUnavailable] * 3
        assert {fate.hint for fate in done if isinstance(fate, EventdError)} == {
            "another process locks the database; retry"
        }
        assert await stored(log, topic) == ["a"], "a reader does not wait"
        let_go.set()
        await asyncio.wrap_future(holding)
        await log.append(topic, [draft("b")])
        assert await stored(log, topic) == ["a", "b"]
        await log.close()


# --- a server that goes and comes back ----------------------------------------------------------------------------


async def test_lost_connections_are_made_anew(migrated_postgres_url: str, clock: ManualClock) -> None:
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    cut += " AND datname = current_database()"
    with closing(Database(migrated_postgres_url)) as database, closing(Database(migrated_postgres_url)) as other:
        log = await EventLog.open(database, clock)
        topic = await log.topic("group:g")
        taken: list[str] = []
        failures: list[EventdError] = []
        for number in range(30):
            if number % 10 == 5:
                await asyncio.gather(*(read_records(log, topic, 0) for _ in range(6)))  # several connections to lose
                await other.read(fetch, cut)
            try:
                await log.append(topic, [draft(f"{number}")])
                taken.append(f"{number}")
                assert await stored(log, topic) == taken
            except EventdError as error:
                failures.append(error)
        assert 3 <= len(failures) <= 9, "one at most of each connection"
        assert {type(error) for error in failures} == {DatabaseUnavailable}
        assert {error.hint for error in failures} == {"check that the server runs and can be reached"}
        assert await stored(log, topic) == taken
        await log.close()


@pytest.mark.parametrize("must_flush", [False, True])
async def test_a_fault_of_one_who_hears_of_what_was_written_holds_up_no_writer(
    log: EventLog, must_flush: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await log.topic("group:g")

    class _Flushed(Publish):
        durable = not must_flush

        def admit(self, tx: Transaction) -> Drafts:
            tx.must_flush = must_flush
            return super().admit(tx)

    def fail(topics: object) -> None:
        raise KeyError

    log.wakeups.listeners.append(fail)
    for name in ("a", "b"):
        await asyncio.wait_for(log.submit(_Flushed(topic, [draft(name)])), 5)
    assert await stored(log, topic) == ["a", "b"]
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [KeyError, KeyError]
