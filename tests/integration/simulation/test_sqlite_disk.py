"""The simulated disk below the SQLite that Python really uses: its promises hold, and its faults arrive."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from eventd.simulation.world.disk import Disk, DiskFault
from eventd.simulation.world.sqlite_disk import sqlite_disks
from eventd.simulation.world.streams import ChanceStreams, Stream

LOSSES = range(30)


@contextmanager
def disk_of(folder: Path, seed: int) -> Iterator[tuple[Disk, Stream]]:
    """Yield the disk of a machine, and the chance of what is done with it."""
    streams = ChanceStreams(seed)
    disk = Disk(folder / str(seed), streams.of("disk"))

    def find(path: str) -> Disk | None:
        return disk if Path(path).parent == disk.folder else None

    with sqlite_disks().installed(find, streams.of("sqlite")):
        yield disk, streams.of("work")


def connect(disk: Disk, synchronous: str = "FULL") -> sqlite3.Connection:
    made = sqlite3.connect(disk.folder / "eventd.db", isolation_level=None)
    made.execute("PRAGMA journal_mode=WAL")
    made.execute(f"PRAGMA synchronous={synchronous}")
    return made


def numbers(disk: Disk) -> list[int]:
    """Return what is stored, from a database that must not be damaged."""
    with closing(sqlite3.connect(disk.folder / "eventd.db")) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'numbers'").fetchall():
            return []
        return [number for (number,) in conn.execute("SELECT number FROM numbers ORDER BY number")]


def after_power_loss(folder: Path, seed: int, synchronous: str) -> tuple[list[int], int]:
    """Return the numbers that a power loss leaves, and how many were committed."""
    with disk_of(folder, seed) as (disk, work):
        committed = work.randint(1, 40)
        with closing(connect(disk, synchronous)) as conn:
            conn.execute("CREATE TABLE numbers (number INTEGER, text TEXT)")
            for number in range(committed):
                conn.execute("INSERT INTO numbers VALUES (?, ?)", (number, "x" * work.randrange(6000)))
                if work.random() < 0.1:
                    conn.execute("PRAGMA wal_checkpoint")
            disk.lose_power(sqlite_disks())
        return numbers(disk), committed


def test_a_power_loss_takes_nothing_that_was_synced(tmp_path: Path) -> None:
    for seed in LOSSES:
        found, committed = after_power_loss(tmp_path, seed, "FULL")
        assert found == list(range(committed))


def test_a_power_loss_takes_the_last_of_what_was_not_synced(tmp_path: Path) -> None:
    lost = 0
    for seed in LOSSES:
        found, committed = after_power_loss(tmp_path, seed, "NORMAL")
        assert found == list(range(len(found)))
        lost += committed - len(found)
    assert lost > 0


def test_a_kill_takes_nothing(tmp_path: Path) -> None:
    with disk_of(tmp_path, 1) as (disk, _), closing(connect(disk, "NORMAL")) as conn:
        conn.execute("CREATE TABLE numbers (number INTEGER, text TEXT)")
        conn.execute("INSERT INTO numbers VALUES (1, '')")
        disk.keep(sqlite_disks())
        assert numbers(disk) == [1]


def test_a_power_loss_after_a_kill_takes_only_what_was_not_synced(tmp_path: Path) -> None:
    lost = 0
    for seed in LOSSES:
        with disk_of(tmp_path, seed) as (disk, _), closing(connect(disk)) as conn:
            conn.execute("CREATE TABLE numbers (number INTEGER, text TEXT)")
            conn.execute("PRAGMA synchronous=NORMAL")
            conn.execute("INSERT INTO numbers VALUES (1, '')")
            disk.keep(sqlite_disks())
            disk.lose_power(sqlite_disks())
            lost += not numbers(disk)
    assert 0 < lost < len(LOSSES)


@pytest.mark.parametrize("fault", [DiskFault.ERRORS, DiskFault.FULL, DiskFault.SYNC])
def test_a_disk_that_fails_refuses_the_commit(tmp_path: Path, fault: DiskFault) -> None:
    with disk_of(tmp_path, 1) as (disk, _), closing(connect(disk)) as conn:
        conn.execute("CREATE TABLE numbers (number INTEGER, text TEXT)")
        conn.execute("INSERT INTO numbers VALUES (1, '')")
        disk.fault = fault
        with pytest.raises(sqlite3.OperationalError):
            conn.execute("INSERT INTO numbers VALUES (2, ?)", ("x" * 20_000,))
        disk.fault = DiskFault.NONE
        conn.execute("INSERT INTO numbers VALUES (3, '')")
        disk.lose_power(sqlite_disks())
        assert numbers(disk) == [1, 3]


def test_other_databases_of_the_process_are_left_alone(tmp_path: Path) -> None:
    with disk_of(tmp_path, 1) as (disk, _):
        with closing(sqlite3.connect(tmp_path / "other.db")) as conn:
            disk.fault = DiskFault.ERRORS
            conn.execute("CREATE TABLE numbers (number INTEGER)")
            conn.commit()
        assert disk.writes == 0


def test_randomness_of_sqlite_comes_from_the_seed(tmp_path: Path) -> None:
    def draw(seed: int) -> bytes:
        with disk_of(tmp_path / f"{len(list(tmp_path.iterdir()))}", seed) as (disk, _), closing(connect(disk)) as conn:
            found: bytes = conn.execute("SELECT randomblob(16)").fetchone()[0]
            return found

    assert draw(1) == draw(1) != draw(2)
