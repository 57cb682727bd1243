"""A SQLite file replaced by an older copy is detected: the file beside it records how far the log was acknowledged."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from eventd.errors import DatabaseUnusable
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head, renew_epoch
from eventd.store.engine.database import Database
from eventd.store.engine.foreign_file import refuse_foreign
from eventd.store.engine.head_file import HeadFile, HeadMark, forget_head, read_mark
from eventd.testing import ManualClock, draft

BENT = b"eventd-head-1 \xff e 00000000000000000009 5e6972cf\n"
"""With the right sum, and no text."""


@pytest.fixture
def file(migrated_sqlite_url: str) -> Path:
    return Path(migrated_sqlite_url.removeprefix("sqlite:///"))


@asynccontextmanager
async def opened(file: Path, *, killed: bool = False) -> AsyncIterator[EventLog]:
    """The log in the file. `killed` leaves it as a process does that is killed: what the system has stays as it is."""
    with closing(Database(f"sqlite:///{file}")) as database:
        log = await EventLog.open(database, ManualClock())
        yield log
        if killed:
            await log._appender.close()
        else:
            await log.close()


async def write(log: EventLog, *ids: str) -> int:
    appended = await log.append(await log.topic("group:g"), [draft(each) for each in ids])
    return max(position for position in appended.positions if position is not None)


def copy_of(file: Path) -> Path:
    copy = file.with_suffix(".copy")
    copy.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def put_back(copy: Path, file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, file)


def spoil(file: Path, content: bytes) -> None:
    Path(f"{file}.head").write_bytes(content)


def known(file: Path) -> HeadMark | None:
    found = HeadFile(file)
    try:
        return found.read()
    finally:
        found.close()


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_a_copy_that_is_put_back_begins_a_new_epoch(
    file: Path, killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(file, killed=killed) as log:
        await write(log, "a")
        copy = copy_of(file)
        await write(log, "b")
        former = log.epoch
    put_back(copy, file)
    async with opened(file) as log:
        assert log.epoch != former
        [told] = [record for record in caplog.records if record.getMessage() == "epoch renewed"]
        assert told.__dict__["reason"] == (
            f"the database is an older copy: it ends at position 1 of the epoch {former}, and this node has "
            f"acknowledged position 2 of the epoch {former}"
        )
        renewed = log.epoch
    async with opened(file) as log:
        assert log.epoch == renewed, "once"


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_no_start_begins_a_new_epoch_without_a_loss(file: Path, killed: bool) -> None:
    epochs = set()
    for turn in range(5):
        async with opened(file, killed=killed) as log:
            epochs.add(log.epoch)
            await asyncio.gather(*[write(log, f"{turn}.{number}") for number in range(20)])
    assert len(epochs) == 1


async def test_a_copy_of_a_former_epoch_is_older_however_long_it_is(file: Path) -> None:
    async with opened(file) as log:
        await write(log, "a", "b", "c")
        copy = copy_of(file)
        former = log.epoch
        await log.database.write(renew_epoch)
    put_back(copy, file)
    async with opened(file) as log:
        assert log.epoch != former


async def test_a_position_is_in_the_file_before_its_caller_is_answered(file: Path) -> None:
    async with opened(file) as log:
        for number in range(1, 4):
            last = await write(log, str(number))
            found = known(file)
            assert found is not None
            assert (found.epoch, found.last) == (log.epoch, last)


async def test_commits_do_not_flush_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = []
    monkeypatch.setattr("eventd.store.engine.head_file.os.fdatasync", flushed.append)
    async with opened(file) as log:
        for number in range(50):
            await write(log, str(number))
        assert flushed == []
        await log.database.checkpoint()
        await log.database.checkpoint()
        assert len(flushed) == 1, "and only when there is something new"
    assert len(flushed) == 1
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_another_process_that_is_behind_takes_nothing_back(file: Path) -> None:
    async with opened(file) as first, opened(file) as second:
        await write(first, "a")
        await write(second, "b")
        first._acknowledge(1)
        found = known(file)
        assert found is not None
        assert found.last == 2


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 512, b"nonsense\n" * 90, b"eventd-head-1 - e 00000000000000000009 00000000\n", BENT]
)
async def test_a_file_that_cannot_be_read_says_nothing(file: Path, content: bytes) -> None:
    async with opened(file) as log:
        await write(log, "a")
        former = log.epoch
    spoil(file, content)
    async with opened(file) as log:
        assert log.epoch == former
        assert (await log.database.read(read_head)).epoch == former
    assert known(file) is not None, "it is written anew"


async def test_a_file_that_is_cut_short_under_the_node_ends_nothing(file: Path) -> None:
    async with opened(file) as log:
        await write(log, "a")
        os.truncate(f"{file}.head", 0)
        await write(log, "b")
        found = known(file)
        assert found is not None, "and it is written anew"
        assert found.last == 2


async def test_a_file_that_cannot_be_written_is_told_once_and_holds_up_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    async with opened(file) as log:
        monkeypatch.setattr("eventd.store.engine.head_file.os.pwrite", refuse)
        await write(log, "a")
        await write(log, "b")
        monkeypatch.undo()
        assert (await log.database.read(read_head)).last == 2
    assert caplog.messages.count("older copies undetectable") == 1


async def test_another_database_at_the_same_path_is_no_older_copy(file: Path, tmp_path: Path) -> None:
    async with opened(file) as log:
        await write(log, "a", "b")
    with closing(sqlite3.connect(file)) as other:
        other.execute("UPDATE log_heads SET instance = 'another', epoch = 'e', next_position = 1")
        other.commit()
    async with opened(file) as log:
        assert log.epoch == "e"


def _folder(path: Path) -> None:
    path.mkdir()


def _link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("make", [_folder, _link])
async def test_where_there_can_be_no_such_file_the_log_works_and_says_so(
    file: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    make(Path(f"{file}.head"))
    async with opened(file) as log:
        await write(log, "a")
    assert "older copies undetectable" in caplog.messages
    assert not file.with_name("elsewhere").exists()


async def test_the_file_is_for_the_owner_alone(file: Path) -> None:
    async with opened(file):
        status = os.stat(f"{file}.head")
    assert (status.st_mode & 0o777, status.st_uid) == (0o600, os.stat(file).st_uid)


async def test_a_file_that_was_truncated_is_refused_and_what_the_head_file_proves_is_kept(file: Path) -> None:
    async with opened(file) as log:
        last = await write(log, "one", "two")
    refuse_foreign(file)
    mark = read_mark(file)
    assert mark is not None
    assert mark.last == last
    os.truncate(file, 0)
    with pytest.raises(DatabaseUnusable, match=f"is empty, but its log was acknowledged up to position {last}"):
        refuse_foreign(file)
    assert read_mark(file) == mark
    forget_head(file)
    refuse_foreign(file)
