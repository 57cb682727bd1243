"""A document as a tree with line numbers, for all formats.

Parsers build the tree bottom up, so its size and height are known and limited before anything walks it. That matters
for aliases: a kilobyte of YAML can stand for a billion values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eventd.resources.reading.problems import FieldPath, shorten

MAX_DEPTH = 64
MAX_VALUES = 500_000
MAX_FLAWS = 100
"""Maximum number of flaws that are collected in one text: each takes more memory than the text that causes it."""


class ParseError(Exception):
    """The text cannot be parsed any further. `line` and `column` count from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.message = message


@dataclass(frozen=True, slots=True)
class Flaw:
    """A mistake in a text after which the rest of the text can still be parsed."""

    line: int
    column: int
    message: str


class Flaws(list[Flaw]):
    """The flaws of one text, in order. `append` raises ParseError when there are `MAX_FLAWS` already."""

    def append(self, flaw: Flaw) -> None:
        if len(self) >= MAX_FLAWS:
            raise ParseError(flaw.line, flaw.column, f"the text has more than {MAX_FLAWS} flaws: nothing more was read")
        super().append(flaw)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number, boolean or null."""

    line: int
    value: str | int | float | bool | None
    size = 1
    height = 1


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list. `size` counts it and the values in it, aliases expanded; `height` counts its levels, 1 if it is empty."""

    line: int
    items: tuple[Node, ...]
    size: int
    height: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The line of a key, and the value under it."""

    line: int
    node: Node


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping by key, in the written order; `size` and `height` as of a list."""

    line: int
    entries: dict[str, Entry]
    size: int
    height: int

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key)
        return entry.node if entry else None

    def text(self, key: str) -> str | None:
        """Return the string under a key; None if it is absent or not a string."""
        node = self.get(key)
        return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


Node = Scalar | Sequence | Mapping


def sequence(line: int, column: int, items: list[Node]) -> Sequence:
    """Return the list of these items. Raises ParseError when it is too deep or too large."""
    size, height = _measure(line, column, items)
    return Sequence(line, tuple(items), size, height)


def mapping(line: int, column: int, entries: dict[str, Entry]) -> Mapping:
    """Return the mapping of these entries. Raises ParseError when it is too deep or too large."""
    size, height = _measure(line, column, [entry.node for entry in entries.values()])
    return Mapping(line, entries, size, height)


def _measure(line: int, column: int, children: list[Node]) -> tuple[int, int]:
    size = 1 + sum(child.size for child in children)
    height = 1 + max((child.height for child in children), default=0)
    if size > MAX_VALUES:
        raise ParseError(
            line, column, f"contains more than {MAX_VALUES} values (each use of an alias counts all of its values)"
        )
    if height > MAX_DEPTH:
        raise too_deep(line, column)
    return size, height


def too_deep(line: int, column: int) -> ParseError:
    return ParseError(line, column, f"is nested more than {MAX_DEPTH} levels deep")


def repeated_key(key: str, line: int, column: int, first: int) -> Flaw:
    """Return the flaw of a repeated key; without it, one of the two values would be lost silently."""
    return Flaw(line, column, f"the key {shorten(key)} stands twice in one mapping, first on line {first}")


def text_flaw(text: str) -> str:
    """Return why a text cannot be stored; empty if it can.

    Databases and JSON readers disagree about U+0000 and halves of surrogate pairs.
    """
    if "\x00" in text:
        return "text must not contain the character U+0000"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "text must not contain half of a surrogate pair"
    return ""


def plain(node: Node) -> Any:
    """Return the tree as dict, list and scalars, without the lines."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key: plain(entry.node) for key, entry in node.entries.items()}


def line_of(node: Node, path: FieldPath) -> int:
    """Return the line of the field at `path`; if that is absent, of the nearest enclosing field that exists."""
    line = node.line
    for step in path:
        if isinstance(node, Mapping) and isinstance(step, str) and step in node.entries:
            entry = node.entries[step]
            line, node = entry.line, entry.node
        elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            line = node.line
        else:
            break
    return line
