"""Characters that a person does not see, and that steer terminals or turn around the order in which a text is read."""

from __future__ import annotations

import json
import re
from typing import Final

UNSEEN: Final = re.compile(
    "[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Beside the control characters of ASCII, which JSON and YAML never hold as they are."""


def spelled_out(text: str) -> str:
    """A JSON text that means the same, with such characters as escapes: they stand in its strings alone."""
    return UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def printable(text: str) -> str:
    """The text with every character that is invisible, or that changes its neighbours, spelled out.

    Otherwise a name could hold a mark that turns the writing direction, and be read as another name.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
