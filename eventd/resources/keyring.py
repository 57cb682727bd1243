"""Reads the files of secrets, and those of a group's keys into a key ring.

No message of this module contains a secret.
"""

from __future__ import annotations

import logging
import stat
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from eventd.errors import SecretUnreadable
from eventd.resources.group_configuration import GroupConfig, KeyConfig
from eventd.runtime.regular_files import NotRegular, read_regular
from eventd.settings.values import rights_of_others
from eventd.text.credential import CREDENTIAL, HINT, NoCredentials, path_of
from federation.errors import BadKey
from federation.keys import Algorithm, Key, KeyRing
from federation.peers import SHARED_KEY_ID

MAX_BYTES = 64 * 1024
_RESOURCES = {"group": "EventGroup", "callback": "EventCallback"}
logger = logging.getLogger("eventd.resources")


def load_ring(group: GroupConfig, credentials: Path | None) -> KeyRing:
    """Return the key ring of a group, from its files. Raises `SecretUnreadable`, which names group and file or key."""
    keys = [_key(group.name, key, credentials) for key in group.keys]
    try:
        if group.secret_file:
            secret = _read(group.name, group.secret_file, credentials)
            if not secret.strip():
                raise SecretUnreadable(f"EventGroup {group.name!r}: empty secret file {group.secret_file}")
            keys.append(Key.hmac(SHARED_KEY_ID, secret))
        return KeyRing(keys)
    except BadKey as error:
        raise SecretUnreadable(f"EventGroup {group.name!r}: {error}") from None


def check_files(group: GroupConfig) -> None:
    """Read the keys of the group whose files can change while the node runs. Raises what `load_ring` raises.

    The credentials of the service manager do not change. A key that names one is left out whole, even if its other half
    is in a file.
    """

    def in_files(*names: str) -> bool:
        return not any(name.startswith(CREDENTIAL) for name in names)

    keys = tuple(key for key in group.keys if in_files(key.secret_file, key.public_key_file))
    secret_file = group.secret_file if in_files(group.secret_file) else ""
    load_ring(replace(group, keys=keys, secret_file=secret_file), None)


def _key(group: str, key: KeyConfig, credentials: Path | None) -> Key:
    secret = _read(group, key.secret_file, credentials) if key.secret_file else None
    public = _read(group, key.public_key_file, credentials) if key.public_key_file else None
    speaks_for = "*" if key.speaks_for is None else key.speaks_for
    try:
        if key.algorithm == Algorithm.ED25519:
            return Key.ed25519(
                key.id, private=secret, public=public, owner=key.owner, state=key.state, speaks_for=speaks_for
            )
        return Key.hmac(key.id, secret or b"", owner=key.owner, state=key.state, speaks_for=speaks_for)
    except BadKey as error:
        raise SecretUnreadable(f"EventGroup {group!r}: {error}") from None


def _read(group: str, name: str, credentials: Path | None) -> bytes:
    return read_secret_file("group", group, name, credentials)


def read_secret_file(
    owning: Literal["group", "callback"], owner: str, name: str, credentials: Path | None, *, what: str = "key"
) -> bytes:
    """Return the content of the file of a secret, given by path or as `credential:NAME`.

    `owning` is the kind of the resource `owner`, and `what` the file should contain: messages name both. Raises
    `SecretUnreadable`, which also names the file.
    """
    resource = f"{_RESOURCES[owning]} {owner!r}"
    try:
        path = path_of(name, credentials)
    except NoCredentials as error:
        raise SecretUnreadable(f"{resource}: {error}", hint=HINT) from None
    try:
        content, mode = read_regular(path, MAX_BYTES + 1)
    except NotRegular:
        raise SecretUnreadable(f"{resource}: {path} is not a file", hint=f"name the file of the {what}") from None
    except OSError as error:
        raise SecretUnreadable(
            f"{resource}: cannot read {path}: {error.strerror}",
            hint="check the path and that the node's user may read it, then send SIGHUP",
        ) from None
    _warn_if_open(owning, owner, path, mode)
    if len(content) > MAX_BYTES:
        raise SecretUnreadable(f"{resource}: {path} is larger than {MAX_BYTES} bytes, so it cannot be a {what}")
    return content


@lru_cache(maxsize=4096)  # callbacks come and go
def _warn_if_open(owning: str, owner: str, path: Path, mode: int) -> None:
    """Warn if every user may read or change the file, once for each owner, path and mode: keys are read repeatedly."""
    if rights := rights_of_others(mode):
        about = {owning: owner, "file": str(path), "mode": f"{stat.S_IMODE(mode):04o}", "others": rights}
        logger.warning("key file exposed", extra=about | {"hint": "chmod o= the file"})
