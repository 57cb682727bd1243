"""The API keys in the settings, and the permissions that the settings give to client certificates."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from eventd.api.keys.api_key import ApiKey
from eventd.api.keys.scopes import EVERY_SCOPE, SCOPES, Scope
from eventd.settings.model import Settings
from eventd.settings.problems import BadSettings, SettingProblem
from eventd.settings.values import entries_of

NODE_PREFIX = "node/"
"""Prefix in `api_clients` of the name of a node, which only a URI in the certificate gives."""
_WORDS: dict[str, tuple[Scope, ...]] = {
    **{word: (scope,) for scope in SCOPES for word in (scope, scope[0])},
    "del": ("delete",),
    "rw": ("read", "write"),
}


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


def keys_of(settings: Settings) -> list[ApiKey]:
    """Return the keys of the settings. Raises `BadSettings`."""
    keys: dict[bytes, ApiKey] = {}
    problems: list[SettingProblem] = []
    if settings.api_keys.get_secret_value():
        _take(keys, problems, settings.origin("api_keys"), lambda: parse_keys(settings.api_keys.get_secret_value()))
    if settings.api_keys_file:
        _take(keys, problems, settings.origin("api_keys_file"), lambda: _from_file(settings))
    if problems:
        raise BadSettings(problems)
    return list(keys.values())


def clients_of(settings: Settings) -> dict[str, ApiKey]:
    """Return the permissions for each name in client certificates, in the order of the setting.

    Raises `BadSettings`.
    """
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
    """Return the digest that identifies client certificates with this name among keys; no real key has it."""
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
