"""Nonces of v2 requests that were accepted: a captured request that is sent again has no effect, and costs little."""

from __future__ import annotations

from typing import Final

from eventd.log.core.commit import ChangeUnit, Transaction
from eventd.log.core.eventlog import EventLog
from eventd.store.rows.links import keep_nonce, nonce_seen
from federation.errors import Conflict
from federation.signing import VerifiedRequest

RECENT: Final = 10_000
"""How many nonces of one group are cached in memory, so that a replay is refused by its head alone."""


class Nonces:
    """The nonces of one group.

    Nonces of stored batches are stored with the batch, those of queries by `keep`. The database decides, also after a
    restart; the cache only makes replays cheap.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._recent: dict[tuple[str, str], None] = {}  # newest last

    def require_new(self, request: VerifiedRequest) -> None:
        """Raise `Conflict` when the nonce of a request is cached, which proves a replay; reads no database."""
        if (request.key.id, request.nonce) in self._recent:
            raise repeated()

    async def keep(self, request: VerifiedRequest) -> None:
        """Store the nonce of a query before the query has any effect. Raises `Conflict` for a nonce seen before."""
        group, key_id, nonce = request.header.group, request.key.id, request.nonce
        # a replay that is found here costs the writer nothing
        if await self._log.database.read(nonce_seen, group, key_id, nonce):
            raise repeated()
        await self._log.submit(_KeepNonce(request))

    def remember(self, request: VerifiedRequest) -> None:
        """Cache the stored nonce of a request."""
        self._recent[request.key.id, request.nonce] = None
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]


class _KeepNonce(ChangeUnit[None]):
    """A unit of the writer that stores one nonce. Raises `Conflict` for a nonce seen before."""

    def __init__(self, request: VerifiedRequest) -> None:
        self._request = request

    def make(self, tx: Transaction) -> None:
        request = self._request
        named = (request.header.group, request.key.id, request.nonce)
        if nonce_seen(tx.conn, *named):
            raise repeated()
        keep_nonce(tx.conn, *named, request.nonce_until)


def repeated() -> Conflict:
    """Return the refusal of a replayed request."""
    return Conflict("this request was accepted before (replay)")
