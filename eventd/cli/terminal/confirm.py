"""Asks for confirmation on a terminal."""

from __future__ import annotations

import select
import sys
from typing import Final

from eventd.errors import EventdError

_SIGNAL_CHECK_SECONDS: Final = 0.2
MOST_BY_YES: Final = 100
"""The largest number that an operator confirms without typing it."""


def confirm(question: str) -> None:
    """Ask `question` on standard error, and read the answer. Raises `EventdError` unless it is yes."""
    if _ask(f"{question} [y/N] ").lower() not in ("y", "yes"):
        raise EventdError("nothing was changed")


def _ask(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    # A Ctrl-C that arrives just before a blocking read begins would not be noticed until that read ends.
    while not select.select([sys.stdin], [], [], _SIGNAL_CHECK_SECONDS)[0]:
        pass
    return sys.stdin.readline().strip()


def confirm_number(question: str, number: int) -> None:
    """Ask `question`, which names the number of what is changed; above `MOST_BY_YES` that number must be typed.

    Raises `EventdError` unless it is confirmed.
    """
    if number <= MOST_BY_YES:
        confirm(question)
    elif _ask(f"{question} Type {number} to confirm: ") != str(number):
        raise EventdError("nothing was changed")
