"""Exchanges a token of a declared OpenID Connect issuer for a short-lived stream token of a tenant."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, TypeVar

from msgspec import Meta, Struct

from eventd.api.framework.calls import Call
from eventd.api.framework.models import Body, NoQuery
from eventd.api.framework.moments import show_time
from eventd.api.quic.tenant_keys import TenantKeys
from eventd.errors import Forbidden, SecretUnreadable, Unauthorized, Unavailable
from eventd.log.topics.errors import Throttled
from eventd.resources.stream_configuration import TokenExchangeConfig
from eventd.runtime.clock import SECOND, Clock
from eventd.runtime.log_pause import LogPause
from eventd.streams.claims import claim_of, has_value
from eventd.streams.permissions import MOST, Permission
from eventd.streams.tokens import LONGEST, BadToken, StreamToken, key_id_of, sign

MOST_WAITING: Final = 64
"""Maximum number of tokens that are being verified or wait for it; only one is verified at a time."""
MOST_PER_SECOND: Final = 200
"""Maximum number of requests in a second."""
LONGEST_SUBJECT: Final = 255

logger = logging.getLogger("eventd.streams")


class ExchangeBody(Body):
    """A token of the issuer that the tenant declares."""

    tenant: Annotated[str, Meta(max_length=80, description="The name of a StreamTenant with `exchange`.")]
    token: Annotated[str, Meta(max_length=LONGEST, description="A token of its issuer: an ID token, as a JWT.")]


class IssuedToken(Struct, kw_only=True, rename="camel"):
    """A stream token. `expires_at` as RFC 3339."""

    token: str
    tenant: str
    subject: str
    permissions: list[str]
    expires_at: str


class TokenIssuer:
    """Issues stream tokens.

    The work before a token is proven is bounded: its size, and requests at a time and in a second.
    """

    def __init__(self, keys: TenantKeys, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._second = 0
        self._begun = 0
        self._pause = LogPause(clock.monotonic)

    async def exchange(self, tenant: str, token: str) -> IssuedToken:
        """Return a stream token for a token of the tenant's issuer.

        Raises `Unauthorized` for a token that is not valid, without the reason, which is for the node's log;
        `Forbidden` for a valid one that no grant matches; `Unavailable` and `SecretUnreadable` if keys are missing;
        `Throttled`.
        """
        self._count()
        self._waiting += 1
        try:
            return await self._exchange(tenant, token)
        finally:
            self._waiting -= 1

    def _count(self) -> None:
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second, self._begun = second, 0
        if self._waiting >= MOST_WAITING or self._begun >= MOST_PER_SECOND:
            raise Throttled("too many tokens are being exchanged: retry later")
        self._begun += 1

    async def _exchange(self, tenant: str, token: str) -> IssuedToken:
        declared = self._keys.tenants.get(tenant)
        exchange = None if declared is None else declared.exchange
        if exchange is None:
            raise self._refusal("no tenant of this name has an exchange")
        keys = await self._keys.issuer_keys(exchange, key_id_of(token))
        if not keys:
            raise Unavailable("the keys of the issuer cannot be read", hint="see the node's log, or routerctl doctor")
        from eventd.streams.issuer_tokens import verify_issuer_token  # loads the cryptography

        async with self._turn:
            await self._clock.sleep(0)  # between two verifications, everything else has its turn
            now = self._clock.now() // SECOND
            try:
                claims = verify_issuer_token(token, exchange.issuer, exchange.audience, keys, now)
            except BadToken as error:
                raise self._refusal(str(error)) from None
        return await self._issue(tenant, exchange, claims, now)

    async def _issue(
        self, tenant: str, exchange: TokenExchangeConfig, claims: Mapping[str, Any], now: int
    ) -> IssuedToken:
        subject = claim_of(claims, exchange.subject_claim)
        if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT:
            raise Forbidden(f"the claim {exchange.subject_claim!r} of the token is not a text of 1 to 255 characters")
        permissions = granted(exchange, claims)
        if not permissions:
            raise Forbidden(f"no grant of the tenant {tenant!r} matches the claims of the token")
        signer = await self._keys.signing_key(exchange)
        if signer is None:
            raise SecretUnreadable("the signing key of the tenant cannot be read", hint="see routerctl doctor")
        made = StreamToken(subject, tenant, now + exchange.ttl, permissions, exchange.key_id)
        text = sign(signer.private, exchange.key_id, made, now)
        if len(text) > LONGEST:
            raise Forbidden(f"the stream token would be longer than {LONGEST} bytes", hint="use shorter grants")
        return IssuedToken(
            token=text,
            tenant=tenant,
            subject=subject,
            permissions=[f"{each.action}:{each.pattern}" for each in permissions],
            expires_at=show_time(made.expires_at * SECOND) or "",
        )

    def _refusal(self, reason: str) -> Unauthorized:
        """Return the error for a token that is not valid; the log gets each reason once a minute."""
        if self._pause.is_over_for(reason):
            logger.warning("token not exchanged", extra={"reason": reason})
        return Unauthorized("the token is not accepted", hint="the node's log says why")


def granted(exchange: TokenExchangeConfig, claims: Mapping[str, Any]) -> tuple[Permission, ...]:
    """Return the permissions of all grants that match the claims, each once, in their order."""
    found = (
        permission
        for grant in exchange.grants
        if has_value(claim_of(claims, grant.claim), grant.value)
        for permission in grant.permissions
    )
    return tuple(dict.fromkeys(found))[:MOST]


Q = TypeVar("Q")
B = TypeVar("B")


class ExchangeCall(Call[TokenIssuer, Q, B], Generic[Q, B]):
    """One request for a stream token."""

    __slots__ = ()


async def exchange_token(call: ExchangeCall[NoQuery, ExchangeBody]) -> IssuedToken:
    return await call.context.exchange(call.body.tenant, call.body.token)
