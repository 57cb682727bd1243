"""How much a JSON text holds, before anything is made of it.

A few bytes of text can become a hundred times as many in memory: `[],[],[]`. Counting costs next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from eventd.errors import Invalid, TooLarge

MOST_LEVELS: Final = 64

_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|([\[\]{},])', re.DOTALL)
"""A text, which is passed over without a copy of it, or a character of the structure. A text that does not end reaches
to the end, so that each byte is looked at once."""


def require_modest(text: bytes | bytearray, values: int) -> None:
    """Raises `TooLarge` for a JSON text of more than so many values, `Invalid` for one of more than 64 levels.

    Whether it is JSON is not looked at.
    """
    opened = text.count(b"[") + text.count(b"{")
    if opened <= MOST_LEVELS and opened + text.count(b",") < values:
        return  # even if all of them were structure
    for count, level, _ in _walk(text):
        if level > MOST_LEVELS:
            raise Invalid(f"the body is nested more than {MOST_LEVELS} levels deep")
        if count > values:
            raise TooLarge(f"the body holds more than {values} values", hint="send less at once")


def count_elements(text: bytes | bytearray, most: int) -> int:
    """How many elements the lists that are members of a JSON object have together, counted to `most` and one."""
    elements = 1
    for _, level, character in _walk(text):
        elements += character == b"," and level == 2
        if elements > most:
            break
    return elements


def _walk(text: bytes | bytearray) -> Iterator[tuple[int, int, bytes]]:
    """Each character of the structure, with how many values there are and how deep it is by then."""
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
