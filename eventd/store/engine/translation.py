"""Translates errors of both database drivers into this project's errors; all translations are here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eventd.errors import DatabaseFault, DatabaseUnavailable, DatabaseUnusable, EventdError


class SchemaUnusable(Exception):
    """The open database has a schema that this version cannot use.

    It is raised by code that has only a connection; `translated`, which can name the database, converts it to a
    `DatabaseUnusable`.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@contextmanager
def translated(label: str) -> Iterator[None]:
    """Translate errors of the driver, and `SchemaUnusable`. `label` names the database without a secret."""
    try:
        yield
    except Exception as error:
        ours = translate(error, label)
        if ours is error:
            raise
        raise ours from error


def translate(error: Exception, label: str = "the database") -> Exception:
    """Return this project's error for an error of a driver, of SQLAlchemy or of the schema.

    Any other error is returned unchanged.
    """
    if isinstance(error, SchemaUnusable):
        return DatabaseUnusable(f"{label}: {error}", hint=error.hint)
    exc: Any = sys.modules.get("sqlalchemy.exc")  # None before it is loaded: then there are no errors of it
    if exc and isinstance(error, exc.DBAPIError):
        return _translate(label, error.orig or error)
    if exc and isinstance(error, exc.TimeoutError):
        return DatabaseUnavailable(f"no connection to {label} became free in time")
    if exc and isinstance(error, exc.SQLAlchemyError):
        return DatabaseUnavailable(f"{label}: {type(error).__name__}")
    if type(error).__module__.split(".")[0] in ("sqlite3", "psycopg"):  # the hot paths bypass SQLAlchemy
        return _translate(label, error)
    if isinstance(error, UnicodeDecodeError):  # a driver quotes the damaged bytes in its message, which is no text then
        return DatabaseUnusable(f"{label}: damaged: it contains text that is not UTF-8", hint="restore a backup")
    return error


def _is_fault(error: BaseException) -> bool:
    """Return whether the row is at fault, not the database: a constraint, or a value that no column can hold."""
    return any(kind.__name__ in ("IntegrityError", "DataError") for kind in type(error).__mro__)


FAULT_HINT = "this is an internal error: please report it"
_OLD = "restore a backup, or run `routerd-eventd migrate` if its schema is older"
_REACH = "check that the server runs and can be reached"
_RIGHTS = "check that the folder exists, and that this user may read and write it and the file"
_SSLMODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_PARAMETERS = "correct the parameters after the ? of the database's URL"
# The first fragment that occurs in the driver's message decides.
_MEANINGS: tuple[tuple[str, type[EventdError], str], ...] = (
    ("malformed", DatabaseUnusable, "restore a backup"),
    ("not a database", DatabaseUnusable, "name another file or folder, or restore a backup"),
    ("no such table", DatabaseUnusable, _OLD),
    ("no such column", DatabaseUnusable, _OLD),
    ('database "', DatabaseUnavailable, "create the database, or correct its URL"),
    ('role "', DatabaseUnavailable, "create the role, or correct the database's URL"),
    ("does not exist", DatabaseUnusable, _OLD),
    ("authentication failed", DatabaseUnavailable, "correct the user or the password of the database's URL"),
    ("invalid sslmode", DatabaseUnavailable, f"correct the sslmode of the database's URL: {', '.join(_SSLMODES)}"),
    (
        "does not support SSL",
        DatabaseUnavailable,
        "let the server use TLS, or correct the sslmode of the database's URL",
    ),
    ("invalid connection option", DatabaseUnavailable, _PARAMETERS),
    ("connection is bad: invalid", DatabaseUnavailable, _PARAMETERS),
    ("bad value for", DatabaseUnavailable, _PARAMETERS),
    ("full", DatabaseUnavailable, "free some space; nothing that was acknowledged is lost"),
    ("No space left", DatabaseUnavailable, "free some space; nothing that was acknowledged is lost"),
    ("disk I/O error", DatabaseUnavailable, "check the disk: it may be full, over a quota, or failing"),
    ("locked", DatabaseUnavailable, "another process locks the database; retry"),
    ("lock timeout", DatabaseUnavailable, "another process locks the database; retry"),
    ("unable to open", DatabaseUnavailable, _RIGHTS),
    ("readonly", DatabaseUnavailable, _RIGHTS),
    ("connect", DatabaseUnavailable, _REACH),
    ("resolve host", DatabaseUnavailable, _REACH),
    ("server closed", DatabaseUnavailable, _REACH),
)


def _translate(label: str, error: BaseException) -> EventdError:
    first = _first_line(str(error))
    if _is_fault(error):
        return DatabaseFault(f"{label}: {first}", hint=FAULT_HINT)
    for word, kind, hint in _MEANINGS:
        if word in first:
            return kind(f"{label}: {first}", hint=hint)
    return DatabaseUnavailable(f"{label}: {first}")


def _first_line(text: str) -> str:
    """Return the first line: the rest may contain values of the row."""
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
