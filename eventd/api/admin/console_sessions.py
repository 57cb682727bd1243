"""Sessions of the console: list and end them. Neither their cookies nor the digests of keys are shown."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, Final

from pydantic import Field

from eventd.api.framework.action_callers import key_caller
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import After
from eventd.api.keys.api_key import ApiKey
from eventd.errors import Invalid, NotFound
from eventd.store.engine.database import Connection
from eventd.store.rows.console_sessions import ID_LENGTH, SessionRow, end_sessions, is_valid, read_sessions
from eventd.store.rows.keys import read_api_keys
from eventd.text.quoting import quoted

PAGE_SIZE, MAX_PAGE_SIZE = 50, 200
_ID: Final = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")
_TOKEN: Final = re.compile(rf"([0-9]{{1,18}})\.([0-9a-f]{{{ID_LENGTH}}})")


class ListSessions(Params):
    """Which sessions to list; those that began last come first."""

    key: str = Field(default="", description="Only of the key with this name.")
    after: After = ""
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE, description="Maximum number of sessions of the page.")] = (
        PAGE_SIZE
    )


async def list_sessions(services: Services, params: ListSessions) -> dict[str, Any]:
    """Return a page of the sessions that have not ended."""
    before = _read_token(params.after)
    stored = await services.database.read(_read_active, services.clock.now())
    found = [row for row in stored if services.holds_key(bytes.fromhex(row.key_digest))]
    rows = [row for row in found if params.key in ("", row.key_name) and (before is None or _place(row) < before)]
    page = rows[: params.limit]
    return {
        "sessions": [_show(row) for row in page],
        "next": _token_of(page[-1]) if len(rows) > len(page) else None,
    }


def _read_active(conn: Connection, now: int) -> list[SessionRow]:
    """Return the sessions that have not ended and whose keys are still valid, the one that began last first.

    The table is bounded (see `MOST_SESSIONS`), so that all of it is read.
    """
    valid = {
        row.digest
        for row in read_api_keys(conn)
        if row.revoked_at is None and (row.expires_at is None or row.expires_at > now)
    }
    return sorted((row for row in read_sessions(conn) if _is_active(row, valid, now)), key=_place, reverse=True)


def _is_active(row: SessionRow, valid: Collection[str], now: int) -> bool:
    """Return whether a session has not ended, as far as the database says: keys of the settings have no row there."""
    has_key = not row.key_name or row.key_digest in valid
    return has_key and is_valid(row, now)


def _place(row: SessionRow) -> tuple[int, str]:
    """Return the place of a session in the list, by values that do not change when the session is used."""
    return row.created_at, row.id


def _token_of(row: SessionRow) -> str:
    return f"{row.created_at}.{row.id}"


def _read_token(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise Invalid(f"{quoted(text)} is not a token of this list", hint="use `next` of an answer")
    return int(found[1]), found[2]


def _show(row: SessionRow) -> dict[str, Any]:
    key = ApiKey(bytes.fromhex(row.key_digest), frozenset(), (), row.key_name)
    return {
        "id": row.id,
        "key": row.key_name,
        "who": key_caller(key, row.address).who,
        "address": row.address,
        "createdAt": show_time(row.created_at),
        "usedAt": show_time(row.used_at),
        "expiresAt": show_time(row.expires_at),
    }


class EndSession(Params):
    """A session to end."""

    id: str = Field(description="The id of the session, as the list shows it.")


async def end(services: Services, params: EndSession) -> dict[str, Any]:
    """End a session: its browser must sign in again. Raises `NotFound`."""
    if not _ID.fullmatch(params.id):
        raise Invalid(f"id: {quoted(params.id)} is not the id of a session", hint="use an id of the list of sessions")
    if not await services.database.write(end_sessions, params.id):
        raise NotFound(f"there is no session {params.id}", hint="it may have ended: list the sessions again")
    return {"id": params.id, "ended": True}
