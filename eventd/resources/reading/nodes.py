"""A document as a tree that remembers its lines, whatever it was written in.

Readers build the tree bottom up, so its size and height are known, and bounded, before anything walks it. That matters
for aliases: a kilobyte of YAML can stand for a billion values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eventd.resources.reading.problems import FieldPath, shorten

MAX_DEPTH = 64
MAX_VALUES = 500_000
MAX_FLAWS = 100
"""Flaws after which a text is given up: each takes up more memory than what is wrong."""


class ParseError(Exception):
    """The text cannot be read any further. `line` and `column` count from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.message = message


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something wrong that does not keep the rest of the text from being read."""

    line: int
    column: int
    message: str


class Flaws(list[Flaw]):
    """The flaws of one text, in the order they were met. `append` raises Malformed where there are too many of them."""

    def append(self, flaw: Flaw) -> None:
        if len(self) >= MAX_FLAWS:
            raise ParseError(flaw.line, flaw.column, f"the text has more than {MAX_FLAWS} flaws: nothing more was read")
        super().append(flaw)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number, truth value or nothing."""

    line: int
    value: str | int | float | bool | None
    size = 1
    height = 1


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list; `size` counts the values in it, aliases expanded."""

    line: int
    items: tuple[Node, ...]
    size: int
    height: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's place and what stands under it."""

    line: int
    node: Node


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping in the order it was written."""

    line: int
    entries: dict[str, Entry]
    size: int
    height: int

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key)
        return entry.node if entry else None

    def text(self, key: str) -> str | None:
        """The text under a key; None when it is absent or something else."""
        node = self.get(key)
        return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


Node = Scalar | Sequence | Mapping


def sequence(line: int, column: int, items: list[Node]) -> Sequence:
    """Close a list. Raises Malformed when it is too deep or too large."""
    size, height = _measure(line, column, items)
    return Sequence(line, tuple(items), size, height)


def mapping(line: int, column: int, entries: dict[str, Entry]) -> Mapping:
    """Close a mapping. Raises Malformed when it is too deep or too large."""
    size, height = _measure(line, column, [entry.node for entry in entries.values()])
    return Mapping(line, entries, size, height)


def _measure(line: int, column: int, children: list[Node]) -> tuple[int, int]:
    size = 1 + sum(child.size for child in children)
    height = 1 + max((child.height for child in children), default=0)
    if size > MAX_VALUES:
        raise ParseError(line, column, f"holds more than {MAX_VALUES} values once its aliases are expanded")
    if height > MAX_DEPTH:
        raise too_deep(line, column)
    return size, height


def too_deep(line: int, column: int) -> ParseError:
    return ParseError(line, column, f"is nested more than {MAX_DEPTH} levels deep")


def repeated_key(key: str, line: int, column: int, first: int) -> Flaw:
    """One of two values would be lost without a word."""
    return Flaw(line, column, f"the key {shorten(key)} stands twice in one mapping, first on line {first}")


def text_flaw(text: str) -> str:
    """Why this text cannot be kept; empty when it can. Databases and JSON readers disagree about both characters."""
    if "\x00" in text:
        return "text must not hold the character U+0000"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "text must not hold half of a surrogate pair"
    return ""


def plain(node: Node) -> Any:
    """The tree as dict, list and scalars, without the lines."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key: plain(entry.node) for key, entry in node.entries.items()}


def line_of(node: Node, path: FieldPath) -> int:
    """The line where the field stands; that of the nearest enclosing one when it is absent."""
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
