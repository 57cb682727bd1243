"""One log over each database, open for the length of a test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eventd.log.eventlog import EventLog
from eventd.store import migrations
from eventd.store.database import Database
from eventd.testing import NOW, ManualClock
from tests.support.logs import empty
from tests.support.postgres import PostgresServer
from tests.support.waiting import wait_for


def _migrate(url: str) -> None:
    with closing(Database(url)) as database:
        database.write_now(migrations.upgrade, now=NOW)


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("template") / "eventd.db"
    _migrate(f"sqlite:///{file}")
    return file


@pytest.fixture
def migrated_sqlite_url(sqlite_url: str, _sqlite_template: Path) -> str:
    shutil.copyfile(_sqlite_template, sqlite_url.removeprefix("sqlite:///"))
    return sqlite_url


@pytest.fixture(scope="session")
def _shared_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    _migrate(url)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def migrated_postgres_url(postgres_server: PostgresServer, _shared_postgres_url: str) -> Iterator[str]:
    """One database for all tests of a session, emptied after each: making one takes half a second."""
    url = _shared_postgres_url
    yield url
    try:
        wait_for(lambda: not postgres_server.sessions(url), "all sessions of the test to be closed", seconds=5)
    except AssertionError:
        pytest.fail("Postgres sessions left open:\n" + "\n".join(postgres_server.sessions(url)))
    finally:
        with closing(Database(url)) as database:
            database.write_now(empty)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def migrated_url(request: pytest.FixtureRequest) -> str:
    """A database of today's schema with an empty log: the test runs once on SQLite and once on Postgres."""
    url: str = request.getfixturevalue(f"migrated_{request.param}_url")
    return url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    with closing(Database(migrated_url)) as opened:
        yield opened


@pytest.fixture
async def log(database: Database, clock: ManualClock) -> AsyncIterator[EventLog]:
    """The log of `database`, at the time of `clock`."""
    opened = await EventLog.open(database, clock)
    yield opened
    await opened.close()
