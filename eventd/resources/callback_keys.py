"""Reads the secrets of a callback from their files. No message of this module contains a secret."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eventd.errors import SecretUnreadable
from eventd.resources.callback_configuration import CallbackConfig
from eventd.resources.keyring import read_secret_file
from federation.errors import BadKey
from federation.keys import Key, KeyState
from federation.webhooks import read_key

_SIGNING = (KeyState.ACTIVE, KeyState.RETIRING)


@dataclass(frozen=True, slots=True)
class LoadedSecrets:
    """The secrets of a callback: the keys that sign, active ones first, and the header `Authorization`, if any."""

    keys: Sequence[Key]
    authorization: str | None


def load_callback_secrets(config: CallbackConfig, credentials: Path | None) -> LoadedSecrets:
    """Return the secrets of a callback, from its files; keys that do not sign are read, too, and left out.

    `credentials` is the folder of the service manager's secrets. Raises `SecretUnreadable`, which names callback and
    file or key.
    """
    keys = [_key(config, key.id, key.state, key.secret_file, credentials) for key in config.keys]
    signing = sorted((key for key in keys if key.state in _SIGNING), key=lambda key: _SIGNING.index(key.state))
    return LoadedSecrets(signing, _authorization(config, credentials))


def _key(config: CallbackConfig, id: str, state: str, file: str, credentials: Path | None) -> Key:
    content = read_secret_file("callback", config.name, file, credentials)
    try:
        key = read_key(id, content, state=state)
    except BadKey as error:
        raise SecretUnreadable(f"EventCallback {config.name!r}: {error}", hint=_HINT) from None
    if key.state in _SIGNING and not (key.secret or key.private):
        raise SecretUnreadable(f"EventCallback {config.name!r}: key {id!r} has only its public part", hint=_HINT)
    return key


_HINT = "create a secret: routerctl callback secret new"


def _authorization(config: CallbackConfig, credentials: Path | None) -> str | None:
    if config.bearer_file:
        return f"Bearer {_read_word(config, config.bearer_file, credentials)}"
    if not config.username:
        return None
    password = _read_word(config, config.password_file, credentials) if config.password_file else ""
    return "Basic " + b64encode(f"{config.username}:{password}".encode()).decode()


def _read_word(config: CallbackConfig, file: str, credentials: Path | None) -> str:
    """Return the text in a file, without line breaks at its end. Raises `SecretUnreadable` unless it is one line."""
    try:
        word = read_secret_file("callback", config.name, file, credentials).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretUnreadable(f"EventCallback {config.name!r}: {file} is not text") from None
    if not word or not word.isprintable():
        raise SecretUnreadable(f"EventCallback {config.name!r}: {file} must have one line of printable text")
    return word
