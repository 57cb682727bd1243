"""Checks the URL of a database."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from eventd.errors import SettingsError
from eventd.store.engine.sessions import connect_options
from eventd.text.database_url import POSTGRES_FORM, POSTGRES_SCHEMES, URL_FORMS, postgres_problem

if TYPE_CHECKING:
    import sqlalchemy as sa

OLDEST_SQLITE: Final = (3, 38)
"""The oldest SQLite with built-in JSON functions; RETURNING exists since 3.35."""
_SQLITE: Final = "sqlite:///"


def sqlite_version() -> str:
    """Return the version of SQLite that this process uses."""
    return sqlite3.sqlite_version


class SqliteUrl(NamedTuple):
    """The URL of a SQLite file, with the used part of the interface of SQLAlchemy's URL class, which takes long to
    load."""

    database: str
    query: str = ""

    def render_as_string(self, *, hide_password: bool = True) -> str:
        """Return the URL, which contains no password."""
        return f"{_SQLITE}{quote(self.database, safe=' +/')}{self.query and f'?{self.query}'}"

    def read_only(self) -> SqliteUrl:
        """Return the URL for a reader, which must not create the file if it is missing."""
        return SqliteUrl(f"file:{quote(str(Path(self.database).absolute()))}", "mode=ro&uri=true")

    def connect(self, seconds: float) -> sqlite3.Connection:
        """Open the file, for use by one thread at a time. A statement waits `seconds` for a lock."""
        given = dict(parse_qsl(self.query))
        if given.pop("uri", "").lower() not in ("1", "true", "yes", "on"):
            return sqlite3.connect(Path(self.database).absolute(), timeout=seconds, check_same_thread=False)
        name = f"{self.database}?{'&'.join(f'{key}={value}' for key, value in given.items())}"
        return sqlite3.connect(name, timeout=seconds, check_same_thread=False, uri=True)


def parse_url(text: str) -> SqliteUrl | sa.URL:
    """Parse a database URL. Raises `SettingsError`, which never quotes the URL, because it may contain a password."""
    if not text.startswith(_SQLITE):
        return _parse_other(text)
    database, _, query = text.removeprefix(_SQLITE).partition("?")
    if database in ("", ":memory:"):
        raise SettingsError("a node's database must be a file, not memory", hint="write sqlite:///PATH")
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise SettingsError(
            f"SQLite {sqlite3.sqlite_version} is too old: a node needs {'.'.join(map(str, OLDEST_SQLITE))} or later",
            hint=f"run a Python that comes with a later one, or use {POSTGRES_FORM}",
        )
    return SqliteUrl(unquote(database), query)


def _parse_other(text: str) -> sa.URL:
    if text.startswith("sqlite://"):
        raise SettingsError("a node's database must be a file, not memory", hint="write sqlite:///PATH")
    if not text.startswith(POSTGRES_SCHEMES):
        driver = re.match(r"([a-z+]+)://", text)
        problem = f"unsupported database {driver[1]!r}" if driver else "the database URL cannot be read"
        raise SettingsError(problem, hint=f"write {URL_FORMS}")
    if found := postgres_problem(text):
        raise SettingsError(f"the database URL {found.message}", hint=found.advice)
    from sqlalchemy.engine import make_url

    url = make_url(text).set(drivername="postgresql+psycopg")
    connect_options(url)  # refuses a query that the pool could not read either
    return url
