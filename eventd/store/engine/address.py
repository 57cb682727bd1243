"""Checks the URL of a database."""

from __future__ import annotations

import sqlite3
from typing import Final

import sqlalchemy as sa
from sqlalchemy import exc

from eventd.errors import SettingsError

OLDEST_SQLITE: Final = (3, 38)
"""The oldest SQLite with built-in JSON functions; RETURNING exists since 3.35."""


def parse_url(text: str) -> sa.URL:
    """Parse a database URL. Raises `SettingsError`, which never quotes the URL, because it may contain a password."""
    try:
        url = sa.make_url(text)
    except exc.ArgumentError:
        raise SettingsError(
            "the database URL cannot be read",
            hint="write sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME",
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "postgresql+psycopg"):
        raise SettingsError(
            f"unsupported database {url.drivername!r}",
            hint="use sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME",
        )
    if url.drivername == "sqlite" and url.database in (None, "", ":memory:"):
        raise SettingsError("a node's database must be a file, not memory", hint="write sqlite:///PATH")
    if url.drivername == "sqlite" and sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise SettingsError(
            f"SQLite {sqlite3.sqlite_version} is too old: a node needs {'.'.join(map(str, OLDEST_SQLITE))} or later",
            hint="run a Python that comes with a later one, or use postgresql+psycopg://USER@HOST/NAME",
        )
    return url
