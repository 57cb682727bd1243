"""Asks for confirmation on a terminal."""

from __future__ import annotations

import select
import sys
from typing import Final

from eventd.errors import EventdError

_SIGNAL_CHECK_SECONDS: Final = 0.2


def confirm(question: str) -> None:
    """Ask `question` on standard error, and read the answer. Raises `EventdError` unless it is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    # A Ctrl-C that arrives just before a blocking read begins would not be noticed until that read ends.
    while not select.select([sys.stdin], [], [], _SIGNAL_CHECK_SECONDS)[0]:
        pass
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise EventdError("nothing was changed")
