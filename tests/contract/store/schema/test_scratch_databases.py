"""Databases for a while on a Postgres server: copies of a template, which are dropped, and no other database is."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import sql

from eventd.errors import DatabaseUnavailable, EventdError, SettingsError
from eventd.runtime.chance import SYSTEM
from eventd.store.engine.database import Database
from eventd.store.schema.migrations import require_current
from eventd.store.schema.scratch_databases import ScratchDatabases
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer

PURPOSE = "eventd_tests"
PASSWORD = "p4ss-w0rd"


def server_url(server: PostgresServer, user: str = "postgres") -> str:
    return f"postgresql://{user}@127.0.0.1:{server.port}/postgres"


def names_of(server: PostgresServer) -> set[str]:
    with server.connect(server_url(server)) as session:
        rows = session.execute("SELECT datname FROM pg_database WHERE datname LIKE 'eventd\\_tests%'").fetchall()
    return {name for (name,) in rows}


@pytest.fixture
def databases(postgres_server: PostgresServer) -> Iterator[ScratchDatabases]:
    made = ScratchDatabases(server_url(postgres_server), PURPOSE, SYSTEM.token(4).hex())
    yield made
    made.drop_all()
    made.close()


def test_a_copy_has_the_newest_schema_and_no_log(databases: ScratchDatabases, postgres_server: PostgresServer) -> None:
    databases.make_template()
    database = Database(databases.create("a"))
    try:
        require_current(database)
    finally:
        database.close()
    with databases.reading("a") as session:
        assert session.execute("SELECT * FROM log_heads").fetchall() == []
    assert len(names_of(postgres_server)) == 2
    databases.drop("a")
    databases.drop("a")
    assert len(names_of(postgres_server)) == 1


def test_no_database_of_another_name_is_dropped(databases: ScratchDatabases, postgres_server: PostgresServer) -> None:
    other = ScratchDatabases(server_url(postgres_server), PURPOSE, SYSTEM.token(4).hex())
    try:
        other.make_template()
        databases.make_template()
        databases.drop_all()
        [left] = names_of(postgres_server)
        assert left.startswith(other.left().removesuffix("*"))
        assert databases.left_by_others() == [], "its program still runs"
    finally:
        other.close()
    assert databases.left_by_others() == [left]
    postgres_server.drop_database(f"/{left}")


def test_a_program_that_begins_meanwhile_has_left_nothing(
    databases: ScratchDatabases, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins between the two questions that `left_by_others` asks, whichever is the first."""
    session, begun = databases._session, list[ScratchDatabases]()

    def execute(*words: Any) -> Any:
        answer = session.execute(*words)
        if not begun:
            begun.append(ScratchDatabases(server_url(postgres_server), PURPOSE, SYSTEM.token(4).hex()))
            begun[0]._session.execute(f"CREATE DATABASE {begun[0]._name('a')}")
        return answer

    monkeypatch.setattr(databases, "_session", SimpleNamespace(execute=execute))
    try:
        assert databases.left_by_others() == []
    finally:
        monkeypatch.undo()
        for other in begun:
            other.drop_all()
            other.close()


def test_ended_sessions_hold_no_lock_any_more(databases: ScratchDatabases, postgres_server: PostgresServer) -> None:
    databases.make_template()
    url = databases.create("a")
    session = postgres_server.connect(url)
    session.execute("SELECT pg_advisory_xact_lock(1)")
    databases.end("a", [session.info.backend_pid])
    with databases.reading("a") as other:
        assert other.execute("SELECT pg_try_advisory_lock(1)").fetchone() == (True,)
    session.close()


def test_a_role_that_may_not_create_databases_is_told_what_it_needs(postgres_server: PostgresServer) -> None:
    role = f"eventd_tests_{SYSTEM.token(4).hex()}"
    with postgres_server.connect(server_url(postgres_server), autocommit=True) as session:
        session.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        try:
            with pytest.raises(EventdError, match=f"the role {role} may not create databases") as caught:
                ScratchDatabases(server_url(postgres_server, f"{role}:{PASSWORD}"), PURPOSE, "01234567")
        finally:
            session.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    assert caught.value.hint == f"run as an administrator: ALTER ROLE {role} CREATEDB"
    assert PASSWORD not in str(caught.value)


def test_a_server_that_is_not_there_is_an_error_without_the_password() -> None:
    url = f"postgresql://somebody:{PASSWORD}@127.0.0.1:{free_port()}/postgres"
    with pytest.raises(DatabaseUnavailable) as caught:
        ScratchDatabases(url, PURPOSE, "01234567")
    assert PASSWORD not in f"{caught.value} {caught.value.hint}"


def test_a_file_is_no_server() -> None:
    with pytest.raises(SettingsError, match="not the URL of a Postgres server"):
        ScratchDatabases("sqlite:///eventd.db", PURPOSE, "01234567")
