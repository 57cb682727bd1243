"""Counts the values and levels of a JSON text before it is decoded.

A few bytes of text can become a hundred times as many in memory: `[],[],[]`. Counting costs almost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from eventd.errors import Invalid, TooLarge

MOST_LEVELS: Final = 64

_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|([\[\]{},])', re.DOTALL)
"""A string, which is skipped without a copy, or a structural character. An unterminated string reaches to the end, so
each byte is read once."""


def require_modest(text: bytes | bytearray, values: int, what: str = "body") -> None:
    """Raises `TooLarge` for a JSON text with more than `values` values, `Invalid` for more than `MOST_LEVELS` levels.

    An empty list or object counts as two. The text is not checked to be JSON. Errors name it `what`.
    """
    opened = text.count(b"[") + text.count(b"{")
    if opened <= MOST_LEVELS and opened + text.count(b",") < values:
        return  # even if all of them were structural
    for count, level, _ in _walk(text):
        if level > MOST_LEVELS:
            raise Invalid(f"the {what} is nested more than {MOST_LEVELS} levels deep")
        if count > values:
            raise TooLarge(f"the {what} contains more than {values} values", hint="send a smaller request")


def count_elements(text: bytes | bytearray, most: int) -> int:
    """Return one upper bound of the lengths of all lists that are members of a JSON object; stop at `most` + 1."""
    elements = 1
    for _, level, character in _walk(text):
        elements += character == b"," and level == 2
        if elements > most:
            break
    return elements


def _walk(text: bytes | bytearray) -> Iterator[tuple[int, int, bytes]]:
    """Yield for each structural character the number of values so far, the level after it, and the character itself."""
    count, level = 1, 0
    for found in _STRUCTURE.finditer(text):
        character = found[1]
        match character:
            case b",":
                count += 1
            case b"[" | b"{":
                count, level = count + 1, level + 1
            case b"]" | b"}":
                level -= 1
            case _:
                continue
        yield count, level, character
