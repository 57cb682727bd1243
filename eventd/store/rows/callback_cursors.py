"""Names of the cursors of callbacks and of their resends: `callback:NAME` and `resend:NAME#NUMBER`.

The callback of a subscriber of the Routemaster surface is called `rm/IDENTITY`; no declared one has such a name.
"""

from __future__ import annotations

from typing import Final

CALLBACK: Final = "callback"
RESEND: Final = "resend"
CALLBACK_KINDS: Final = (CALLBACK, RESEND)
"""The kinds of cursors of callbacks."""
SUBSCRIBER: Final = "rm/"
"""Beginning of the names of callbacks that serve subscribers of the Routemaster surface."""


def callback_name(name: str) -> str:
    """Return the name of a callback's cursor: `callback:NAME`."""
    return f"{CALLBACK}:{name}"


def resend_prefix(name: str) -> str:
    """Return the beginning of the names of the cursors that send a callback's events again: `resend:NAME#`."""
    return f"{RESEND}:{name}#"


def callback_of(cursor: str) -> str:
    """Return the name of the callback that a cursor of this name serves: `callback:NAME` or `resend:NAME#NUMBER`."""
    return cursor.partition(":")[2].partition("#")[0]


def is_subscriber(cursor: str) -> bool:
    """Return whether a cursor of this name serves a subscriber of the Routemaster surface, not a declared callback."""
    return callback_of(cursor).startswith(SUBSCRIBER)
