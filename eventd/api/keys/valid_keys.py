"""The API keys and Routemaster tokens that are valid now, and the connections that must end when one no longer is.

Keys come from the settings, or are created at run time; the database holds only the SHA-256 of the latter. Without any
key everything is allowed, if only this machine can reach the API or EVENTD_ALLOW_INSECURE_NO_AUTH is set.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

from eventd.api.keys.api_key import ANYONE, OWNER, ApiKey
from eventd.api.keys.configured_keys import NODE_PREFIX, clients_of, keys_of
from eventd.errors import SettingsError, Unauthorized
from eventd.runtime.clock import SECOND, Clock, SystemClock
from eventd.settings.model import Settings
from eventd.store.rows.keys import API, ROUTEMASTER, KeyRow, KeySurface
from eventd.tls.certificate import Certificate

LONGEST_WAIT = 60.0
"""Maximum seconds between two checks of the expiry of a key in use: the wall clock may have been set."""


class KeyUses(NamedTuple):
    """When keys were last used, by their digests in hexadecimal. Uses before `since` are not known."""

    since: int
    latest: dict[str, int]


class Keys:
    """The valid keys: those of the settings, which `reload` reads again with `read`, and those of the database.

    `exposed` is the address at which other machines can reach the API; empty if none can, or if that is allowed without
    keys. `guards_probes`: health and readiness need a key, too, if there are keys. `clients`: what client certificates
    stand for, by a name in the certificate.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[ApiKey]],
        *,
        clock: Clock | None = None,
        exposed: str = "",
        guards_probes: bool = False,
        clients: Mapping[str, ApiKey] = MappingProxyType({}),
    ) -> None:
        self.guards_probes = guards_probes
        self._read = read
        self._clients = clients
        self._clock = clock or SystemClock()
        self._exposed = exposed
        self._said = tuple(read())
        self._made: tuple[ApiKey, ...] = ()
        self._are_made = False
        self._listed: frozenset[str] = frozenset()
        """The digests of all keys of the database, revoked ones included."""
        self._tokens: dict[bytes, ApiKey] = {}  # by digest
        self._uses: dict[object, tuple[ApiKey, Callable[[], None]]] = {}
        self._timers: dict[object, asyncio.Future[None]] = {}
        self._reading = asyncio.Lock()
        self._uses_known_since = self._clock.now()
        self._last_uses: dict[str, int] = {}

    @classmethod
    def of(cls, settings: Settings, clock: Clock | None = None) -> Keys:
        """Return a `Keys` with the keys of the settings, and none of the database yet. Raises `BadSettings`."""
        is_meant = settings.api_listen.is_loopback or settings.allow_insecure_no_auth
        exposed = "" if is_meant else str(settings.api_listen)
        return cls(
            lambda: keys_of(settings),
            clock=clock,
            exposed=exposed,
            guards_probes=settings.probe_auth,
            clients=clients_of(settings),
        )

    def __bool__(self) -> bool:
        """Return whether callers need a key: there are keys or `clients`, or `exposed` is not empty.

        Revoked keys of the database count, too: revoking the last one must not open the API.
        """
        return bool(self._said or self._clients or self._are_made or self._exposed)

    @property
    def has_tokens(self) -> bool:
        """Return whether there are keys, apart from client certificates; revoked keys of the database count, too."""
        return bool(self._said or self._are_made)

    def require_any(self) -> None:
        """Raises `SettingsError` if the API has no keys, not even revoked ones, and `exposed` is not empty."""
        if self._exposed and not self._said and not self._clients and not self._are_made:
            raise SettingsError(
                f"other machines can reach the API on {self._exposed}, and it has no keys",
                hint="create one with `routerctl key create`, set EVENTD_API_KEYS or EVENTD_API_KEYS_FILE, listen on"
                " 127.0.0.1, or allow it with EVENTD_ALLOW_INSECURE_NO_AUTH=1",
            )

    def reload(self) -> None:
        """Read the keys of the settings again, and end the uses (see `using`) of keys that are no longer valid.

        Raises `SettingsError`; then the present keys stay valid.
        """
        self._said = tuple(self._read())
        self._end_gone()

    async def take_over(self, read: Callable[[], Awaitable[Iterable[KeyRow]]]) -> None:
        """Take the rows that `read` returns as all keys of the database, as `reload_from` does.

        Reads do not overlap: the result of a read that began before a key was created or revoked never replaces the
        result of a later read.
        """
        async with self._reading:
            self.reload_from(await read())

    def reload_from(self, lines: Iterable[KeyRow]) -> None:
        """Take these rows as all keys of the database, and end the uses (see `using`) of keys no longer valid."""
        found = list(lines)
        valid = [(line.surface, ApiKey.of(line)) for line in found if line.revoked_at is None]
        self._listed = frozenset(line.digest for line in found if line.surface == API)
        self._are_made = bool(self._listed)
        self._made = tuple(key for surface, key in valid if surface == API)
        self._tokens = {key.digest: key for surface, key in valid if surface == ROUTEMASTER}
        self._end_gone()

    def identify(self, authorization: str) -> ApiKey:
        """Return the key of an `Authorization` header; `ANYONE` if callers need none. Raises `Unauthorized`."""
        if not self:
            return ANYONE
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            hint = "with routerctl, use --key-file; programs send it as Authorization: Bearer KEY"
            if self._clients:
                hint += "; or show a certificate with a name that api_clients lists"
            raise Unauthorized("this API needs a key", hint=hint)
        return self.find(token.strip())

    def identify_client(self, certificate: Certificate) -> ApiKey | None:
        """Return the key that a client certificate stands for: that of the first matching entry of `api_clients`.

        None without a match.
        """
        shown = certificate.hosts | {f"{NODE_PREFIX}{node}" for node in certificate.nodes}
        return next((key for name, key in self._clients.items() if name in shown), None)

    def find(self, token: str, surface: KeySurface = API) -> ApiKey:
        """Return the key of a surface with this token. Raises `Unauthorized` if it is unknown, revoked or expired."""
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        # A token is looked up by its digest, of which a caller cannot choose even the first byte: the duration tells
        # nothing about another token. All keys of the API are compared.
        found = self._tokens.get(digest) if surface == ROUTEMASTER else self._of_api(digest)
        if found is None:
            raise Unauthorized("this key is not known")
        if self._has_expired(found):
            raise Unauthorized("this key has expired")
        if surface == API:
            self.note_use(found)
        return found

    def by_digest(self, digest: bytes) -> ApiKey | None:
        """Return the valid key of the API with this digest, with its present permissions.

        None if it is unknown, revoked or expired. Tokens and client certificates have no such key.
        """
        found = self._of_api(digest)
        return None if found is None or self._has_expired(found) else found

    def _of_api(self, digest: bytes) -> ApiKey | None:
        found = None
        for key in (*self._said, *self._made):
            if hmac.compare_digest(key.digest, digest):
                found = found or key
        return found

    def note_use(self, key: ApiKey) -> None:
        """Note that a key of the database is used now."""
        if key.name:
            self._last_uses[key.digest.hex()] = self._clock.now()

    def uses(self) -> KeyUses:
        """Return when the keys of the database, revoked ones included, were last used at this process."""
        self._last_uses = {digest: at for digest, at in self._last_uses.items() if digest in self._listed}
        return KeyUses(self._uses_known_since, dict(self._last_uses))

    def with_digest(self, digest: bytes) -> ApiKey | None:
        """Return the valid key, or client certificate's key, with this digest; None without one."""
        known = (*self._said, *self._clients.values(), *self._made)
        return next((key for key in known if key.digest == digest and not self._has_expired(key)), None)

    def holds(self, key: ApiKey) -> bool:
        """Return whether a key is still valid with the same permissions; `ANYONE`: whether callers need no key."""
        if key is ANYONE:
            return not self
        if key is OWNER:
            return True
        is_known = self._tokens.get(key.digest) == key or key in (*self._said, *self._clients.values(), *self._made)
        return is_known and not self._has_expired(key)

    @contextmanager
    def using(self, key: ApiKey, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` once if the key stops being valid (see `holds`) while the block runs, also during a stream."""
        use = object()
        self._uses[use] = key, end
        self._schedule_expiry(use)
        try:
            yield
        finally:
            self._uses.pop(use, None)
            if (timer := self._timers.pop(use, None)) is not None:
                timer.cancel()

    def _has_expired(self, key: ApiKey) -> bool:
        return key.expires_at is not None and key.expires_at <= self._clock.now()

    def _schedule_expiry(self, use: object) -> None:
        """Start the timer that ends a use when its key expires; none for a key that never does.

        The expiry is checked again after `LONGEST_WAIT` at the latest, as the clock may be set.
        """
        key, _ = self._uses[use]
        if key.expires_at is None:
            return
        left = max(0.0, (key.expires_at - self._clock.now()) / SECOND)
        self._timers[use] = timer = self._clock.timer(min(left, LONGEST_WAIT))
        timer.add_done_callback(lambda timer: None if timer.cancelled() else self._expire(use))

    def _expire(self, use: object) -> None:
        if use in self._uses and self._has_expired(self._uses[use][0]):
            self._end(use)
        elif use in self._uses:
            self._schedule_expiry(use)

    def _end_gone(self) -> None:
        for use, (key, _) in list(self._uses.items()):
            if not self.holds(key):
                self._end(use)

    def _end(self, use: object) -> None:
        _, end = self._uses.pop(use)
        end()
