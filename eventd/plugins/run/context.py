"""The part of the configuration that a plugin receives: the resources that its Plugin names, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from eventd.resources.plugin_configuration import PluginConfig
from eventd.resources.validation.resource import identity_of
from eventd.store.rows.registry import StoredResource

_FILES: Final = ("keyfile", "secretfile", "passwordfile")
_SECRETS: Final = (
    *("secret", "password", "privatekey", "presharedkey", "psk", "token", "credential", "passphrase", "authkey"),
    *("passwd", "passcode", "apikey", "accesskey", "sharedkey", "signingkey", "encryptionkey", "masterkey", "hmackey"),
    *("privkey", "authorization", "cookie"),
)
"""Parts of names that denote secrets, in lower case without separators: `private_key`, `Pre-Shared-Key`."""
_SECRET_NAMES: Final = frozenset(("pwd", "pass", "key", "pin"))
"""Words that denote secrets only as whole names."""
_SOURCES: Final = frozenset(("file", "env", "base64"))
_SEPARATORS: Final = re.compile(r"[^a-z0-9]+")
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/?#\s@]*@")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z0-9_.-]+)(\s*=\s*)[^\s;&,]+")
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----")


def context_of(config: PluginConfig, stored: Iterable[StoredResource]) -> list[dict[str, Any]]:
    """Return the resources that the Plugin names, in its order, without secrets; undeclared ones are left out.

    Each is `{apiVersion, kind, name, spec}`.
    """
    declared = {identity_of(row): row for row in stored} if config.context else {}
    return [
        {"apiVersion": found.api_version, "kind": found.kind, "name": found.name, "spec": redact(found.spec)}
        for reference in config.context
        if (found := declared.get(reference)) is not None
    ]


def redact(value: Any) -> Any:
    """Return a copy without the values of keys whose names, in any spelling, denote secrets or their sources.

    Such a value becomes empty; the key of a mapping or of a key file's path is left out. In other texts, users and
    passwords in URLs and assigned secrets are removed; a text with a private key becomes empty. In a mapping with
    `name` and `value`, the name decides about the value.
    """
    if isinstance(value, str):
        return _redact_text(value)
    if isinstance(value, list | tuple):
        return [redact(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    named = value.get("name")
    secret = isinstance(named, str) and _names_a_secret(_plain(named))
    kept = {key: inner for key, inner in value.items() if not _is_dropped(_plain(key), inner)}
    return {key: "" if secret and key == "value" else _blank(key, inner) for key, inner in kept.items()}


def _redact_text(text: str) -> str:
    if _PRIVATE_KEY.search(text):
        return ""
    return _ASSIGNMENT.sub(_redact_assignment, _USER_IN_URL.sub("", text))


def _redact_assignment(found: re.Match[str]) -> str:
    return found[1] + found[2] if _names_a_secret(_plain(found[1])) else found[0]


def _plain(key: str) -> str:
    """Return a name in lower case, without separators."""
    return _SEPARATORS.sub("", key.lower())


def _is_dropped(key: str, value: Any) -> bool:
    if key.endswith(_FILES):
        return True
    if not isinstance(value, Mapping):
        return False
    # The source of a secret can reveal as much as the secret, and an object cannot be blanked.
    return _names_a_secret(key) or (key.endswith("from") and {*map(str.lower, value)} <= _SOURCES)


def _blank(key: str, value: Any) -> Any:
    return "" if _names_a_secret(_plain(key)) else redact(value)


def _names_a_secret(key: str) -> bool:
    return key in _SECRET_NAMES or any(word in key for word in _SECRETS)
