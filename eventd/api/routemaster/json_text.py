"""Decodes the JSON of a request and keeps numbers as they are written, so that the numbers of an event are not
changed."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import msgspec

from eventd.log.core.records import encoded

_LONGEST_FLOAT: Final = 32
"""Maximum length of a fraction's text. A longer text is replaced by the shortest one for the same double."""
_INTEGERS: Final = range(-(2**63), 2**64)


class JsonInteger(str):
    """An integer as it is written."""

    __slots__ = ()

    def read(self) -> int:
        """Return the number. Raises ValueError for one that 64 bits do not hold."""
        number = int(self) if len(self) <= len(str(_INTEGERS.start)) else _INTEGERS.stop
        if number not in _INTEGERS:
            raise ValueError("an integer of more than 64 bits")
        return number


class JsonFloat(str):
    """A number with a fraction or an exponent, as it is written."""

    __slots__ = ()

    def read(self) -> float:
        """Return the number. Raises ValueError for one beyond every double."""
        number = float(self)
        if not math.isfinite(number):
            raise ValueError("a number beyond every double")
        return number


JsonNumber = JsonInteger | JsonFloat


def read_json(text: bytes | bytearray) -> Any:
    """Return the value of a JSON text in UTF-8, with its numbers as `JsonNumber`. Raises ValueError."""
    try:
        return json.loads(text.decode(), parse_int=JsonInteger, parse_float=JsonFloat, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def write_number(number: JsonNumber) -> str:
    """Return the text of a number. Raises ValueError for one that no reader could hold."""
    value = number.read()
    return str(number) if len(number) <= _LONGEST_FLOAT else repr(value)


def write_object(value: dict[str, Any], most: int) -> str:
    """Return an object as one compact JSON text. Raises ValueError if it has more than `most` bytes as MessagePack.

    Of a name that occurs twice, the last value counts.
    """
    try:
        size = len(msgspec.msgpack.encode(_as_values(value)))
        if size > most:
            raise ValueError(f"it has {size} bytes as MessagePack, more than {most}")
        return _write(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _as_values(value: Any) -> Any:
    match value:
        case JsonInteger() | JsonFloat():
            return value.read()
        case dict():
            return {name: _as_values(each) for name, each in value.items()}
        case list():
            return [_as_values(each) for each in value]
        case _:
            return value


def _write(value: Any) -> str:
    match value:
        case JsonInteger() | JsonFloat():
            return write_number(value)
        case dict():
            return "{" + ",".join(f"{encoded(name)}:{_write(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_write, value)) + "]"
        case str():
            return encoded(value)
        case _:
            return json.dumps(value)
