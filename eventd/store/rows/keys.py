"""API keys and tokens created at run time: their digests, scopes and expiry, never the key itself.

Tokens belong to the Routemaster surface and keys to the API; neither is ever taken for the other. The caller of a
change locks the head first and announces the change, so that running nodes notice it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from eventd.errors import Conflict, NotFound
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row, update_rows

KeySurface = Literal["api", "routemaster"]
"""Where a key is valid."""
API: Final = "api"
ROUTEMASTER: Final = "routemaster"


class KeyRow(NamedTuple):
    """One stored key, or token. `digest` is its SHA-256 in hexadecimal; times are microseconds.

    Empty `prefixes` allow every name. With `expires_at` None it does not expire. A revoked key keeps its row, so that
    its name is not reused by mistake. `label` and `identity` are those of a token: see `eventd.store.rows.tokens`.
    """

    name: str
    digest: str
    scopes: tuple[str, ...]
    prefixes: tuple[str, ...]
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    surface: KeySurface = API
    label: str = ""
    identity: str = ""


def read_keys(conn: Connection) -> list[KeyRow]:
    """Return every key of the API and every token, including revoked and expired ones, sorted by name."""
    rows = fetch(conn, f"SELECT {', '.join(KeyRow._fields)} FROM api_keys ORDER BY name")
    return [
        KeyRow(name, digest, tuple(json.loads(scopes)), tuple(json.loads(prefixes)), *others)
        for name, digest, scopes, prefixes, *others in rows
    ]


def read_api_keys(conn: Connection) -> list[KeyRow]:
    """Return every key of the API, also revoked and expired ones, sorted by name."""
    return [line for line in read_keys(conn) if line.surface == API]


def find_key(conn: Connection, name: str) -> KeyRow:
    """Return the key of the API with this name, also a revoked or expired one. Raises `NotFound`."""
    for line in read_api_keys(conn):
        if line.name == name:
            return line
    raise NotFound(f"key {name} does not exist", hint="`routerctl key list` shows the keys")


def create_key(conn: Connection, line: KeyRow) -> None:
    """Insert a key. The head must be locked. Raises `Conflict` when a key of its name is stored, even a revoked one."""
    taken = {known.name: known for known in read_keys(conn)}.get(line.name)
    if taken is not None:
        owner = "a revoked key" if taken.revoked_at is not None else "another key"
        raise Conflict(
            f"the name {line.name} belongs to {owner}",
            hint="choose another name, or delete that key: routerctl key revoke NAME --forget",
        )
    texts = {"scopes": _text(line.scopes), "prefixes": _text(line.prefixes)}
    insert_row(conn, "api_keys", {**line._asdict(), **texts})


def revoke_key(conn: Connection, name: str, now: int) -> KeyRow:
    """Revoke a key, unless it is revoked already, and return its row. The head must be locked. Raises `NotFound`."""
    line = find_key(conn, name)
    if line.revoked_at is None:
        line = line._replace(revoked_at=now)
        update_rows(conn, "api_keys", {"revoked_at": now}, {"name": name})
    return line


def forget_key(conn: Connection, name: str) -> None:
    """Delete the row of a key, if any: the key is no longer valid, and its name is free. The head must be locked."""
    execute(conn, "DELETE FROM api_keys WHERE name = ?", (name,))


def _text(values: Iterable[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))
