"""Who may ask what of the API: keys with scopes, each perhaps for some groups only.

A key is known by its SHA-256. Without any key everything is allowed, and then only this machine may reach the API.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

from eventd.api.operations import Scope
from eventd.errors import Forbidden, SettingsError, Unauthorized
from eventd.settings import BadSettings, Problem, Settings

SCOPES: tuple[Scope, ...] = get_args(Scope)
_WORDS: dict[str, tuple[Scope, ...]] = {
    **{word: (scope,) for scope in SCOPES for word in (scope, scope[0])},
    "del": ("delete",),
    "rw": ("read", "write"),
}


class ApiKey(NamedTuple):
    """What a key may do. Empty `prefixes`: with every group."""

    digest: bytes
    scopes: frozenset[Scope]
    prefixes: tuple[str, ...]

    def require_scope(self, scope: Scope) -> None:
        """Raises `Forbidden` when the key may not do this kind of thing."""
        if scope not in self.scopes:
            raise Forbidden(f"this key lacks the scope {scope}", hint=f"it has {', '.join(sorted(self.scopes))}")

    def sees(self, group: str) -> bool:
        """Whether the key is for this group."""
        return not self.prefixes or group.startswith(self.prefixes)

    def require_group(self, group: str | None) -> None:
        """Raises `Forbidden` when the key is held to other groups; `None` stands for all groups at once."""
        if self.prefixes and group is None:
            raise Forbidden("this key is for some groups only", hint="name the group")
        if group is not None and not self.sees(group):
            raise Forbidden(f"this key is not for the group {group!r}")


ANYONE = ApiKey(b"", frozenset(SCOPES), ())


class Keys:
    """The keys in force. `read` gives them anew, for `reload`."""

    def __init__(self, read: Callable[[], Sequence[ApiKey]]) -> None:
        self._read = read
        self._keys = tuple(read())

    @classmethod
    def of(cls, settings: Settings) -> Keys:
        """The keys of the settings. Raises `SettingsError`, also when others could reach an API without keys."""
        return cls(lambda: _from_settings(settings))

    def __bool__(self) -> bool:
        """Whether a key is needed at all."""
        return bool(self._keys)

    def reload(self) -> None:
        """Read the keys again. Raises `SettingsError`; then those of before stay in force."""
        self._keys = tuple(self._read())

    def identify(self, authorization: str) -> ApiKey:
        """The key of an `Authorization` header. Raises `Unauthorized`."""
        if not self._keys:
            return ANYONE
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized("this API needs a key", hint="send it as Authorization: Bearer KEY")
        digest = hashlib.sha256(token.strip().encode(errors="surrogateescape")).digest()
        found = None
        for key in self._keys:  # all of them: how long it takes must not tell which one was near
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None:
            raise Unauthorized("this key is not known")
        return found


def require_local_name(host: str) -> None:
    """Raises `Forbidden` for a name that only happens to lead here.

    A web page can make its own name point at this machine and then talk to an API without keys through its visitor's
    browser; the name it was called by gives it away.
    """
    name = host.rsplit(":", 1)[0] if host.count(":") <= 1 or "]:" in host else host
    name = name.strip("[]").lower()
    if not name or name == "localhost" or name.endswith(".localhost"):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        hint = "call it by address or as localhost, or set EVENTD_API_KEYS"
        raise Forbidden(f"an API without keys does not answer to the name {name!r}", hint=hint) from None


def require_own_page(origin: str, host: str) -> None:
    """Raises `Forbidden` for a request that a page from elsewhere makes through its visitor's browser.

    Without keys the browser needs none either, and a request without a body is sent without asking first.
    """
    if origin and origin.partition("://")[2].lower() != host.lower():
        raise Forbidden("a page of another origin may not use this API", hint="set up keys and send one")


def parse_keys(text: str) -> tuple[ApiKey, ...]:
    """Entries `key`, `key:scopes`, `key:scopes:prefixes` or `key::prefixes`, parted by commas or line ends.

    Scopes are joined with `+`, prefixes with `|`; a line that begins with `#` is a comment. Raises ValueError, which
    names an entry by its number and never shows any of it.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    entries = [entry.strip() for line in lines for entry in line.split(",") if entry.strip()]
    keys = [_entry(number, *entry.split(":", 2)) for number, entry in enumerate(entries, start=1)]
    if not keys:
        raise ValueError("holds no key")
    if len({key.digest for key in keys}) < len(keys):
        raise ValueError("holds one key twice")
    return tuple(keys)


def _entry(number: int, key: str, scopes: str = "", prefixes: str = "") -> ApiKey:
    words = [word.strip().lower() for word in scopes.split("+") if word.strip()]
    if not key.strip():
        raise ValueError(f"entry {number} begins with a colon: the key itself is missing")
    if unknown := [word for word in words if word not in _WORDS]:
        # The word may be the other half of a key that holds a colon, so it is not shown.
        place = f"scope {words.index(unknown[0]) + 1} of entry {number}"
        raise ValueError(f"{place} is none of {', '.join(SCOPES)} and rw (a key must not hold a colon)")
    granted = frozenset(scope for word in words for scope in _WORDS[word])
    limits = tuple(prefix.strip() for prefix in prefixes.split("|") if prefix.strip())
    return ApiKey(hashlib.sha256(key.strip().encode()).digest(), granted or frozenset(SCOPES), limits)


def _from_settings(settings: Settings) -> list[ApiKey]:
    keys: dict[bytes, ApiKey] = {}
    problems: list[Problem] = []
    if settings.api_keys.get_secret_value():
        _take(keys, problems, settings.origin("api_keys"), lambda: parse_keys(settings.api_keys.get_secret_value()))
    if settings.api_keys_file:
        _take(keys, problems, settings.origin("api_keys_file"), lambda: _from_file(settings))
    if problems:
        raise BadSettings(problems)
    if not keys and not settings.api_listen.is_loopback and not settings.allow_insecure_no_auth:
        raise SettingsError(
            f"other machines could reach the API on {settings.api_listen}, and there are no keys to it",
            hint="set EVENTD_API_KEYS or EVENTD_API_KEYS_FILE, listen on 127.0.0.1, or say that this is meant with"
            " EVENTD_ALLOW_INSECURE_NO_AUTH=1",
        )
    return list(keys.values())


def _from_file(settings: Settings) -> tuple[ApiKey, ...]:
    text = settings.read_secret(settings.api_keys_file)
    try:
        return parse_keys(text)
    except ValueError as error:
        raise ValueError(f"{settings.api_keys_file} {error}") from None


def _take(
    keys: dict[bytes, ApiKey], problems: list[Problem], origin: str, read: Callable[[], tuple[ApiKey, ...]]
) -> None:
    try:
        keys.update({key.digest: key for key in read()})
    except ValueError as error:
        problems.append(Problem(origin, str(error)))
