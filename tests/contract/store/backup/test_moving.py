"""Copies of a database into another kind of database, and back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from eventd.errors import Conflict, DatabaseUnavailable, DatabaseUnusable, Invalid
from eventd.store.backup import moving
from eventd.store.backup.moving import copy_database, copy_to_file
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import bulk_insert, execute, fetch, insert_row
from eventd.store.schema import migrations
from eventd.store.schema.tables import metadata
from eventd.testing import NOW

ROWS = 7
TEXTS = ("plain", "", "ümläut ✓ 🚀", "back\\slash\ttab", "a\nb\r\nc", "\x01\x7f", "z" * 5000)


@contextmanager
def opened(url: str) -> Iterator[Database]:
    with closing(Database(url)) as database:
        yield database


def value_of(column: sa.Column[Any], at: int) -> Any:
    """A value for a column: distinct in keys, of every kind elsewhere, and NULL where it may be."""
    kind = type(column.type).__name__
    if column.nullable and at % 3 == 0:
        return None
    if kind == "LargeBinary":
        return bytes(range(at, at + 40))
    if "Text" in kind:
        return f"{at}-{TEXTS[at % len(TEXTS)]}"
    return at if column.primary_key or kind in ("SmallInteger", "Integer") else at * (2**60 // ROWS) - 3


def fill(conn: Connection) -> None:
    """Put rows in every table."""
    for table in metadata.tables.values():
        if table.name in ("log_heads", "effective_config"):
            continue
        rows = [[value_of(column, at + 1) for column in table.columns] for at in range(ROWS)]
        bulk_insert(conn, table.name, [column.name for column in table.columns], rows)
    execute(conn, "DELETE FROM dead_letters WHERE id = ?", (ROWS,))
    execute(conn, "UPDATE log_heads SET next_position = 900")


def contents(conn: Connection) -> dict[str, list[Any]]:
    found = {}
    for table in metadata.tables.values():
        columns = ", ".join(column.name for column in table.columns)
        rows = fetch(conn, f"SELECT {columns} FROM {table.name}")
        found[table.name] = sorted(([*row] for row in rows), key=repr)
    return found


def copied(source: Database, target: Database) -> dict[str, int]:
    counts: dict[str, int] = {}
    copy_database(source, target, now=NOW, report=counts.__setitem__)
    return counts


@pytest.mark.postgres
def test_every_row_survives_the_way_to_postgres_and_back(sqlite_url: str, postgres_url: str, tmp_path: Path) -> None:
    back_url = f"sqlite:///{tmp_path / 'back.db'}"
    with opened(sqlite_url) as first, opened(postgres_url) as second, opened(back_url) as third:
        first.write_now(migrations.upgrade, now=NOW)
        first.write_now(fill)
        before = first.read_now(contents)
        assert copied(first, second) == {name: len(rows) for name, rows in before.items()}
        copied(second, third)
        assert third.read_now(contents) == before


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_an_id_of_a_deleted_row_is_not_used_again(
    kind: str, sqlite_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    other = request.getfixturevalue("postgres_url") if kind == "postgres" else f"sqlite:///{tmp_path / 'other.db'}"
    with opened(sqlite_url) as source, opened(other) as target:
        source.write_now(migrations.upgrade, now=NOW)
        for name in ("a", "b"):
            source.write_now(insert_row, "topics", topic(name))
        source.write_now(execute, "DELETE FROM topics WHERE name = 'b'")
        copied(source, target)
        target.write_now(insert_row, "topics", topic("c"))
        assert target.read_now(fetch, "SELECT id, name FROM topics ORDER BY id") == [(1, "a"), (3, "c")]


def topic(name: str) -> dict[str, Any]:
    zeros = dict.fromkeys(("next_seq", "bytes", "ids", "evicted_seq", "evicted_position", "lost_position"), 0)
    return {"name": name, "form": "topic", **zeros, "created_at": NOW, "config": "{}", "durability": "sync"}


def test_a_database_with_rows_is_refused_and_stays_as_it_is(sqlite_url: str, tmp_path: Path) -> None:
    with opened(sqlite_url) as source, opened(f"sqlite:///{tmp_path / 'used.db'}") as target:
        for database in (source, target):
            database.write_now(migrations.upgrade, now=NOW)
        target.write_now(insert_row, "topics", topic("kept"))
        with pytest.raises(Conflict, match="is not empty: it has rows in topics"):
            copied(source, target)
        assert target.read_now(fetch, "SELECT name FROM topics") == [("kept",)]


def test_a_copy_that_fails_half_way_leaves_an_empty_database(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(conn: Connection, table: str, *rest: Any) -> None:
        if table == "topics":
            raise OSError("the disk is full")
        bulk_insert(conn, table, *rest)

    with opened(sqlite_url) as source, opened(f"sqlite:///{tmp_path / 'new.db'}") as target:
        source.write_now(migrations.upgrade, now=NOW)
        source.write_now(fill)
        monkeypatch.setattr(moving, "bulk_insert", fail)
        with pytest.raises(OSError, match="the disk is full"):
            copied(source, target)
        monkeypatch.undo()
        assert target.read_now(migrations.read_revision) is None
        assert copied(source, target)["topics"] == ROWS


def test_a_copy_without_room_names_the_database_that_lacks_it(sqlite_url: str, tmp_path: Path) -> None:
    with opened(sqlite_url) as source, opened(f"sqlite:///{tmp_path / 'new.db'}") as target:
        for database in (source, target):
            database.write_now(migrations.upgrade, now=NOW)
        source.write_now(fill)
        pages = target.read_now(fetch, "PRAGMA page_count")[0][0]
        target.write_now(fetch, f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(DatabaseUnavailable, match="full") as caught:
            copied(source, target)
        assert caught.value.message.startswith(f"{target.label()}: ")
        assert target.read_now(fetch, "SELECT name FROM topics") == []


def test_a_copy_that_differs_is_named(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(conn: Connection, table: str, names: Any, rows: Any) -> None:
        bulk_insert(conn, table, names, rows[1:] if table == "blocks" else rows)

    with opened(sqlite_url) as source, opened(f"sqlite:///{tmp_path / 'new.db'}") as target:
        source.write_now(migrations.upgrade, now=NOW)
        source.write_now(fill)
        monkeypatch.setattr(moving, "bulk_insert", lose)
        with pytest.raises(DatabaseUnusable, match=r"differs in blocks \(drop it, and copy again"):
            copied(source, target)


def test_an_older_schema_is_migrated_first(sqlite_url: str, tmp_path: Path) -> None:
    with opened(sqlite_url) as source, opened(f"sqlite:///{tmp_path / 'new.db'}") as target:
        source.write_now(migrations.upgrade, now=NOW)
        source.write_now(execute, "UPDATE alembic_version SET version_num = ?", (migrations.REVISIONS[-2],))
        with pytest.raises(DatabaseUnusable, match="lacks 1 migration"):
            copied(source, target)


def test_large_rows_are_copied_one_by_one(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "_PAGE", 2)
    monkeypatch.setattr(moving, "_PAGE_BYTES", 1)
    with opened(sqlite_url) as source, opened(f"sqlite:///{tmp_path / 'new.db'}") as target:
        source.write_now(migrations.upgrade, now=NOW)
        source.write_now(fill)
        copied(source, target)
        assert target.read_now(contents) == source.read_now(contents)


@pytest.fixture
def source(sqlite_url: str) -> Iterator[Database]:
    """A database with rows in every table."""
    with opened(sqlite_url) as database:
        database.write_now(migrations.upgrade, now=NOW)
        database.write_now(fill)
        yield database


class Killed(BaseException):
    """Stands for the end of the process."""


def test_a_file_has_its_name_only_when_it_is_whole(
    source: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, seen = tmp_path / "new.db", []
    copy_to_file(source, new, now=NOW, report=lambda _table, _rows: seen.append(new.exists()))
    assert set(seen) == {False}
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("new.db")] == ["new.db"]
    with opened(f"sqlite:///{new}") as database:
        assert database.read_now(contents) == source.read_now(contents)
    with pytest.raises(Conflict, match="is not empty"):
        copy_to_file(source, new, now=NOW, report=lambda _table, _rows: None)


def test_what_a_killed_copy_leaves_is_no_database_until_it_is_repeated(source: Database, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    Path(f"{new}.partial").touch()
    with opened(f"sqlite:///{new}") as database, pytest.raises(DatabaseUnusable, match="did not finish") as refused:
        database.write_now(migrations.upgrade, now=NOW)
    assert refused.value.hint == "run the copy again; without new.db.partial, new.db is used as it is, or created"
    assert not new.exists()
    copy_to_file(source, new, now=NOW, report=lambda _table, _rows: None)
    with opened(f"sqlite:///{new}") as database:
        migrations.require_current(database)


def test_a_database_beside_an_unfinished_copy_is_not_called_missing(source: Database) -> None:
    assert source.path is not None
    Path(f"{source.path}.partial").touch()
    with opened(f"sqlite:///{source.path}") as database, pytest.raises(DatabaseUnusable) as refused:
        database.read_now(contents)
    assert str(refused.value).startswith(f"{source.path} was not opened: ")


@pytest.mark.postgres
@pytest.mark.parametrize("killed_in", ["_copy_table", "_summed"])
def test_a_killed_copy_to_postgres_is_refused_until_it_is_repeated(
    source: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    def kill(*_: object) -> None:
        raise Killed

    with opened(postgres_url) as target:
        monkeypatch.setattr(moving, killed_in, kill)
        with pytest.raises(Killed):
            copied(source, target)
        monkeypatch.undo()
        told = "`routerctl db copy` to this database did not finish"
        with pytest.raises(DatabaseUnusable, match=told):
            migrations.require_current(target)
        with pytest.raises(DatabaseUnusable, match=told):
            target.write_now(migrations.upgrade, now=NOW)
        copied(source, target)
        migrations.require_current(target)
        assert target.read_now(contents) == source.read_now(contents)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_that_root_copies_has_the_owner_and_mode_of_the_source(source: Database, tmp_path: Path) -> None:
    assert source.path is not None
    os.chown(source.path, 65534, 65533)
    source.path.chmod(0o640)
    copy_to_file(source, tmp_path / "new.db", now=NOW, report=lambda _table, _rows: None)
    found = (tmp_path / "new.db").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65534, 65533, 0o640)


@pytest.mark.parametrize("exists", [False, True], ids=["missing", "empty"])
def test_a_killed_copy_to_a_file_is_refused_until_it_is_repeated(
    source: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    new = tmp_path / "new.db"
    if exists:
        with opened(f"sqlite:///{new}") as database:
            database.write_now(migrations.upgrade, now=NOW)
    with monkeypatch.context() as patched:
        patched.setattr(moving, "_summed", _kill)
        patched.setattr(moving, "remove_database", lambda _path: None)
        with pytest.raises(Killed):
            copy_to_file(source, new, now=NOW, report=lambda _table, _rows: None)
    with opened(f"sqlite:///{new}") as database, pytest.raises(DatabaseUnusable, match="did not finish"):
        migrations.require_current(database)
    copy_to_file(source, new, now=NOW, report=lambda _table, _rows: None)
    with opened(f"sqlite:///{new}") as database:
        assert database.read_now(contents) == source.read_now(contents)


def _kill(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("content", [b"precious", None], ids=["text", "database"])
def test_a_file_with_the_name_of_an_unfinished_copy_that_is_none_stays(
    source: Database, tmp_path: Path, content: bytes | None
) -> None:
    other = tmp_path / "new.db.partial"
    if content is None:
        with opened(f"sqlite:///{other}") as database:
            database.write_now(migrations.upgrade, now=NOW)
    else:
        other.write_bytes(content)
    before = other.read_bytes()
    with pytest.raises(Conflict, match="is not of an unfinished copy"):
        copy_to_file(source, tmp_path / "new.db", now=NOW, report=lambda _table, _rows: None)
    assert other.read_bytes() == before


def test_a_link_with_the_name_of_the_copy_is_refused(source: Database, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.touch()
    (tmp_path / "new.db.partial").symlink_to(victim)
    (tmp_path / "link.db").symlink_to(victim)
    with pytest.raises(Conflict, match="is not of an unfinished copy"):
        copy_to_file(source, tmp_path / "new.db", now=NOW, report=lambda _table, _rows: None)
    with pytest.raises(Invalid, match="is a symbolic link"):
        copy_to_file(source, tmp_path / "link.db", now=NOW, report=lambda _table, _rows: None)
    assert victim.read_bytes() == b""


def test_a_database_is_not_copied_over_the_unfinished_copy_that_it_is(tmp_path: Path) -> None:
    for name, to in (("x.db.partial", "x.db"), ("y.db", "y.db.partial")):
        with opened(f"sqlite:///{tmp_path / name}") as database:
            database.write_now(migrations.upgrade, now=NOW)
            with pytest.raises(Conflict, match="has the name of an unfinished copy"):
                copy_to_file(database, tmp_path / to, now=NOW, report=lambda _table, _rows: None)
        assert [file.name for file in tmp_path.glob(f"{to[0]}.*") if file.name in (name, to)] == [name]
