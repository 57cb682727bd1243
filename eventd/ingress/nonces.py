"""Requests of v2 that were seen before: a captured one must have no effect when it is sent again, nor cost much."""

from __future__ import annotations

from typing import Final

from eventd.log.core.commit import Change, Transaction
from eventd.log.core.eventlog import EventLog
from eventd.store.rows.links import keep_nonce, nonce_seen
from federation.errors import Conflict
from federation.signing import VerifiedRequest

RECENT: Final = 10_000
"""Nonces of one group that are kept in memory besides the database, so that a repetition is refused by its head."""


class Nonces:
    """The nonces of one group. Those of batches are stored with the batch, those of queries by `keep`.

    What counts is the database: what was seen before a restart is refused after it.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._recent: dict[tuple[str, str], None] = {}  # the latest at the end

    def require_new(self, request: VerifiedRequest) -> None:
        """Raise `Conflict` where the head of a request alone shows that it was seen before."""
        if (request.key.id, request.nonce) in self._recent:
            raise repeated()

    async def keep(self, request: VerifiedRequest) -> None:
        """Store the nonce of a query, before the query has any effect. Raises `Conflict` where it was seen before."""
        group, key_id, nonce = request.header.group, request.key.id, request.nonce
        if await self._log.database.read(nonce_seen, group, key_id, nonce):  # a repetition does not bother the writer
            raise repeated()
        await self._log.submit(_KeepNonce(request))

    def remember(self, request: VerifiedRequest) -> None:
        """The nonce of this request is stored."""
        self._recent[request.key.id, request.nonce] = None
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]


class _KeepNonce(Change[None]):
    """A unit of the writer: store a nonce. Raises `Conflict` where it was seen before."""

    def __init__(self, request: VerifiedRequest) -> None:
        self._request = request

    def make(self, tx: Transaction) -> None:
        request = self._request
        named = (request.header.group, request.key.id, request.nonce)
        if nonce_seen(tx.conn, *named):
            raise repeated()
        keep_nonce(tx.conn, *named, request.nonce_until)


def repeated() -> Conflict:
    """The refusal of a request that was seen before."""
    return Conflict("this very request was taken before")
