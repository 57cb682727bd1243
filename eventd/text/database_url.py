"""Judges the URL of a database before a driver reads it, whose messages may quote parts of the password."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

POSTGRES_FORM: Final = "postgresql://USER@HOST/NAME"
URL_FORMS: Final = f"sqlite:///PATH or {POSTGRES_FORM}"
POSTGRES_SCHEMES: Final = ("postgresql+psycopg://", "postgresql://", "postgres://")
SEVERAL_HOSTS: Final = "postgresql://USER@/NAME?host=HOST1:PORT1&host=HOST2:PORT2"
_HIGHEST_PORT: Final = 65535
_ADDRESS: Final = re.compile(r"(?P<host>\[[\w:.%]+\]|[\w.,-]*)(?::(?P<port>[^/?]*))?(?:[/?].*)?", re.DOTALL)
"""What follows the user and the password. A name of the host with other signs may be a part of the password."""
_SECRETS: Final = ("password", "passwd", "secret", "scram_client_key", "scram_server_key")
"""How the names of parameters with secrets end."""
_ESCAPED_AT: Final = "an @ in the user, the password, the name or the query as %40"


class UrlProblem(NamedTuple):
    """What is wrong with a URL, as the end of a sentence that begins with its name, and what to write."""

    message: str
    advice: str


def postgres_problem(url: str) -> UrlProblem | None:
    """Return what is wrong with the URL of a Postgres database, quoting nothing of it; None if a driver may read it.

    As for SQLAlchemy, the password ends at the first `@`, and may contain slashes and question marks. A slash in the
    user ends the host, so that the driver would show the rest, with the password, as the name of the database.
    """
    rest = url.partition("://")[2]
    user = re.match(r"[^:/@]*(?::[^@]*)?@", rest)
    address = rest[user.end() :] if user else rest
    if "\0" in url or "%00" in url or not _is_text(url):
        return UrlProblem("contains a character that is not text", "write it without U+0000, in UTF-8")
    if any(unquote(name).casefold().endswith(_SECRETS) for name in re.findall("[?&]([^?&=]*)", rest)):
        # Also before an @: it may be one of the secret, and then what follows it would be taken for the host.
        return UrlProblem("has a secret in the query, which is shown in logs", "write the password before the @")
    if "@" in address:
        if user:
            return UrlProblem("has more than one @", f"write {_ESCAPED_AT}")
        return UrlProblem("has an @ after a /", f"write a / in the user or the password as %2F, and {_ESCAPED_AT}")
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return UrlProblem(
            "has an invalid host",
            f"write {POSTGRES_FORM}, with an IPv6 address in brackets, or postgresql://USER@/NAME?host=FOLDER for the"
            " socket in a folder",
        )
    port = found["port"]
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _HIGHEST_PORT):
        form = POSTGRES_FORM.replace("HOST", "HOST:PORT")
        return UrlProblem(
            "has an invalid port",
            f"write {form}, with a port from 1 to {_HIGHEST_PORT}, or, for several hosts, {SEVERAL_HOSTS}",
        )
    return None


def _is_text(url: str) -> bool:
    try:
        url.encode()
    except UnicodeEncodeError:
        return False
    return True
