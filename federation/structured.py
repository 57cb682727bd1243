"""Structured field values (RFC 8941): the syntax of signatures, digests and ranges in headers.

Parsing is strict and total: any text gives a dictionary or raises Malformed. Values are int, Decimal, bool, str (a
quoted string), Token and bytes.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from federation.errors import Malformed


class Token(str):
    """A bare word, as opposed to a quoted string."""

    __slots__ = ()


Value = int | Decimal | bool | str | bytes
Params = dict[str, Value]


class Item(NamedTuple):
    """A value with its parameters, in order."""

    value: Value
    params: Params


class InnerList(NamedTuple):
    """Items in parentheses, and the parameters of the whole."""

    items: tuple[Item, ...]
    params: Params


Member = Item | InnerList

_KEY: Final = re.compile(r"[a-z*][a-z0-9_.*-]*")
_NUMBER: Final = re.compile(r"-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})(?![0-9.])")
_STRING: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_SIMPLE: Final = re.compile(r"[ !#-\[\]-~]*")
_TOKEN: Final = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*")
_BYTES: Final = re.compile(r":([A-Za-z0-9+/]*=*):")
_BOOLEAN: Final = re.compile(r"\?([01])")
_ESCAPED: Final = re.compile(r'\\(["\\])')
_COMMA: Final = re.compile(r"[ \t]*,[ \t]*")
_SPACES: Final = re.compile(r" *")
_PLAIN_PARAM: Final = re.compile(r'; *([a-z*][a-z0-9_.*-]*)=(?:([0-9]{1,15})(?![0-9.])|"([ !#-\[\]-~]*)")')
"""A parameter that is a whole number, or a string without escapes."""
_PLAIN_LIST: Final = re.compile(r'\((?:[^()"]|"[^()"\\]{0,100}"){0,100}\)')
"""A short inner list without parentheses or escapes in its strings."""


class _Reader:
    """Parses a text from the position `at`, which it advances."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if not match:
            raise Malformed(f"structured field: {what} expected at character {self.at + 1}")
        self.at = match.end()
        return match

    def skip(self, char: str) -> bool:
        found = self.text.startswith(char, self.at)
        self.at += found
        return found

    def done(self) -> bool:
        return self.at == len(self.text)

    def value(self) -> Value:
        head = self.text[self.at : self.at + 1]
        if head == '"':
            return _ESCAPED.sub(r"\1", self.take(_STRING, "string").group(1))
        if head == ":":
            return _from_base64(self.take(_BYTES, "byte sequence").group(1))
        if head == "?":
            return self.take(_BOOLEAN, "boolean").group(1) == "1"
        if head == "-" or head.isdigit():
            number = self.take(_NUMBER, "number").group()
            return Decimal(number) if "." in number else int(number)
        return Token(self.take(_TOKEN, "value").group())

    def params(self) -> Params:
        found: Params = {}
        while plain := _PLAIN_PARAM.match(self.text, self.at):
            name, number, text = plain.groups()
            found[name] = int(number) if text is None else text
            self.at = plain.end()
        while self.skip(";"):
            self.take(_SPACES, "space")
            name = self.take(_KEY, "parameter name").group()
            found[name] = self.value() if self.skip("=") else True
        return found

    def member(self) -> Member:
        if not self.text.startswith("(", self.at):
            return Item(self.value(), self.params())
        plain = _PLAIN_LIST.match(self.text, self.at)
        if plain is None:
            return InnerList(self.items(), self.params())
        items = _read_items(plain.group())
        self.at = plain.end()
        return InnerList(items, self.params())

    def items(self) -> tuple[Item, ...]:
        self.skip("(")
        items: list[Item] = []
        while True:
            self.take(_SPACES, "space")
            if self.skip(")"):
                return tuple(items)
            items.append(Item(self.value(), self.params()))
            if not self.text.startswith((" ", ")"), self.at):
                raise Malformed(f"structured field: space or ) expected at character {self.at + 1}")


# Every request has the same list of covered components. The cache is bounded, because any client can fill it.
@lru_cache(maxsize=64)
def _read_items(text: str) -> tuple[Item, ...]:
    return _Reader(text).items()


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise Malformed("structured field: a byte sequence is not base64") from None


def parse_dictionary(text: str) -> dict[str, Member]:
    """Parse a dictionary: its members by name, in order. Raises Malformed."""
    reader = _Reader(text.strip(" "))
    found: dict[str, Member] = {}
    while not reader.done():
        name = reader.take(_KEY, "member name").group()
        found[name] = reader.member() if reader.skip("=") else Item(True, reader.params())
        if reader.done():
            break
        reader.take(_COMMA, "comma")
        if reader.done():
            raise Malformed("structured field: a member is missing after the last comma")
    return found


def write_value(value: Value) -> str:
    """Format one bare value. Raises Malformed for a string with other characters than printable ASCII."""
    if type(value) is str and _SIMPLE.fullmatch(value):  # most strings need no escapes
        return f'"{value}"'
    if isinstance(value, bool):
        return f"?{value:d}"
    if isinstance(value, int | Decimal | Token):
        return str(value)
    if isinstance(value, bytes):
        return f":{b64encode(value).decode()}:"
    text = '"' + value.replace("\\", r"\\").replace('"', r"\"") + '"'
    if not _STRING.fullmatch(text):
        raise Malformed("structured field: a string holds a character that is not printable ASCII")
    return text


def write_params(params: Mapping[str, Value]) -> str:
    """Format parameters with their leading semicolons."""
    return "".join([f";{name}" if value is True else f";{name}={write_value(value)}" for name, value in params.items()])


def write_member(member: Member) -> str:
    """Format an item, or an inner list, with parameters."""
    if isinstance(member, Item):
        return write_value(member.value) + write_params(member.params)
    return f"({' '.join(map(write_member, member.items))}){write_params(member.params)}"


def write_dictionary(members: Mapping[str, Value]) -> str:
    """Format a dictionary of bare values."""
    return ", ".join([name if value is True else f"{name}={write_value(value)}" for name, value in members.items()])
