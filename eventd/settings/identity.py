"""Identifies a database without opening it, so that a command and a node can find out whether they mean the same one.

Commands load this module on every run: it imports nothing slow.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from eventd.settings.environment import redirects_postgres

_SECRET = ("password", "sslpassword")


def identify(url: str, file: Path | None, environ: Mapping[str, str] | None = None) -> str:
    """Return the identity of the database at this URL; `file` is its SQLite file, if it is one."""
    return identify_server(url, environ) if file is None else identify_file(file)


def identify_file(path: Path) -> str:
    """Return the identity of a SQLite file, whatever path names it; empty if the file is missing."""
    try:
        about = os.stat(path)
    except OSError:
        return ""
    return f"sqlite:{about.st_dev:x}:{about.st_ino:x}"


def identify_server(url: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the identity of a Postgres database, which reveals neither its password nor its URL.

    Empty if it depends on more than the URL: on variables of libpq, or on the user of the system.
    """
    import hashlib
    from urllib.parse import parse_qsl, unquote, urlsplit

    if redirects_postgres(environ):
        return ""
    try:
        parts = urlsplit(url)
        host, port, query = (
            parts.hostname or "",
            parts.port or 5432,
            parse_qsl(parts.query, strict_parsing=bool(parts.query)),
        )
    except ValueError:
        return ""
    name = unquote(parts.path.removeprefix("/"))
    if not parts.username or not name or any(key in ("service", "servicefile") for key, _ in query):
        return ""
    options = sorted(f"{key}={value}" for key, value in query if key not in _SECRET)
    text = "\0".join((host, str(port), name, unquote(parts.username), *options))
    return f"postgres:{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()}"
