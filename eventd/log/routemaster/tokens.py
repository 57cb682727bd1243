"""The tokens of clients, and the keys that sign the requests to subscribers.

A client can have several tokens; deleting its last valid one also deletes its subscription and its signing keys.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from eventd.errors import Conflict, NotFound
from eventd.log.core.commit import ChangeUnit, Transaction
from eventd.log.core.head import announce_topics
from eventd.log.routemaster.errors import TokenNotFound
from eventd.log.routemaster.subscriptions import end_subscription
from eventd.runtime.chance import Chance
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.rows.routemaster import SigningKey, put_signing
from eventd.store.rows.tokens import (
    TokenRow,
    count_tokens,
    delete_token,
    end_token,
    find_token,
    put_token,
    read_tokens,
    tokens_of,
)

KEPT: Final = 24 * 3600 * SECOND
"""How long lists show an expired token, in microseconds."""
MOST_TOKENS: Final = 10_000
"""Maximum number of tokens, also expired ones."""


class NewToken(NamedTuple):
    """A token to create, and its name."""

    label: str
    token: str


def new_token(label: str, chance: Chance) -> str:
    """Return a random token that begins with its name."""
    return f"{label}--{chance.token(16).hex()}"


class CreateToken(ChangeUnit[TokenRow]):
    """Create a token with a new identity; a token that exists already only gets the name.

    Raises `Conflict` at the limit of tokens.
    """

    def __init__(self, wanted: NewToken) -> None:
        self._wanted = wanted

    def make(self, tx: Transaction) -> TokenRow:
        _require_room(tx.conn, 1)
        made = put_token(tx.conn, self._wanted.label, self._wanted.token, tx.now)
        announce_topics(tx.conn)
        return made


class ImportTokens(ChangeUnit[int]):
    """Create those tokens that do not exist yet; existing tokens, also expired ones, stay as they are.

    Result: how many are new.
    """

    def __init__(self, wanted: Sequence[NewToken]) -> None:
        self._wanted = wanted

    def make(self, tx: Transaction) -> int:
        fresh = [each for each in self._wanted if find_token(tx.conn, each.token) is None]
        _require_room(tx.conn, len(fresh))
        for each in fresh:
            put_token(tx.conn, each.label, each.token, tx.now)
        if fresh:
            announce_topics(tx.conn)
        return len(fresh)


class RotateToken(ChangeUnit[TokenRow]):
    """Give the client of a token another one, and end the present ones after `grace` microseconds. Result: the new one.

    `given`: a token or its handle. Raises `TokenNotFound` and `Conflict`.
    """

    def __init__(self, given: str, token: str, grace: int) -> None:
        self._given = given
        self._token = token
        self._grace = grace

    def make(self, tx: Transaction) -> TokenRow:
        old = find_token(tx.conn, self._given)
        if old is None:
            raise TokenNotFound
        _require_room(tx.conn, 1)
        for each in tokens_of(tx.conn, old.identity):
            end_token(tx.conn, each.handle, tx.now + self._grace)
        made = put_token(tx.conn, old.label, self._token, tx.now, identity=old.identity)
        announce_topics(tx.conn)
        return made


class DeleteToken(ChangeUnit[TokenRow | None]):
    """Delete a token.

    If it is the client's last one, also delete the client's subscription and waiting events, but no claim. `given`:
    the token or its handle. Result: the token's row; None if there is no such token.
    """

    def __init__(self, given: str) -> None:
        self._given = given

    def make(self, tx: Transaction) -> TokenRow | None:
        old = find_token(tx.conn, self._given)
        if old is None:
            return None
        delete_token(tx.conn, old.handle)
        if not any(each.is_valid(tx.now) for each in tokens_of(tx.conn, old.identity)):
            for each in tokens_of(tx.conn, old.identity):
                delete_token(tx.conn, each.handle)
            end_subscription(tx.conn, old.identity)
            put_signing(tx.conn, old.identity, ())
        announce_topics(tx.conn)
        return old


class DeleteExpiredTokens(ChangeUnit[None]):
    """Delete expired tokens, given by their handles, as `DeleteToken` does; those that are valid again stay."""

    def __init__(self, handles: Sequence[str]) -> None:
        self._handles = handles

    def make(self, tx: Transaction) -> None:
        for handle in self._handles:
            old = find_token(tx.conn, handle)
            if old is None or old.is_valid(tx.now):
                continue
            delete_token(tx.conn, handle)
            if not tokens_of(tx.conn, old.identity):
                end_subscription(tx.conn, old.identity)
                put_signing(tx.conn, old.identity, ())
        announce_topics(tx.conn)


def read_expired(conn: Connection, now: int, kept: Collection[str]) -> list[str]:
    """Return the handles of tokens that expired `KEPT` ago, without those of the `kept` digests."""
    tokens = read_tokens(conn)
    return [each.handle for each in tokens if not each.is_valid(now - KEPT) and each.digest not in kept]


class SignSubscriber(ChangeUnit[None]):
    """Have the requests to a client signed with these keys, whether it has subscribed yet or not; none: unsigned.

    Raises `TokenNotFound` if the client has no token any more.
    """

    def __init__(self, identity: str, keys: Sequence[SigningKey]) -> None:
        self._identity = identity
        self._keys = keys

    def make(self, tx: Transaction) -> None:
        if not tokens_of(tx.conn, self._identity):
            raise TokenNotFound
        put_signing(tx.conn, self._identity, self._keys)
        announce_topics(tx.conn)


def _require_room(conn: Connection, more: int) -> None:
    if count_tokens(conn) + more > MOST_TOKENS:
        raise Conflict(
            f"there are {MOST_TOKENS} tokens already",
            hint="delete those that are no longer used: routerctl routemaster token revoke",
        )


def find_identity(conn: Connection, given: str) -> str:
    """Return the identity of a client, given by a handle or by the name of its tokens.

    Raises `NotFound`, and `Conflict` if several clients have the name.
    """
    tokens = read_tokens(conn)
    found = {each.identity for each in tokens if given in (each.handle, each.identity)}
    found = found or {each.identity for each in tokens if each.label == given}
    if not found:
        raise NotFound(
            f"no client has the name or handle {given[:80]!r}", hint="`routerctl routemaster token list` shows both"
        )
    if len(found) > 1:
        raise Conflict(
            f"several clients have the name {given!r}", hint=f"name one by its handle: {', '.join(sorted(found)[:20])}"
        )
    return found.pop()
