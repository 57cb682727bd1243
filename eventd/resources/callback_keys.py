"""Reads the secrets of a callback from their files. No message of this module contains a secret."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path

from eventd.errors import SecretUnreadable
from eventd.resources.callback_configuration import CallbackConfig, CallbackKeyConfig
from eventd.resources.keyring import read_secret_file
from federation.errors import BadKey
from federation.keys import Key, KeyState
from federation.webhooks import read_key

_SIGNING = (KeyState.ACTIVE, KeyState.RETIRING)
_TOKEN = re.compile(r"[!-~]+")
_PASSWORD = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
_HINT = "create a secret: routerctl callback secret new"


@dataclass(frozen=True, slots=True)
class LoadedSecrets:
    """The secrets of a callback: its signing keys, active ones first, and the value of the header Authorization."""

    keys: tuple[Key, ...]
    authorization: str | None = field(repr=False)


def load_callback_secrets(config: CallbackConfig, credentials: Path | None) -> LoadedSecrets:
    """Return the secrets of a callback, from its files. Pending and revoked keys are checked as well, and left out.

    Raises `SecretUnreadable`, which names the callback and the file.
    """
    keys = [_read_key(config, key, credentials) for key in config.keys]
    signing = sorted((key for key in keys if key.state in _SIGNING), key=lambda key: _SIGNING.index(key.state))
    return LoadedSecrets(tuple(signing), _authorization(config, credentials))


def _read_key(config: CallbackConfig, declared: CallbackKeyConfig, credentials: Path | None) -> Key:
    content = read_secret_file("callback", config.name, declared.secret_file, credentials)
    try:
        key = read_key(declared.id, content, state=declared.state)
    except BadKey as error:
        raise _unusable(config, declared.secret_file, str(error), _HINT) from None
    if not key.secret and key.private is None:
        raise _unusable(config, declared.secret_file, f"key {key.id!r} has only its public part", "name the secret")
    return key


def _authorization(config: CallbackConfig, credentials: Path | None) -> str | None:
    if config.bearer_file:
        return f"Bearer {_read_line(config, config.bearer_file, credentials, 'token', _TOKEN)}"
    if not config.username:
        return None
    file = config.password_file
    password = _read_line(config, file, credentials, "password", _PASSWORD) if file else ""
    return f"Basic {b64encode(f'{config.username}:{password}'.encode()).decode()}"


def _read_line(config: CallbackConfig, file: str, credentials: Path | None, what: str, allowed: re.Pattern[str]) -> str:
    """Return the one line of a file. Raises `SecretUnreadable` if it is empty, or has other than `allowed` text."""
    content = read_secret_file("callback", config.name, file, credentials, what=what)
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _unusable(config, file, f"the {what} is not UTF-8 text", f"write the {what} on one line") from None
    if not allowed.fullmatch(text):
        trouble = "contains a character that it cannot have" if text else "is empty"
        raise _unusable(config, file, f"the {what} {trouble}", f"write the {what} on one line")
    return text


def _unusable(config: CallbackConfig, file: str, trouble: str, hint: str) -> SecretUnreadable:
    return SecretUnreadable(f"EventCallback {config.name!r}: {file}: {trouble}", hint=hint)
