"""What of the configuration a plugin is shown: the resources its Plugin names, and never a secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from eventd.resources.effective import PluginConfig
from eventd.resources.resource import identity_of
from eventd.store.registry import StoredResource

_FILES: Final = ("keyfile", "secretfile", "passwordfile")
_SECRETS: Final = (
    *("secret", "password", "privatekey", "presharedkey", "psk", "token", "credential", "passphrase"),
    "authkey",
)
_SOURCES: Final = frozenset(("file", "env", "base64"))


def context_of(config: PluginConfig, stored: Iterable[StoredResource]) -> list[dict[str, Any]]:
    """The resources the plugin may see, in the order it names them, without secrets; those that are not there are
    left out. Each is `{apiVersion, kind, name, spec}`.
    """
    declared = {identity_of(row): row for row in stored} if config.context else {}
    return [
        {"apiVersion": found.api_version, "kind": found.kind, "name": found.name, "spec": redact(found.spec)}
        for reference in config.context
        if (found := declared.get(reference)) is not None
    ]


def redact(value: Any) -> Any:
    """The value without secrets and without the ways to them, judged by the names of its keys, in any case."""
    if isinstance(value, list | tuple):
        return [redact(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _blank(key, inner) for key, inner in value.items() if not _is_dropped(key.lower(), inner)}


def _is_dropped(key: str, value: Any) -> bool:
    if key.endswith(_FILES):
        return True
    if not isinstance(value, Mapping):
        return False
    # Where a secret comes from can be as telling as the secret, and an object cannot be blanked.
    return _names_a_secret(key) or (key.endswith("from") and {*map(str.lower, value)} <= _SOURCES)


def _blank(key: str, value: Any) -> Any:
    return "" if _names_a_secret(key.lower()) else redact(value)


def _names_a_secret(key: str) -> bool:
    return any(word in key for word in _SECRETS)
