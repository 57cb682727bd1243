"""Tokens of the Routemaster surface.

They are rows of the table of API keys, marked as belonging to that surface. A token is shown once, when it is created.
Everywhere else its handle is shown, which is made of its name and its digest, and cannot be used to authenticate. A
client is an identity: the handle of its first token. It keeps its subscriptions and claims when its token is replaced.
The caller of a change locks the head first and announces the change.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, update_rows
from eventd.store.rows.keys import ROUTEMASTER, KeyRow, create_key, forget_key, read_keys
from federation.event import is_plain

_MARK: Final = "routemaster/"
"""Prefix of the name under which a token is stored: no key of the API has such a name."""
_LABEL, _DIGITS = 50, 12
"""Maximum characters of the name in a handle, and the digits of the digest behind it."""


class TokenRow(NamedTuple):
    """A token, without the token itself. `label` is its name, which need not be unique; times are microseconds."""

    handle: str
    label: str
    identity: str
    digest: str
    created_at: int
    expires_at: int | None

    def is_valid(self, now: int) -> bool:
        """Return whether the token has not expired."""
        return self.expires_at is None or now < self.expires_at


def digest_of(token: str) -> str:
    """Return the digest of a token, which is stored instead of the token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def handle_of(label: str, token: str) -> str:
    """Return the handle of a token with this name."""
    return f"{label[:_LABEL]}--{digest_of(token)[:_DIGITS]}"


def read_tokens(conn: Connection) -> list[TokenRow]:
    """Return all tokens, also expired ones, ordered by handle."""
    return [_token(line) for line in read_keys(conn) if line.surface == ROUTEMASTER]


def _token(line: KeyRow) -> TokenRow:
    handle = line.name.removeprefix(_MARK)
    return TokenRow(handle, line.label, line.identity, line.digest, line.created_at, line.expires_at)


def count_tokens(conn: Connection) -> int:
    """Return the number of tokens, also expired ones."""
    return int(fetch(conn, "SELECT count(*) FROM api_keys WHERE surface = ?", (ROUTEMASTER,))[0][0])


def tokens_of(conn: Connection, identity: str) -> list[TokenRow]:
    """Return all tokens of a client, also expired ones, ordered by handle."""
    return _read(conn, "identity = ?", identity)


def find_token(conn: Connection, given: str) -> TokenRow | None:
    """Return the token whose text or handle this is; None if there is none."""
    name = _MARK + given if is_plain(given) else ""
    found = _read(conn, "digest = ?", digest_of(given)) or _read(conn, "name = ?", name)
    return found[0] if found else None


def _read(conn: Connection, condition: str, value: str) -> list[TokenRow]:
    columns = "name, label, identity, digest, created_at, expires_at"
    sql = f"SELECT {columns} FROM api_keys WHERE surface = ? AND {condition} ORDER BY name"
    rows = fetch(conn, sql, (ROUTEMASTER, value))
    return [TokenRow(name.removeprefix(_MARK), *others) for name, *others in rows]


def put_token(conn: Connection, label: str, token: str, now: int, *, identity: str = "") -> TokenRow:
    """Create a token, of a new identity unless one is given; a known token only gets the name `label`. Return its row.

    A known token keeps its handle, and is valid again if it had expired.
    """
    for known in _read(conn, "digest = ?", digest_of(token)):
        expires_at = known.expires_at if known.is_valid(now) else None
        update_rows(conn, "api_keys", {"label": label, "expires_at": expires_at}, {"name": _MARK + known.handle})
        return known._replace(label=label, expires_at=expires_at)
    handle = handle_of(label, token)
    times = (now, None, None)
    line = KeyRow(_MARK + handle, digest_of(token), (), (), *times, ROUTEMASTER, label, identity or handle)
    create_key(conn, line)
    return _token(line)


def end_token(conn: Connection, handle: str, at: int) -> None:
    """Let a token expire at a time, unless it expires earlier anyway."""
    execute(
        conn,
        "UPDATE api_keys SET expires_at = ? WHERE name = ? AND (expires_at IS NULL OR expires_at > ?)",
        (at, _MARK + handle, at),
    )


def delete_token(conn: Connection, handle: str) -> None:
    """Delete a token."""
    forget_key(conn, _MARK + handle)
