"""Characters that are invisible, control terminals, or change the direction of text."""

from __future__ import annotations

import json
import re
from typing import Final

UNSEEN: Final = re.compile(
    "[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Invisible characters from U+007F on; JSON and YAML always escape the controls below U+0020."""


def spelled_out(text: str) -> str:
    """Return the JSON text with the characters of `UNSEEN`, which occur only in its strings, escaped."""
    return UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def printable(text: str) -> str:
    """Return the text with all characters escaped that Python does not count as printable, also newlines.

    Invisible or direction-changing characters would let one name pass for another.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
