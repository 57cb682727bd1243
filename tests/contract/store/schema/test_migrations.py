"""The schema: the migrations produce the declared one, however often and from wherever they are run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from eventd.errors import DatabaseUnusable, EventdError
from eventd.log.core.blocks import Block
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.dead_letters import count_dead_letters
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import SCHEMA_LOCK, execute, fetch
from eventd.store.rows.registry import read_resources
from eventd.store.schema import migrations
from eventd.store.schema.tables import metadata
from eventd.testing import NOW, ManualClock, SeededChance, draft
from tests.support import writers
from tests.support.postgres import PostgresServer
from tests.support.reading import read_records
from tests.support.sqlite_schema import migrated_schema, write_schema
from tests.support.waiting import wait_for

ALL = [f"{number:04}" for number in range(1, 27)]


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
        opened.write_now(lambda conn: metadata.create_all(conn.sqlalchemy))
        yield opened
    if empty.kind != "sqlite":
        server.drop_database(url)


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


def test_the_migrations_lead_to_what_is_declared(empty: Database, declared: Database) -> None:
    """Also in what alembic does not compare: keys, checks, partial indexes, tables without row ids, ids that are never
    used twice."""
    empty.write_now(migrations.upgrade, now=NOW)

    def compare(conn: Connection) -> Any:
        context = MigrationContext.configure(
            conn.sqlalchemy, opts={"compare_type": True, "compare_server_default": True}
        )
        return compare_metadata(context, metadata)

    assert empty.read_now(compare) == []
    for migrated, wanted in zip(facts(empty), facts(declared), strict=True):
        assert migrated == wanted
        assert wanted


def test_a_new_file_gets_what_the_migrations_lead_to(tmp_path: Path) -> None:
    written = migrations.SQLITE_SCHEMA.read_text(encoding="utf-8")
    assert written == migrated_schema(tmp_path), "run python -m tests.support.sqlite_schema"
    with closing(Database(f"sqlite:///{tmp_path / 'new.db'}")) as database:
        database.write_now(migrations.upgrade, now=NOW)
        assert database.read_now(write_schema) == written


def test_a_database_is_brought_to_the_newest_schema_once(empty: Database) -> None:
    """From one that was never migrated to one of a newer program, which is refused in words."""
    assert empty.read_now(migrations.pending) == ALL
    with pytest.raises(DatabaseUnusable, match=rf"lacks {len(ALL)} migrations: .*\(run `routerd-eventd migrate`"):
        migrations.require_current(empty)
    assert empty.write_now(migrations.upgrade, now=NOW) == ALL
    head = empty.read_now(fetch, "SELECT * FROM log_heads")
    ((position, epoch, incarnation, instance),) = empty.read_now(
        fetch, "SELECT next_position, epoch, incarnation, instance FROM log_heads"
    )
    assert (position, incarnation, len(epoch), len(instance)) == (1, 1, 16, 16)
    assert epoch != instance
    assert empty.write_now(migrations.upgrade, now=NOW + 1) == []
    assert empty.read_now(fetch, "SELECT * FROM log_heads") == head
    assert empty.read_now(migrations.read_revision) == migrations.NEWEST
    migrations.require_current(empty)
    assert empty.write_now(migrations.new_epoch) != epoch
    empty.write_now(execute, "UPDATE alembic_version SET version_num = '9999'")
    said = r"has the schema '9999', which this version does not know \(run a newer routerd-eventd, or restore a backup"
    for attempt in (
        lambda: empty.write_now(migrations.upgrade, now=NOW),
        lambda: empty.read_now(migrations.pending),
        lambda: migrations.require_current(empty),
    ):
        with pytest.raises(DatabaseUnusable, match=said):
            attempt()


async def test_a_log_of_the_first_schema_goes_on_where_it_was(empty: Database) -> None:
    """Its events and its place stay; what the new schema adds has its first value."""
    empty.write_now(upgrade_to, "0001")
    empty.write_now(fill_first_schema)
    before = empty.read_now(fetch, "SELECT next_position, epoch, incarnation, registry_version FROM log_heads")
    assert empty.read_now(migrations.pending) == ALL[1:]
    with pytest.raises(DatabaseUnusable, match=rf"lacks {len(ALL) - 1} migrations: .*\(run `routerd-eventd migrate`"):
        migrations.require_current(empty)

    assert empty.write_now(migrations.upgrade, now=NOW) == ALL[1:]

    assert empty.read_now(fetch, "SELECT next_position, epoch, incarnation, registry_version FROM log_heads") == before
    assert empty.read_now(fetch, "SELECT parts_version FROM log_heads") == [(1,)]
    log = await EventLog.open(empty, ManualClock())
    try:
        topic = await log.topic("group:edge")
        assert [(r.position, r.event_id) for r in (await read_records(log, topic, 0)).items] == [(1, "e1")]
        assert (await log.append(topic, [draft("e1"), draft("e2")])).positions == [1, 2]
    finally:
        await log.close()
    assert [r.name for r in empty.read_now(read_resources)] == ["edge"]
    receipts = empty.read_now(fetch, "SELECT id, batch_id, receipt, recorded_at FROM inbound_batches ORDER BY id")
    assert receipts == [(1, "batch-2", "{}", NOW), (2, "batch-1", "{}", NOW + 1)], "numbered as they were written"
    assert empty.read_now(count_dead_letters, 1) == {"peer:0": 1, "peer:1": 2}
    ((instance,),) = empty.read_now(fetch, "SELECT instance FROM log_heads")
    assert len(instance) == 16


LINES = (
    ('[""]', '7\t\t{"a":1}\n8\t\t\n9\t\t{"b":"\\t"}\n', '{"a":1}\n\n{"b":"\\t"}\n'),
    ('["a/b"]', "7\ta/b\t{}\n", "{}\n"),
    ('["a", "b"]', "7\ta\t{}\n8\tb\t{}\n9\t\t\n", "a\t{}\nb\t{}\n\t\n"),
    ("", "7\ta\t{}\n", "a\t{}\n"),
)
"""Paths of a block, its lines as they were, and as they are now."""


def test_lines_lose_their_positions_and_the_path_they_share(empty: Database) -> None:
    """On page after page of them."""
    empty.write_now(upgrade_to, "0005")
    wanted = []
    at = 7
    for paths, before, after in LINES * 100:
        records = before.count("\n")
        row = (at, 1, at, records, 5, NOW, 1, None, "[]", "[]", paths, before)
        empty.write_now(execute, "INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        wanted.append((at, after))
        at += records
    empty.write_now(migrations.upgrade, now=NOW)
    assert empty.read_now(fetch, "SELECT position, text FROM blocks ORDER BY position") == wanted


def test_a_program_of_the_former_lines_that_still_runs_writes_none(empty: Database) -> None:
    """On Postgres it may be another process, or serve another group."""
    empty.write_now(upgrade_to, "0005")
    names = [name for name in Block._fields if name not in ("tree", "leaf", "text")]
    sql = f"INSERT INTO blocks ({', '.join([*names, 'lines'])}) VALUES ({', '.join('?' * (len(names) + 1))})"
    row = (1, 1, 1, 1, 2, NOW, 1, None, "[]", "[]", '[""]', "1\t\t{}\n")
    assert empty.write_now(execute, sql, row) == 1
    empty.write_now(migrations.upgrade, now=NOW)
    with pytest.raises(EventdError, match="lines"):
        empty.write_now(execute, sql, (2, *row[1:]))
    assert empty.read_now(fetch, "SELECT position, text FROM blocks") == [(1, "{}\n")]


def upgrade_to(conn: Connection, revision: str) -> None:
    """What the program of that revision did."""
    from alembic import command

    config = migrations._config()
    config.attributes["connection"] = conn.sqlalchemy
    command.upgrade(config, revision)


def fill_first_schema(conn: Connection) -> None:
    """One event and one declaration, written as the first program wrote them."""
    one = draft("e1")
    line = f"1\t\t{one.body}\n"
    for sql, row in (
        ("INSERT INTO log_heads VALUES (?, ?, ?, ?, ?)", (1, 2, "0123456789abcdef", 1, 7)),
        (
            "INSERT INTO topics (name, next_seq, bytes, ids, evicted_seq, evicted_position, lost_position, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            ("group:edge", 2, len(one.body), 1, 0, 0, 0, NOW),
        ),
        (
            "INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (1, 1, 1, 1, len(one.body), NOW, 1, one.expires_at, '["t"]', '["a"]', '[""]', line),
        ),
        ("INSERT INTO event_ids (topic_id, event_id, position) VALUES (?, ?, ?)", (1, "e1", 1)),
        (
            "INSERT INTO resources VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            ("federation.routerd.net/v1alpha1", "EventGroup", "edge", "{}", '{"nodeName":"a"}', 1, NOW, NOW),
        ),
        (
            "INSERT INTO inbound_batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (1, "b", "batch-1", "k", "", "", "{}", NOW + 1),
        ),
        ("INSERT INTO inbound_batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (1, "b", "batch-2", "", "", "", "{}", NOW)),
        *[
            ("INSERT INTO dead_letters VALUES (?, ?, ?, 1, 'e1', 'refused', '', 1, ?)", (at, f"peer:{at % 2}", at, NOW))
            for at in range(1, 4)
        ],
    ):
        execute(conn, sql, row)


def test_the_names_of_a_new_log_come_from_the_seed(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        with closing(Database(f"sqlite:///{tmp_path / name}", chance=SeededChance(7))) as database:
            database.write_now(migrations.upgrade, now=NOW)
            made.append(database.read_now(fetch, "SELECT epoch, instance FROM log_heads"))
    assert made[0] == made[1]


def test_an_upgrade_that_fails_leaves_nothing_behind(empty: Database) -> None:
    """A foreign table has the name of one that a later migration creates."""
    empty.write_now(execute, "CREATE TABLE resources (theirs INTEGER)")
    with pytest.raises(EventdError, match="already exists"):
        empty.write_now(migrations.upgrade, now=NOW)
    tables = empty.read_now(lambda conn: sa.inspect(conn.sqlalchemy).get_table_names())
    assert tables == ["resources"]
    empty.write_now(execute, "DROP TABLE resources")
    empty.write_now(migrations.upgrade, now=NOW)
    migrations.require_current(empty)


def test_processes_that_upgrade_at_once_do_it_once(database_url: str) -> None:
    """Such as a node and a command that are both started with a new version."""
    with writers.pool(4) as pool:
        applied = sorted(pool.map(writers.upgrade, [database_url] * 4))
    assert applied == [[], [], [], ALL]


def test_a_process_waits_for_the_migration_of_another_longer_than_for_other_locks(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventd.store.engine.database.LOCK_SECONDS", 0.1)
    lock = SCHEMA_LOCK & 0xFFFFFFFF
    waiting = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = {lock}"
    with (
        PostgresServer.connect(postgres_url, autocommit=True) as migrating,
        ThreadPoolExecutor(1) as thread,
    ):
        migrating.execute("SELECT pg_advisory_lock(%s)", (SCHEMA_LOCK,))
        applied = thread.submit(writers.upgrade, postgres_url)
        wait_for(lambda: migrating.execute(waiting).fetchone() == (1,), "the other process waits for the lock")
        migrating.execute("SELECT pg_sleep(0.5)")  # several times as long as for another lock
        assert not applied.done()
        migrating.execute("SELECT pg_advisory_unlock(%s)", (SCHEMA_LOCK,))
        assert applied.result() == ALL


def test_the_program_names_the_newest_migration() -> None:
    """A command compares a database with that name alone; one that lags behind would take an old schema for new."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(migrations._config())
    assert scripts.get_heads() == [migrations.NEWEST]
    assert [script.revision for script in scripts.walk_revisions()] == [*reversed(migrations.REVISIONS)]
