"""The writer lock: processes write to one SQLite file in turn; one that never releases it does not stop the others."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from eventd.errors import DatabaseUnavailable
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.store.engine.writer_lock import WriterLock

HELD = r"other processes held .*eventd\.db\.turn for 0\.1 s"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "eventd.db"


@contextmanager
def hanging(database: Path) -> Iterator[None]:
    """A process that has the turn and does nothing."""
    with open(f"{database}.turn", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free(database: Path) -> bool:
    """Return whether the writer lock is free."""
    with open(f"{database}.turn", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_one_that_hangs_is_not_waited_for_without_end(database: Path) -> None:
    with closing(WriterLock(database, 0.1)) as turns:
        with hanging(database):
            for _ in range(2):
                with pytest.raises(DatabaseUnavailable, match=HELD), turns.hold():
                    pass
        with turns.hold():
            assert not free(database)
    assert free(database)


def test_a_wait_that_was_given_up_keeps_nobody_waiting(database: Path) -> None:
    with closing(WriterLock(database, 0.1)) as turns, closing(WriterLock(database, 10.0)) as others:
        with hanging(database), pytest.raises(DatabaseUnavailable, match=HELD), turns.hold():
            pass
        for _ in range(3):
            with others.hold():
                assert not free(database)


def test_who_waits_gets_the_turn(database: Path) -> None:
    with closing(WriterLock(database, 10.0)) as one, closing(WriterLock(database, 10.0)) as other:
        had = threading.Event()

        def take() -> None:
            with other.hold():
                had.set()

        waiting = threading.Thread(target=take)
        with one.hold():
            waiting.start()
            assert not had.wait(0.05)
        waiting.join(10)
        assert had.is_set()


def test_never_have_two_the_turn(database: Path) -> None:
    """Also where waits are given up all the time."""
    inside: list[int] = []
    most: list[int] = []
    gave_up: list[int] = []

    def write(turns: WriterLock) -> None:
        for _ in range(300):
            try:
                with turns.hold():
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
            except DatabaseUnavailable:
                gave_up.append(1)

    with (
        closing(WriterLock(database, 0.0002)) as one,
        closing(WriterLock(database, 0.0002)) as two,
        closing(WriterLock(database, 5.0)) as three,
    ):
        threads = [threading.Thread(target=write, args=(turns,)) for turns in (one, two, three)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max(most) == 1
    assert len(most) + len(gave_up) == 900
    assert free(database)


def test_a_write_of_a_worker_ends_when_another_one_hangs(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.store.engine.database.LOCK_SECONDS", 0.1)
    with closing(Database(sqlite_url, shared=True)) as worker:
        assert worker.path is not None
        with hanging(worker.path), pytest.raises(DatabaseUnavailable, match=HELD):
            worker.write_now(fetch, "SELECT 1")
        assert worker.write_now(fetch, "SELECT 1") == [(1,)]
