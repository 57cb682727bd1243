"""ConsoleSessions: a cookie with a random value, of which the database holds the digest, stands for an API key."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final, NamedTuple

from aiohttp import web

from eventd.api.keys.api_key import ApiKey
from eventd.api.keys.valid_keys import Keys
from eventd.log.core.head import read_instance
from eventd.runtime.chance import Chance
from eventd.runtime.clock import SECOND, Clock
from eventd.store.engine.database import Database
from eventd.store.rows.console_sessions import (
    SessionRow,
    create_session,
    end_sessions,
    find_session,
    is_valid,
    read_sessions,
    touch_session,
)
from eventd.store.rows.tokens import digest_of

LONGEST: Final = 12 * 3600 * SECOND
"""How long a session lasts at most, in microseconds."""
_TOUCH: Final = 60 * SECOND
_TOKEN_BYTES: Final = 32
_ROWS_AGE: Final = 0.5
"""Seconds for which rows of sessions, once read, are used without reading them again."""


class ConsoleSession(NamedTuple):
    """A valid session and the key that it stands for."""

    row: SessionRow
    key: ApiKey


class ConsoleSessions:
    """The sessions of a node's console, which all its processes share."""

    def __init__(self, database: Database, keys: Keys, clock: Clock, chance: Chance) -> None:
        self._database = database
        self._keys = keys
        self._clock = clock
        self._chance = chance
        self._cookie = ""
        self._known: dict[str, SessionRow] = {}
        self._known_at = -_ROWS_AGE
        self._reading: asyncio.Future[None] | None = None

    async def cookie(self) -> str:
        """Return the name of the cookie: nodes on other ports of one host, which share cookies, have another one."""
        if not self._cookie:
            instance = await self._database.read(read_instance)
            self._cookie = f"__Host-eventd-{hashlib.sha256(instance.encode()).hexdigest()[:8]}"
        return self._cookie

    def prepare(self, key: ApiKey, address: str) -> tuple[str, SessionRow]:
        """Return a new session of a key with the value of its cookie; `begin` stores it."""
        token, now = self._chance.token(_TOKEN_BYTES).hex(), self._clock.now()
        return token, SessionRow(digest_of(token), key.digest.hex(), key.name, address, now, now, now + LONGEST)

    async def begin(self, row: SessionRow) -> None:
        """Begin a session: from now on its cookie is valid."""
        await self._database.write(create_session, row)

    async def find(self, request: web.Request) -> ConsoleSession | None:
        """Return the session of a request whose key is still valid; None without one."""
        token = request.cookies.get(await self.cookie(), "")
        if len(token) != 2 * _TOKEN_BYTES:
            return None
        row = await self._database.read(find_session, digest_of(token))
        return None if row is None else await self._checked(row)

    async def renewed(self, session: ConsoleSession) -> ConsoleSession | None:
        """Return a session as it was less than a second ago; None if it has ended, or its key is no longer valid.

        All streams of the process call this once a second, so one read serves them all.
        """
        if self._clock.monotonic() - self._known_at >= _ROWS_AGE:
            await (self._read_all() if self._reading is None else asyncio.wait({self._reading}))
        row = self._known.get(session.row.digest)
        if row is None:  # it may be new
            row = await self._database.read(find_session, session.row.digest)
        return None if row is None else await self._checked(row, used=False)

    async def _read_all(self) -> None:
        self._reading = asyncio.get_running_loop().create_future()
        try:
            rows = await self._database.read(read_sessions)
            self._known, self._known_at = {row.digest: row for row in rows}, self._clock.monotonic()
        finally:
            self._reading.set_result(None)
            self._reading = None

    async def _checked(self, row: SessionRow, *, used: bool = True) -> ConsoleSession | None:
        now = self._clock.now()
        key = self._keys.by_digest(bytes.fromhex(row.key_digest))
        if key is None or not is_valid(row, now):
            return None
        if used:
            self._keys.note_use(key)
        if used and now - row.used_at >= _TOUCH:
            await self._database.write(touch_session, row.digest, now)
        return ConsoleSession(row, key)

    async def end(self, session: ConsoleSession) -> None:
        """End a session: its cookie is no longer valid."""
        await self._database.write(end_sessions, session.row.digest)
