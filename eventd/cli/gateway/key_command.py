"""Asks a program of the operator for an API key, such as a password manager."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

from eventd.errors import Invalid

LONGEST = 4096
"""Maximum bytes of what the program prints."""


@cache
def ask_for_key(command: tuple[str, ...]) -> str:
    """Return the key that a program prints, which may ask on the terminal; each is started once.

    Raises `Invalid`, which names the program and never what it printed.
    """
    try:
        # what is piped into routerctl is for the command, and not for a program such as ssh, which would read it
        given = None if sys.stdin is not None and sys.stdin.isatty() else subprocess.DEVNULL
        done = subprocess.run(command, stdin=given, stdout=subprocess.PIPE, check=False)
    except OSError as error:
        raise Invalid(f"cannot start {command[0]} for the API key: {error.strerror}", hint=_HINT) from None
    if done.returncode != 0:
        raise Invalid(f"{command[0]} exited with status {done.returncode} instead of a key", hint=_HINT)
    try:
        key = done.stdout[: LONGEST + 1].decode().strip()
    except UnicodeDecodeError:
        key = ""
    if not key or len(done.stdout) > LONGEST:
        raise Invalid(f"{command[0]} does not print a key", hint=_HINT)
    return key


_HINT = "correct keyCommand of the context; it must print only the key"
