"""API keys: create, list and revoke them. The keys of the settings are not among them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.keys.configured_keys import read_scopes
from eventd.api.keys.scopes import SCOPES
from eventd.errors import Invalid
from eventd.log.core.head import announce_topics, lock_head
from eventd.settings.model import Settings
from eventd.store.engine.database import Connection
from eventd.store.rows.keys import KeyRow, create_key, forget_key, read_api_keys, revoke_key
from eventd.text.duration import BadDuration, parse_duration
from federation.errors import BadEvent
from federation.event import micros
from federation.lenient import parse_time

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MARK = "evk_"
"""The prefix of a key, by which scanners recognise a leaked one."""


class CreateKey(Params):
    """A key to create."""

    name: str = Field(description="The name of the key; names are unique.")
    scopes: list[str] = Field(
        default=[],
        description="Any of `look`, `read`, `write`, `delete`, `admin`; `rw` is `read` and `write`. Left out: all.",
    )
    prefixes: list[str] = Field(
        default=[], description="Limit the key to groups, topics and routers with one of these name prefixes."
    )
    expires: str = Field(
        default="", description="When the key expires: a time, or a duration from now; never by default."
    )


async def create(services: Services, params: CreateKey) -> dict[str, Any]:
    now = services.clock.now()
    secret = _MARK + _text(services.log.chance.token(32))
    row = _row(params, secret, now)
    await services.database.write(_create_now, row)
    await services.take_over()
    return {**_show(row, now), "key": secret}


def _text(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).rstrip(b"=").decode()


def _row(params: CreateKey, secret: str, now: int) -> KeyRow:
    if not _NAME.fullmatch(params.name):
        raise Invalid(
            f"name: {params.name[:80]!r} cannot be the name of a key",
            hint="use at most 63 letters, digits, dots, dashes and underscores; the first one a letter or a digit",
        )
    _require_limits(params)
    prefixes = tuple(dict.fromkeys(params.prefixes))
    if not all(map(str.strip, prefixes)):
        raise Invalid("prefixes: an empty one would allow every name", hint="leave it out, or write a name prefix")
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return KeyRow(params.name, digest, _scopes(params.scopes), prefixes, now, _end(params.expires, now), None)


def _require_limits(params: CreateKey) -> None:
    """Raise `Invalid` for a limit that is given but empty: a client's unset variable must not mean no limit."""
    for name in ("scopes", "prefixes", "expires"):
        if name in params.model_fields_set and not getattr(params, name):
            raise Invalid(f"{name}: is empty", hint="name the limit, or leave the field out to set none")


def _scopes(words: Sequence[str]) -> tuple[str, ...]:
    try:
        granted = read_scopes(words)
    except ValueError as error:
        raise Invalid(f"scopes: {error}") from None
    return tuple(scope for scope in SCOPES if scope in granted)


def _end(text: str, now: int) -> int | None:
    """Return when a key expires, given as a time or a duration from `now`, in microseconds; None for an empty text.

    Raises `Invalid`, also for a time that has passed.
    """
    if not text:
        return None
    try:
        end = now + parse_duration(text)
    except BadDuration:
        try:
            end = micros(parse_time(text))
        except BadEvent:
            hint = "write a duration such as 720h, or a time such as 2026-05-30T10:13:20Z"
            raise Invalid(f"expires: {text[:80]!r} is neither a duration nor a time", hint=hint) from None
    if end <= now:
        raise Invalid(f"expires: {text[:80]} has passed already", hint="write a future time, or leave it out")
    return end


def _create_now(conn: Connection, row: KeyRow) -> None:
    lock_head(conn)
    create_key(conn, row)
    announce_topics(conn)


class ListKeys(Params):
    """No parameters."""


async def list_keys(services: Services, params: ListKeys) -> dict[str, Any]:
    now = services.clock.now()
    rows = await services.database.read(read_api_keys)
    uses = await services.key_uses()
    latest = uses.latest if uses else {}
    return {
        "keys": [_show(row, now) | {"lastUsedAt": show_time(latest.get(row.digest))} for row in rows],
        "usesKnownSince": show_time(uses.since if uses else None),
        "required": bool(rows) or _has_others(services.settings),
    }


def _has_others(settings: Settings | None) -> bool:
    """Return whether the settings of a running node name keys or client certificates."""
    return settings is not None and bool(
        settings.api_keys.get_secret_value() or settings.api_keys_file or settings.api_clients
    )


class RevokeKey(Params):
    """A key to revoke."""

    name: str = Field(description="The name of the key.")
    forget: bool = Field(default=False, description="Delete the key's row, too, so that its name can be used again.")


async def revoke(services: Services, params: RevokeKey) -> dict[str, Any]:
    now = services.clock.now()
    row = await services.database.write(_revoke_now, params, now)
    await services.take_over()
    return {**_show(row, now), "forgotten": params.forget}


def _revoke_now(conn: Connection, params: RevokeKey, now: int) -> KeyRow:
    lock_head(conn)
    row = revoke_key(conn, params.name, now)
    if params.forget:
        forget_key(conn, params.name)
    announce_topics(conn)
    return row


def _show(row: KeyRow, now: int) -> dict[str, Any]:
    return {
        "name": row.name,
        "scopes": list(row.scopes),
        "prefixes": list(row.prefixes),
        "state": _state(row, now),
        "createdAt": show_time(row.created_at),
        "expiresAt": show_time(row.expires_at),
        "revokedAt": show_time(row.revoked_at),
    }


def _state(row: KeyRow, now: int) -> str:
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at is not None and row.expires_at <= now else "active"
