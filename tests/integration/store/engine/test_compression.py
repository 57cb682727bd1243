"""How Postgres compresses what a node writes: with LZ4 where the server has it, unless an operator chose a method."""

from __future__ import annotations

from contextlib import closing

import pytest

from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch

pytestmark = pytest.mark.postgres

SHOW = "SHOW default_toast_compression"


def read_methods(conn: Connection) -> list[str]:
    sql = "SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'"
    return list(fetch(conn, sql)[0][0])


def test_new_texts_are_compressed_with_the_fastest_method_of_the_server(postgres_url: str) -> None:
    with closing(Database(postgres_url)) as database:
        fastest = "lz4" if "lz4" in database.read_now(read_methods) else "pglz"
        assert database.write_now(fetch, SHOW) == [(fastest,)]
        database.write_now(execute, "CREATE TEMPORARY TABLE texts AS SELECT repeat('an event, ', 10000) AS text")
        assert database.write_now(fetch, "SELECT pg_column_compression(text) FROM texts") == [(fastest,)]


def test_the_method_that_an_operator_chose_stays(postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    with closing(Database(postgres_url)) as database:
        database.write_now(execute, f'ALTER DATABASE "{name}" SET default_toast_compression = pglz')
    with closing(Database(postgres_url)) as database:
        assert database.write_now(fetch, SHOW) == [("pglz",)]
