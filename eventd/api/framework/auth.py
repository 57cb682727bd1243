"""API keys: their scopes, and the groups, topics and routers that each is limited to. Also Routemaster tokens.

Keys come from the settings, or are created at run time; the database holds only the SHA-256 of the latter. Without any
key everything is allowed, if only this machine can reach the API or EVENTD_ALLOW_INSECURE_NO_AUTH is set.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import NamedTuple, get_args

from eventd.api.framework.route import Scope
from eventd.errors import Forbidden, SettingsError, Unauthorized
from eventd.log.topics.errors import DetailedError
from eventd.runtime.clock import SECOND, Clock, SystemClock
from eventd.settings.model import BadSettings, SettingProblem, Settings
from eventd.settings.values import entries_of
from eventd.store.rows.keys import API, ROUTEMASTER, KeyRow, KeySurface
from eventd.tls.certificate import Certificate

SCOPES: tuple[Scope, ...] = get_args(Scope)
EVERY_SCOPE: frozenset[Scope] = frozenset(SCOPES) - {"look"}
"""The scopes of a key without limits: `read` includes `look`."""
_WORDS: dict[str, tuple[Scope, ...]] = {
    **{word: (scope,) for scope in SCOPES for word in (scope, scope[0])},
    "del": ("delete",),
    "rw": ("read", "write"),
}


NODE_PREFIX = "node/"
"""Prefix in `api_clients` of the name of a node, which only a URI in the certificate gives."""
LONGEST_WAIT = 60.0
"""Maximum seconds between two checks of the expiry of a key in use: the wall clock may have been set."""


class OutOfReach(DetailedError, Forbidden):
    """The key may not access the topic or router that `detail` names."""


class ApiKey(NamedTuple):
    """The permissions of a key, whose SHA-256 is `digest`.

    `prefixes`: of the names of groups, topics and routers that it may access; empty: all. `expires_at` in microseconds;
    None: never. `name` is empty for a key of the settings. A token has no scopes, and the `identity` of its client.
    """

    digest: bytes
    scopes: frozenset[Scope]
    prefixes: tuple[str, ...]
    name: str = ""
    expires_at: int | None = None
    identity: str = ""

    @classmethod
    def of(cls, line: KeyRow) -> ApiKey:
        """Return the key that a row of the database describes."""
        scopes = frozenset(scope for scope in SCOPES if scope in line.scopes)
        return cls(bytes.fromhex(line.digest), scopes, line.prefixes, line.name, line.expires_at, line.identity)

    def may(self, scope: Scope) -> bool:
        """Return whether the key has the scope, or another one that includes it."""
        return scope in self.scopes or (scope == "look" and "read" in self.scopes)

    def require_scope(self, scope: Scope) -> None:
        """Raises `Forbidden` unless the key has the scope, or another one that includes it."""
        if not self.may(scope):
            raise Forbidden(
                f"this key lacks the scope {scope}",
                hint=f"use a key with this scope; this one has {', '.join(sorted(self.scopes))}",
            )

    def sees(self, name: str) -> bool:
        """Return whether the key may access the group, topic or router of this name."""
        return not self.prefixes or name.startswith(self.prefixes)

    def require_names(self, *names: str) -> None:
        """Raises `Forbidden` for the first topic or router that the key may not access."""
        for name in names:
            if not self.sees(name):
                raise OutOfReach(f"this key is not for {name!r}", detail={"topic": name})

    def require_group(self, group: str | None) -> None:
        """Raises `Forbidden` unless the key may access the group; for `None`, if the key is limited to prefixes."""
        if self.prefixes and group is None:
            raise Forbidden(
                "this key is limited to some names",
                hint="name the group if the request takes one, else use a key without prefixes",
            )
        if group is not None and not self.sees(group):
            raise Forbidden(f"this key is not for the group {group!r}")


ANYONE = ApiKey(b"", EVERY_SCOPE, ())
OWNER = ApiKey(b"local socket", EVERY_SCOPE, (), name="local socket")
"""The caller over the local socket, which only the owner of the node's folder and root can use."""


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
        self._tokens: dict[bytes, ApiKey] = {}  # by digest
        self._uses: dict[object, tuple[ApiKey, Callable[[], None]]] = {}
        self._timers: dict[object, asyncio.Future[None]] = {}
        self._reading = asyncio.Lock()

    @classmethod
    def of(cls, settings: Settings, clock: Clock | None = None) -> Keys:
        """Return a `Keys` with the keys of the settings, and none of the database yet. Raises `BadSettings`."""
        is_meant = settings.api_listen.is_loopback or settings.allow_insecure_no_auth
        exposed = "" if is_meant else str(settings.api_listen)
        return cls(
            lambda: _from_settings(settings),
            clock=clock,
            exposed=exposed,
            guards_probes=settings.probe_auth,
            clients=_clients_of(settings),
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

        Reads follow one another: the result of one that began before a key was created or revoked never replaces that
        of a later one.
        """
        async with self._reading:
            self.reload_from(await read())

    def reload_from(self, lines: Iterable[KeyRow]) -> None:
        """Take these rows as all keys of the database, and end the uses (see `using`) of keys no longer valid."""
        found = list(lines)
        valid = [(line.surface, ApiKey.of(line)) for line in found if line.revoked_at is None]
        self._are_made = any(line.surface == API for line in found)
        self._made = tuple(key for surface, key in valid if surface == API)
        self._tokens = {key.digest: key for surface, key in valid if surface == ROUTEMASTER}
        self._end_gone()

    def identify(self, authorization: str) -> ApiKey:
        """Return the key of an `Authorization` header; `ANYONE` if callers need none. Raises `Unauthorized`."""
        if not self:
            return ANYONE
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            hint = "send one as Authorization: Bearer KEY; with routerctl, use --key-file"
            if self._clients:
                hint += "; or show a certificate with a name that api_clients lists"
            raise Unauthorized("this API needs a key", hint=hint)
        return self.find(token.strip())

    def identify_client(self, certificate: Certificate) -> ApiKey | None:
        """Return what a client certificate stands for: the first entry of `api_clients` that matches.

        None if it stands for no key.
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


def require_local_name(host: str) -> None:
    """Raises `Forbidden` for a Host header that names neither an address nor localhost; an empty one passes.

    A web page can make its own name point at this machine and then call an API without keys through its visitor's
    browser; the name in the Host header reveals it.
    """
    name = host.rsplit(":", 1)[0] if host.count(":") <= 1 or "]:" in host else host
    name = name.strip("[]").lower()
    if not name or name == "localhost" or name.endswith(".localhost"):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        hint = "call it by its address or as localhost, or set EVENTD_API_KEYS"
        raise Forbidden(f"an API without keys does not answer to the name {name!r}", hint=hint) from None


def require_own_page(headers: Mapping[str, str]) -> None:
    """Raises `Forbidden` for a request that a page of another origin makes through its visitor's browser.

    Needed only without API keys: a browser asks no permission (no preflight) for a request that has no body. Pages of
    the console send no referrer: a browser writes the origin of their forms as null, and only `Sec-Fetch-Site` tells.
    """
    origin, host = headers.get("Origin", ""), headers.get("Host", "")
    if origin == "null" and headers.get("Sec-Fetch-Site") == "same-origin":
        return
    if origin and origin.partition("://")[2].lower() != host.lower():
        raise Forbidden(
            "an API without keys does not answer a page of another origin", hint="create API keys and send one"
        )


def parse_keys(text: str) -> tuple[ApiKey, ...]:
    """Return the keys in a text of entries, which commas or line breaks separate.

    An entry is `key`, `key:scopes`, `key:scopes:prefixes` or `key::prefixes`. Scopes are joined with `+`, prefixes with
    `|`; lines that begin with `#` are comments. An entry that ends with a colon is refused: a script whose variable is
    unset would create a key without limits. Raises ValueError, which names an entry by its number, if one is wrong, and
    never shows any of it.
    """
    keys = [_entry(number, *entry.split(":", 2)) for number, entry in enumerate(entries_of(text), start=1)]
    if not keys:
        raise ValueError("contains no key")
    if len({key.digest for key in keys}) < len(keys):
        raise ValueError("contains one key twice")
    return tuple(keys)


def _entry(number: int, key: str, scopes: str | None = None, prefixes: str | None = None) -> ApiKey:
    if not key.strip():
        raise ValueError(f"entry {number} begins with a colon: the key itself is missing")
    limits = [] if prefixes is None else [prefix.strip() for prefix in prefixes.split("|")]
    if "" in limits:
        raise ValueError(f"entry {number}: an empty prefix would allow every name (leave out its colon or |)")
    all_scopes = scopes is None or (bool(limits) and not scopes.strip())
    try:
        granted = read_scopes([] if all_scopes else [scopes or ""])
    except ValueError as error:
        # The word may be the other half of a key that contains a colon, so it is not shown.
        raise ValueError(f"entry {number}: {error} (a key must not contain a colon)") from None
    return ApiKey(hashlib.sha256(key.strip().encode()).digest(), granted, tuple(limits))


def read_scopes(texts: Iterable[str]) -> frozenset[Scope]:
    """Return the named scopes, joined with `+` or given one by one; all scopes if `texts` is empty.

    A scope may be shortened to its first letter; `del` is delete, and `rw` read and write.

    Raises ValueError, also for a blank text; it names a word by its position and never shows it.
    """
    words = [word.strip().lower() for text in texts for word in text.split("+")]
    for place, word in enumerate(words, start=1):
        if not word:
            raise ValueError(f"scope {place} is empty: name it, or leave all scopes out to allow everything")
        if word not in _WORDS:
            raise ValueError(f"scope {place} is not one of {', '.join(SCOPES)} and rw")
    return frozenset(scope for word in words for scope in _WORDS[word]) or EVERY_SCOPE


def _from_settings(settings: Settings) -> list[ApiKey]:
    keys: dict[bytes, ApiKey] = {}
    problems: list[SettingProblem] = []
    if settings.api_keys.get_secret_value():
        _take(keys, problems, settings.origin("api_keys"), lambda: parse_keys(settings.api_keys.get_secret_value()))
    if settings.api_keys_file:
        _take(keys, problems, settings.origin("api_keys_file"), lambda: _from_file(settings))
    if problems:
        raise BadSettings(problems)
    return list(keys.values())


def _clients_of(settings: Settings) -> dict[str, ApiKey]:
    """Return what each name in a client certificate stands for, in the order of the setting. Raises `BadSettings`."""
    found: dict[str, ApiKey] = {}
    for number, entry in enumerate(entries_of(settings.api_clients), start=1):
        try:
            name, key = _client(number, entry)
            if name in found:
                raise ValueError(f"entry {number}: the name {name!r} is listed twice")
        except ValueError as error:
            raise BadSettings([SettingProblem(settings.origin("api_clients"), str(error))]) from None
        found[name] = key
    return found


def _client(number: int, entry: str) -> tuple[str, ApiKey]:
    """Return the name and the permissions of an entry of `api_clients`. Raises ValueError.

    A name with a colon stands in brackets; that of a node begins with `node/`.
    """
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]:*\s]+))(:.*)?", entry)
    if match is None:
        raise ValueError(f"entry {number} is not NAME[:SCOPES[:PREFIXES]]; write a name with a colon as [NAME]")
    name = match[1] or match[2]
    if not name.strip() or name == NODE_PREFIX:
        raise ValueError(f"entry {number} has no name")
    if not name.startswith(NODE_PREFIX):
        with suppress(ValueError):  # a host name
            name = str(ipaddress.ip_address(name))
        name = name.lower()
    if match[3] is not None and match[3].endswith(":"):
        raise ValueError(f"entry {number} ends with a colon: scopes or prefixes are missing")
    scopes, _, prefixes = (match[3] or "")[1:].partition(":")
    key = _entry(number, "certificate", scopes if match[3] else None, prefixes or None)
    return name, key._replace(name=name, digest=digest_of_client(name))


def digest_of_client(name: str) -> bytes:
    """Return the digest of what client certificates with this name stand for; no key has it."""
    return hashlib.sha256(f"certificate {name}".encode()).digest()


def _from_file(settings: Settings) -> tuple[ApiKey, ...]:
    text = settings.read_secret(settings.api_keys_file)
    try:
        return parse_keys(text)
    except ValueError as error:
        raise ValueError(f"{settings.api_keys_file} {error}") from None


def _take(
    keys: dict[bytes, ApiKey], problems: list[SettingProblem], origin: str, read: Callable[[], tuple[ApiKey, ...]]
) -> None:
    try:
        keys.update({key.digest: key for key in read()})
    except ValueError as error:
        problems.append(SettingProblem(origin, str(error)))
