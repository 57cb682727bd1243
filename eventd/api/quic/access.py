"""Access over QUIC: tokens of declared tenants, and the keys of the API."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Final

from eventd.api.keys.api_key import ANYONE, ApiKey
from eventd.api.keys.valid_keys import Keys
from eventd.api.quic.interfaces import AuthFailed, ClientGrant
from eventd.api.quic.tenant_keys import TenantKeys
from eventd.errors import SettingsError, Unauthorized
from eventd.resources.stream_configuration import StreamTenantConfig
from eventd.runtime.clock import SECOND, Clock
from eventd.settings.model import Settings
from eventd.streams.names import is_name
from eventd.streams.permissions import StreamAction
from eventd.streams.tokens import (
    LEEWAY,
    LONGEST,
    BadToken,
    StreamKey,
    StreamToken,
    key_id_of,
    verify_with_signer,
)
from federation.event import is_plain

MOST_WAITING: Final = 1 << 16
"""Maximum number of tokens that are being verified or wait for it; only one is verified at a time, and one of each
connection waits."""
MOST_VERIFIED: Final = 4096
"""Maximum number of verified tokens that are remembered, because all streams of a client usually show the same
token."""
MOST_DECISIONS: Final = 1024
"""Maximum number of decisions that are remembered for one stream."""
LONGEST_REMEMBERED: Final = 256
LONGEST_RESOURCE: Final = 1 << 16
"""Maximum characters of a resource's name for a decision to be remembered, and for the name to be compared with
permissions at all. The names of existing resources are shorter than both, but clients may ask for longer ones."""
RECHECK: Final = SECOND // 4
"""Microseconds between two checks whether the key of the API is still valid."""
_EXPIRED: Final = "token expired"
_REVOKED: Final = "token revoked"
_SCOPES: Final = {
    StreamAction.PUBLISH: "write",
    StreamAction.WRITE: "write",
    StreamAction.SUBSCRIBE: "read",
    StreamAction.READ: "read",
}


class TokenGrant:
    """The permissions of a token that was signed by a key of its tenant."""

    key: ApiKey | None = None

    def __init__(self, token: StreamToken, signer: bytes, keys: TenantKeys) -> None:
        self.tenant = token.tenant
        self.subject = token.subject
        self.identity = hashlib.sha256(f"stream token\0{token.tenant}\0{token.subject}".encode()).digest()
        self._permissions = token.permissions
        self._expires_at = (token.expires_at + LEEWAY) * SECOND
        self._signer = signer
        self._keys = keys
        self._generation = -1
        self._decisions: dict[tuple[StreamAction, str], bool] = {}

    def allows(self, action: StreamAction, resource: str) -> bool:
        found = self._decisions.get((action, resource))
        if found is None:
            if len(resource) > LONGEST_RESOURCE:
                return False
            found = any(permission.allows(action, resource) for permission in self._permissions)
            if len(resource) <= LONGEST_REMEMBERED:
                if len(self._decisions) >= MOST_DECISIONS:
                    self._decisions.clear()
                self._decisions[action, resource] = found
        return found

    def ended(self, now: int) -> str:
        if now > self._expires_at:
            return _EXPIRED
        if self._generation != self._keys.generation:
            if not self._keys.holds(self.tenant, self._signer):
                return _REVOKED
            self._generation = self._keys.generation
        return ""


class KeyGrant:
    """The permissions of a key of the API, within its scopes and prefixes, for any tenant."""

    def __init__(self, tenant: str, key: ApiKey, keys: Keys) -> None:
        self.tenant = tenant
        self.subject = key.name
        self.key: ApiKey | None = key
        self.identity = key.digest
        self._key = key
        self._keys = keys
        self._checked_at: int | None = None

    def allows(self, action: StreamAction, resource: str) -> bool:
        return _SCOPES[action] in self._key.scopes and self._key.sees(resource.replace("/", ":"))

    def ended(self, now: int) -> str:
        if self._checked_at is None or not 0 <= now - self._checked_at < RECHECK:
            if not self._keys.holds(self._key):
                expires = self._key.expires_at
                return _EXPIRED if expires is not None and expires <= now else _REVOKED
            self._checked_at = now
        return ""


class OpenGrant:
    """The permissions of all clients of a node without keys and tenants.

    They end when the first key or tenant is added.
    """

    key: ApiKey | None = ANYONE

    def __init__(self, tenant: str, access: StreamAccess) -> None:
        self.tenant = tenant
        self.subject = ""
        self.identity = ANYONE.digest
        self._access = access

    def allows(self, action: StreamAction, resource: str) -> bool:
        return True

    def ended(self, now: int) -> str:
        return "" if self._access.is_open else _REVOKED


class _Verified:
    """A verified token, and the public bytes of the key that has signed it."""

    __slots__ = ("signer", "token")

    def __init__(self, token: StreamToken, signer: bytes) -> None:
        self.token = token
        self.signer = signer


class StreamAccess:
    """Grants access to streams and caches.

    `may_be_open`: without keys and tenants all clients have access, as other machines cannot reach the listener, or as
    that is allowed.
    """

    def __init__(self, keys: Keys, tenant_keys: TenantKeys, clock: Clock, *, may_be_open: bool) -> None:
        self._keys = keys
        self._tenant_keys = tenant_keys
        self._clock = clock
        self._may_be_open = may_be_open
        self._verified: dict[bytes, _Verified] = {}  # by digest of tenant and token; the one used last is the last
        self._waiting = 0
        self._turn = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Return whether all clients have access."""
        return self._may_be_open and not self._keys and not self._tenant_keys.tenants

    def recall(self, tenant: str, token: str) -> ClientGrant | None:
        """Return the grant of a token that was verified before, without waiting.

        None if the token must be verified.
        """
        if not is_name(tenant):
            return None
        if self.is_open:
            return OpenGrant(tenant, self)
        if len(token) > LONGEST or not token.isascii():
            return None
        digest = _digest(tenant, token)
        known = self._verified.get(digest)
        if known is None or not self._tenant_keys.holds(tenant, known.signer):
            return None
        grant = TokenGrant(known.token, known.signer, self._tenant_keys)
        if grant.ended(self._clock.now()):
            return None
        self._verified[digest] = self._verified.pop(digest)
        return grant

    async def authenticate(self, tenant: str, token: str) -> ClientGrant:
        """Return the grant of a stream with this token. Raises `AuthFailed`.

        The work before a token is proven is bounded: its size, the number of keys that are tried, and that of tokens
        that are verified at a time.
        """
        if not is_name(tenant):
            raise AuthFailed("the tenant's name is not valid")
        if (grant := self.recall(tenant, token)) is not None:
            return grant
        if len(token) > LONGEST or not is_plain(token):
            raise AuthFailed("the token is too long, or not text")
        if self._waiting >= MOST_WAITING:
            raise AuthFailed(f"{MOST_WAITING} other tokens are being verified")
        self._waiting += 1
        try:
            return await self._identify(tenant, token)
        finally:
            self._waiting -= 1

    async def _identify(self, tenant: str, token: str) -> ClientGrant:
        declared = self._tenant_keys.tenants.get(tenant)
        if declared is None or token.count(".") != 2:
            try:
                return await self._of_key(tenant, token)
            except Unauthorized as error:
                what = "the token is not a stream token" if declared else f"the tenant {tenant} is not declared"
                raise AuthFailed(f"{what}, and as a key of the API: {error.message}") from None
        try:
            return await self._of_token(declared, token)
        except BadToken as error:
            try:
                return await self._of_key(tenant, token)  # a key of the settings may have any form
            except Unauthorized:
                raise AuthFailed(str(error)) from None

    async def _of_key(self, tenant: str, token: str) -> ClientGrant:
        """Return the grant of a key of the API. Raises `Unauthorized`."""
        async with self._turn:
            await self._clock.sleep(0)
            key = self._keys.find(token)
        return KeyGrant(tenant, key, self._keys)

    async def _of_token(self, tenant: StreamTenantConfig, token: str) -> ClientGrant:
        """Return the grant of a token of the tenant. Raises `BadToken`."""
        keys = await self._tenant_keys.find(tenant, key_id_of(token))
        async with self._turn:
            await self._clock.sleep(0)  # between two verifications, everything else has its turn
            known = _verify(token, tenant.name, keys, self._clock.now() / SECOND)
        if self._tenant_keys.tenants.get(tenant.name) != tenant:
            raise BadToken("its tenant has changed")
        grant = TokenGrant(known.token, known.signer, self._tenant_keys)
        if grant.ended(self._clock.now()):
            raise BadToken("it has expired")
        digest = _digest(tenant.name, token)
        self._verified.pop(digest, None)
        self._verified[digest] = known
        if len(self._verified) > MOST_VERIFIED:
            del self._verified[next(iter(self._verified))]
        return grant


def _digest(tenant: str, token: str) -> bytes:
    return hashlib.sha256(f"{tenant}\0{token}".encode()).digest()


def _verify(token: str, tenant: str, keys: tuple[StreamKey, ...], now: float) -> _Verified:
    found, signer = verify_with_signer(token, tenant, keys, now)
    return _Verified(found, signer.public.public_bytes_raw())


def may_be_open(settings: Settings) -> bool:
    """Return whether the listener may grant access to all clients, as long as there are neither keys nor tenants."""
    listen = settings.quic_listen
    return listen is not None and (listen.is_loopback or settings.allow_insecure_no_auth)


def require_access(settings: Settings, keys: Keys, tenants: Mapping[str, StreamTenantConfig]) -> None:
    """Raises `SettingsError` if other machines can reach the listener, and there are neither keys nor tenants."""
    listen = settings.quic_listen
    if listen is None or may_be_open(settings) or keys.has_tokens or tenants:
        return
    raise SettingsError(
        f"other machines can reach the QUIC listener on {listen}, and it has neither keys nor tenants",
        hint="create a key with `routerctl key create`, apply a StreamTenant, listen on 127.0.0.1, or allow it with"
        " EVENTD_ALLOW_INSECURE_NO_AUTH=1",
    )
