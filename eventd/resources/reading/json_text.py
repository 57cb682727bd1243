"""Parses JSON with the line of every field: the standard decoder parses the scalars, this module the structure."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import NoReturn

from eventd.resources.reading.nodes import (
    MAX_DEPTH,
    MAX_VALUES,
    Entry,
    Flaw,
    Node,
    ParseError,
    Scalar,
    mapping,
    repeated_key,
    sequence,
    text_flaw,
    too_deep,
)

_BLANK = re.compile(r"[ \t\n\r]*")


def read_json(text: str, flaws: list[Flaw], most: int = MAX_VALUES) -> Node:
    """Return a JSON text as a tree; mistakes after which the text can still be parsed are added to `flaws`.

    Raises ParseError for any other mistake, and for a text with more than `most` values.
    """
    reader = _Reader(text, flaws, most)
    node = reader.value(1)
    reader.end()
    return node


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _Reader:
    def __init__(self, text: str, flaws: list[Flaw], most: int) -> None:
        self._text = text
        self._most = most
        self._flaws = flaws
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._scalars = json.JSONDecoder(parse_constant=_refuse_constant)
        self._values = 0
        self._at = _skip(text, 0)

    def value(self, depth: int) -> Node:
        """Return the value that begins at the current position, and move to the text after it."""
        line, column = self._place()
        if depth > MAX_DEPTH:
            raise too_deep(line, column)
        self._values += 1
        if self._values > self._most:
            raise ParseError(line, column, f"contains more than {self._most} values")
        match self._text[self._at : self._at + 1]:
            case "{":
                return mapping(line, column, self._entries(depth))
            case "[":
                return sequence(line, column, self._items(depth))
            case _:
                return Scalar(line, self._scalar())

    def end(self) -> None:
        if self._at < len(self._text):
            raise self._malformed("there is more text after the end of the document")

    def _entries(self, depth: int) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        self._step()
        while not self._closes("}", first=not entries):
            line, column = self._place()
            if self._text[self._at : self._at + 1] != '"':
                raise self._malformed("a key in double quotes is expected")
            key = str(self._scalar())
            self._expect(":")
            node = self.value(depth + 1)
            if key in entries:
                self._flaws.append(repeated_key(key, line, column, entries[key].line))
            else:
                entries[key] = Entry(line, node)
        return entries

    def _items(self, depth: int) -> list[Node]:
        items: list[Node] = []
        self._step()
        while not self._closes("]", first=not items):
            items.append(self.value(depth + 1))
        return items

    def _closes(self, bracket: str, *, first: bool) -> bool:
        """Return whether the structure ends here. Moves past its bracket, or past the comma before the next member."""
        if self._text[self._at : self._at + 1] == bracket:
            self._step()
            return True
        if not first:
            self._expect(",", f"a comma or {bracket} is expected")
        return False

    def _expect(self, character: str, message: str = "") -> None:
        if self._text[self._at : self._at + 1] != character:
            raise self._malformed(message or f"{character} is expected")
        self._step()

    def _scalar(self) -> str | int | float | bool | None:
        line, column = self._place()
        try:
            value, end = self._scalars.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            self._at = min(error.pos, len(self._text))
            what = "the text ends too early" if self._at == len(self._text) else error.msg[:1].lower() + error.msg[1:]
            raise self._malformed(what) from error
        except ValueError as error:
            raise self._malformed("this is not a JSON value, or a number that is too long") from error
        self._at = _skip(self._text, end)
        if isinstance(value, str) and (flaw := text_flaw(value)):
            self._flaws.append(Flaw(line, column, flaw))
        scalar: str | int | float | bool | None = value
        return scalar

    def _step(self) -> None:
        self._at = _skip(self._text, self._at + 1)

    def _place(self) -> tuple[int, int]:
        line = bisect_right(self._lines, self._at)
        return line, self._at - self._lines[line - 1] + 1

    def _malformed(self, what: str) -> ParseError:
        return ParseError(*self._place(), f"is not valid JSON: {what}")


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
