"""Puts stored and remote texts into commands that an operator pastes into a shell."""

from __future__ import annotations

from shlex import quote
from typing import Final

LONGEST_ARGUMENT: Final = 128
"""Maximum number of characters of a text that is put into a command."""


def as_argument(text: str, placeholder: str) -> str:
    """Return a text as one argument of a suggested command, quoted for the shell; or the placeholder.

    Publishers, peers and plugins choose such texts: event ids, sources of parts, names of files. One that is empty or
    long, that looks like an option, that holds invisible characters, or a backtick, which marks commands in messages,
    is not pasted.
    """
    is_plain = 0 < len(text) <= LONGEST_ARGUMENT and text.isprintable() and not text.startswith("-")
    return quote(text) if is_plain and "`" not in text else placeholder
