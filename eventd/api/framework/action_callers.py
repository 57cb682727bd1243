"""The callers of actions, as the record of actions names them. No secret of a caller can be learned from its name."""

from __future__ import annotations

import hashlib
import os
import pwd
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from eventd.api.keys.api_key import ANYONE, ApiKey
from eventd.api.keys.configured_keys import digest_of_client

CallerKind = Literal["key", "certificate", "session", "local", "command", "anyone", "unknown"]
"""The kind of a caller: an API key, a client certificate with the permissions of a key, a session of the console, a
user over the local socket, a command on the database, any caller of an API without keys, or a caller without a valid
key."""


class ActionCaller(NamedTuple):
    """The caller of an action: its kind, its name, its network address (empty: none), and a `mark` that tells apart two
    callers of the same name."""

    kind: CallerKind
    who: str
    address: str
    mark: str


UNKNOWN: Final = "unknown"


def unknown_caller(address: str) -> ActionCaller:
    """Return the caller of a request without a valid key."""
    return ActionCaller("unknown", UNKNOWN, address, "")


def key_caller(key: ApiKey, address: str) -> ActionCaller:
    """Return the caller with this key. A key of the settings has no name, and is shown by a short hash."""
    if key is ANYONE:
        return ActionCaller("anyone", "anyone", address, "anyone")
    mark = hashlib.sha256(b"caller" + key.digest).hexdigest()
    if key.name and key.digest == digest_of_client(key.name):
        return ActionCaller("certificate", key.name, address, mark)
    return ActionCaller("key", key.name or f"settings key {mark[:6]}", address, mark)


def session_caller(key: ApiKey, address: str) -> ActionCaller:
    """Return the caller that acts in a session of the console, which was begun with this key."""
    caller = key_caller(key, address)
    return caller._replace(kind="session", who=f"session of {caller.who}")


def socket_caller(user: int) -> ActionCaller:
    """Return a caller over the local socket, by the id of its user; -1: it is not known."""
    return ActionCaller("local", _local(user), "local socket", f"user {user}")


def command_caller() -> ActionCaller:
    """Return a command of this process's user that works on the database."""
    user = os.geteuid()
    return ActionCaller("command", _local(user), "database", f"user {user}")


def _local(user: int) -> str:
    return "local" if user < 0 else f"local {_user_name(user)}"


@lru_cache(maxsize=64)
def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
