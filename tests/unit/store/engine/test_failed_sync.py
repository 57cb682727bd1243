"""A write-ahead log whose flush failed is written anew before the next transaction: a flush alone may leave holes."""

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


def test_a_log_is_written_anew_at_the_first_transaction_and_after_a_failed_flush(tmp_path: Path) -> None:
    rewritten: list[Path] = []
    database = Database(f"sqlite:///{tmp_path}/notes.db", rewrite=rewritten.append)
    database.write_now(write)
    database.write_now(write)
    assert rewritten == [tmp_path / "notes.db-wal"]
    with pytest.raises(DatabaseUnavailable):
        database.write_now(fail)
    database.write_now(write)
    database.write_now(write)
    database.close()
    assert rewritten == [tmp_path / "notes.db-wal"] * 2


def test_nothing_is_committed_while_the_log_cannot_be_written(tmp_path: Path) -> None:
    def refuse(_path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    database = Database(f"sqlite:///{tmp_path}/notes.db", rewrite=refuse)
    with pytest.raises(DatabaseUnavailable, match="Input/output error"):
        database.write_now(write)
    database.close()


def test_another_error_does_not_cause_it() -> None:
    rewritten: list[Path] = []
    state = FailedSync(Path("notes.db"), rewritten.append)
    state.make_good("notes")
    with pytest.raises(sqlite3.OperationalError), state.noted():
        raise sqlite3.OperationalError("no such table")
    state.make_good("notes")
    assert len(rewritten) == 1


def test_a_file_that_is_written_anew_keeps_its_content(tmp_path: Path) -> None:
    file = tmp_path / "log"
    content = os.urandom(3 << 20) + b"end"
    file.write_bytes(content)
    rewrite_file(file)
    assert file.read_bytes() == content


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    rewrite_file(tmp_path / "log")
    assert not (tmp_path / "log").exists()
