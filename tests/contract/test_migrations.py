"""The schema: what the migrations make is what is declared, however often and from wherever they are run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from eventd.errors import DatabaseUnusable, EventdError
from eventd.store import migrations
from eventd.store.database import Database, fetch
from eventd.store.schema import metadata
from eventd.testing import NOW
from tests.support import writers
from tests.support.postgres import PostgresServer


@pytest.fixture
def empty(database_url: str) -> Iterator[Database]:
    """A database in which nothing is."""
    with closing(Database(database_url)) as opened:
        yield opened


@pytest.fixture
def declared(empty: Database, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    """Another database of the same kind, made from the declaration and not by migrations."""
    if empty.kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'declared.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database()
    with closing(Database(url)) as opened:
        opened.write_now(metadata.create_all)
        yield opened
    if empty.kind != "sqlite":
        server.drop_database(url)


def test_the_migrations_lead_to_what_is_declared(empty: Database) -> None:
    empty.write_now(migrations.upgrade, now=NOW)

    def compare(conn: sa.Connection) -> Any:
        context = MigrationContext.configure(conn, opts={"compare_type": True, "compare_server_default": True})
        return compare_metadata(context, metadata)

    assert empty.read_now(compare) == []


FACTS = {
    "sqlite": [
        "SELECT name, type, ncol, wr FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite%'",
        'SELECT m.name, c.name, c.type, c."notnull", c.dflt_value, c.pk FROM sqlite_master m,'
        " pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%'",
        'SELECT m.name, i."unique", i.origin, i.partial, (SELECT group_concat(name) FROM pragma_index_info(i.name))'
        " FROM sqlite_master m, pragma_index_list(m.name) i WHERE m.type = 'table'",
        "SELECT name, instr(sql, 'AUTOINCREMENT') > 0, instr(sql, 'CHECK') > 0 FROM sqlite_master WHERE type = 'table'",
        "SELECT name, replace(sql, char(10), '') FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
    ],
    "postgresql": [
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
        " WHERE table_schema = 'public'",
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT conrelid::regclass::text, contype::text, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace",
    ],
}


def facts(database: Database) -> list[set[tuple[Any, ...]]]:
    rows = [database.read_now(fetch, sql) for sql in FACTS[database.kind]]
    return [{tuple(row) for row in found if "alembic_version" not in str(row)} for found in rows]


def test_nor_do_they_differ_in_what_alembic_does_not_compare(empty: Database, declared: Database) -> None:
    """Keys, checks, partial indexes, tables without row ids, ids that are never used twice."""
    empty.write_now(migrations.upgrade, now=NOW)
    for migrated, wanted in zip(facts(empty), facts(declared), strict=True):
        assert migrated == wanted
        assert wanted


def test_a_second_upgrade_changes_nothing(empty: Database) -> None:
    assert empty.write_now(migrations.upgrade, now=NOW) == empty.read_now(all_revisions)
    head = empty.read_now(fetch, "SELECT * FROM log_heads")
    assert empty.write_now(migrations.upgrade, now=NOW + 1) == []
    assert empty.read_now(fetch, "SELECT * FROM log_heads") == head
    assert empty.read_now(migrations.read_revision) == migrations.NEWEST
    migrations.require_current(empty)


def all_revisions(conn: sa.Connection) -> list[str]:
    return [name for (name,) in fetch(conn, "SELECT version_num FROM alembic_version")]


def test_each_new_log_has_an_epoch_of_its_own(empty: Database, declared: Database) -> None:
    empty.write_now(migrations.upgrade, now=NOW)
    ((position, epoch, incarnation),) = empty.read_now(fetch, "SELECT next_position, epoch, incarnation FROM log_heads")
    assert (position, incarnation, len(epoch)) == (1, 1, 16)
    assert migrations.new_epoch() != epoch


def test_a_database_that_was_never_migrated_says_which_command_to_run(empty: Database) -> None:
    assert empty.read_now(migrations.pending) == [migrations.NEWEST]
    with pytest.raises(DatabaseUnusable, match=r"lacks 1 migration \(run `routerd-eventd migrate`"):
        migrations.require_current(empty)


def test_a_database_of_a_newer_program_is_refused_in_words(empty: Database) -> None:
    empty.write_now(migrations.upgrade, now=NOW)
    empty.write_now(lambda conn: conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'"))
    said = r"has the schema '9999', which this version does not know \(run a newer routerd-eventd, or restore a backup"
    for attempt in (
        lambda: empty.write_now(migrations.upgrade, now=NOW),
        lambda: empty.read_now(migrations.pending),
        lambda: migrations.require_current(empty),
    ):
        with pytest.raises(DatabaseUnusable, match=said):
            attempt()


def test_an_upgrade_that_fails_leaves_nothing_behind(empty: Database) -> None:
    """A table of somebody else's is in the way of a later one."""
    empty.write_now(lambda conn: conn.exec_driver_sql("CREATE TABLE resources (theirs INTEGER)"))
    with pytest.raises(EventdError, match="already exists"):
        empty.write_now(migrations.upgrade, now=NOW)
    tables = empty.read_now(lambda conn: sa.inspect(conn).get_table_names())
    assert tables == ["resources"]
    empty.write_now(lambda conn: conn.exec_driver_sql("DROP TABLE resources"))
    empty.write_now(migrations.upgrade, now=NOW)
    migrations.require_current(empty)


def test_processes_that_upgrade_at_once_do_it_once(database_url: str) -> None:
    """Such as a node and a command that are both started with a new version."""
    with writers.pool(4) as pool:
        applied = sorted(pool.map(writers.upgrade, [database_url] * 4))
    assert applied == [[], [], [], [migrations.NEWEST]]


def test_the_program_names_the_newest_migration() -> None:
    """A command compares a database with that name alone; one that lags behind would take an old schema for new."""
    from alembic.script import ScriptDirectory

    assert ScriptDirectory.from_config(migrations._config()).get_heads() == [migrations.NEWEST]
