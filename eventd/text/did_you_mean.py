"""The name that a misspelt one was probably meant to be, for messages and hints."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the question `did you mean NAME?` for the known name that is most similar; empty if none is.

    `cutoff`: how similar the two must be, from 0 to 1.
    """
    close = difflib.get_close_matches(name, list(known), 1, cutoff)
    return f"did you mean {close[0]}?" if close else ""
