"""API keys created at run time: their digests, scopes and expiry, never the key itself.

The caller of a change locks the head first and announces the change, so that running nodes notice it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa

from eventd.errors import Conflict, NotFound
from eventd.store.schema.tables import api_keys


class KeyRow(NamedTuple):
    """One stored key. `digest` is its SHA-256 in hexadecimal; times are microseconds.

    Empty `prefixes` allow every name. With `expires_at` None it does not expire. A revoked key keeps its row, so that
    its name is not reused by mistake.
    """

    name: str
    digest: str
    scopes: tuple[str, ...]
    prefixes: tuple[str, ...]
    created_at: int
    expires_at: int | None
    revoked_at: int | None


def read_keys(conn: sa.Connection) -> list[KeyRow]:
    """Return every key, including revoked and expired ones, sorted by name."""
    rows = conn.execute(sa.select(api_keys).order_by(api_keys.c.name))
    return [
        KeyRow(
            row.name,
            row.digest,
            tuple(json.loads(row.scopes)),
            tuple(json.loads(row.prefixes)),
            row.created_at,
            row.expires_at,
            row.revoked_at,
        )
        for row in rows
    ]


def find_key(conn: sa.Connection, name: str) -> KeyRow:
    """Return the key with this name, also a revoked or expired one. Raises `NotFound`."""
    for line in read_keys(conn):
        if line.name == name:
            return line
    raise NotFound(f"key {name} does not exist", hint="`routerctl key list` shows the keys")


def create_key(conn: sa.Connection, line: KeyRow) -> None:
    """Insert a key. The head must be locked. Raises `Conflict` when a key of its name is stored, even a revoked one."""
    taken = {known.name: known for known in read_keys(conn)}.get(line.name)
    if taken is not None:
        owner = "a revoked key" if taken.revoked_at is not None else "another key"
        raise Conflict(
            f"the name {line.name} belongs to {owner}",
            hint="choose another name, or delete that key: routerctl key revoke NAME --forget",
        )
    conn.execute(
        api_keys.insert().values(
            name=line.name,
            digest=line.digest,
            scopes=_text(line.scopes),
            prefixes=_text(line.prefixes),
            created_at=line.created_at,
            expires_at=line.expires_at,
            revoked_at=line.revoked_at,
        )
    )


def revoke_key(conn: sa.Connection, name: str, now: int) -> KeyRow:
    """Revoke a key, unless it is revoked already, and return its row. The head must be locked. Raises `NotFound`."""
    line = find_key(conn, name)
    if line.revoked_at is None:
        line = line._replace(revoked_at=now)
        conn.execute(api_keys.update().where(api_keys.c.name == name).values(revoked_at=now))
    return line


def forget_key(conn: sa.Connection, name: str) -> None:
    """Delete the row of a key, if any: the key is no longer valid, and its name is free. The head must be locked."""
    conn.execute(api_keys.delete().where(api_keys.c.name == name))


def _text(values: Iterable[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))
