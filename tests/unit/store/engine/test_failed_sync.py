"""A write-ahead log whose flush failed is written again before the next transaction: a flush alone may leave holes."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from eventd.errors import DatabaseUnavailable
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.failed_sync import FailedSync, rewrite_file
from eventd.store.engine.statements import execute


def write(conn: Connection) -> None:
    execute(conn, "CREATE TABLE IF NOT EXISTS notes (text TEXT)")
    execute(conn, "INSERT INTO notes VALUES ('one')")


def failed() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    return error


def fail(_conn: Connection) -> None:
    raise failed()


def test_the_log_is_written_again_after_a_failed_flush(tmp_path: Path) -> None:
    rewritten: list[Path] = []
    database = Database(f"sqlite:///{tmp_path}/notes.db", rewrite=rewritten.append)
    database.write_now(write)
    assert rewritten == [], "a command has no reason to"
    with pytest.raises(DatabaseUnavailable):
        database.write_now(fail)
    database.write_now(write)
    database.write_now(write)
    database.close()
    assert rewritten == [tmp_path / "notes.db-wal"]


def test_the_first_process_of_a_node_writes_it_again_once(tmp_path: Path) -> None:
    rewritten: list[Path] = []
    (tmp_path / "real").mkdir()
    (tmp_path / "notes.db").symlink_to(tmp_path / "real" / "there.db")
    database = Database(f"sqlite:///{tmp_path}/notes.db", rewrite=rewritten.append, is_first=True)
    database.write_now(write)
    database.write_now(write)
    assert database.wal_bytes() > 0, "SQLite resolves links"
    database.close()
    assert rewritten == [tmp_path / "real" / "there.db-wal"]


def test_the_log_of_another_file_in_its_place_is_left_alone(tmp_path: Path) -> None:
    rewritten: list[Path] = []
    database = Database(f"sqlite:///{tmp_path}/notes.db", rewrite=rewritten.append)
    database.write_now(write)
    with pytest.raises(DatabaseUnavailable):
        database.write_now(fail)
    (tmp_path / "notes.db").rename(tmp_path / "moved.db")
    (tmp_path / "notes.db").touch()
    with pytest.raises(DatabaseUnavailable):
        database.write_now(write)
    database.close()
    assert rewritten == []


def test_nothing_is_committed_while_the_log_cannot_be_written(tmp_path: Path) -> None:
    def refuse(_path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    database = Database(f"sqlite:///{tmp_path}/notes.db", rewrite=refuse, is_first=True)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match="Input/output error"):
            database.write_now(write)
    database.close()


def test_another_error_does_not_cause_it() -> None:
    state = FailedSync(Path("notes.db-wal"), rewrite_file, at_start=False)
    with pytest.raises(sqlite3.OperationalError), state.noted():
        raise sqlite3.OperationalError("no such table")
    assert not state.is_due


def test_a_file_that_is_written_again_keeps_its_content(tmp_path: Path) -> None:
    file = tmp_path / "log"
    content = os.urandom(3 << 20) + b"end"
    file.write_bytes(content)
    rewrite_file(file)
    assert file.read_bytes() == content


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    rewrite_file(tmp_path / "log")
    assert not (tmp_path / "log").exists()
