"""Reads the statistics in the footer of a Parquet file, which may be damaged in any way.

The footer of a file that is not read otherwise has no digest to compare. Arrow ends the process where it meets some
damaged ones while it returns statistics, so that they are decoded here: a footer is a struct of Thrift's compact
protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Struct = dict[int, Any]
"""The fields of a decoded struct, by id."""

_DEEPEST: Final = 32
"""Maximum depth of structs in each other; a footer needs 8."""
_INT64: Final = 2
"""The physical type of a column of times."""


def decode_footer(data: bytes) -> Struct:
    """Return the footer at the end of a file, without the length and the mark behind it. Raises ValueError."""
    length = int.from_bytes(data[-8:-4], "little")
    try:
        return _Decoder(data[max(0, len(data) - 8 - length) : -8]).struct(0)
    except (IndexError, KeyError) as error:
        raise ValueError(f"its footer is damaged: {error}") from None


def time_bounds(footer: Struct, name: str) -> tuple[int, int] | None:
    """Return the first and last time in a column (microseconds); None if the footer does not say.

    Raises ValueError for a footer that is not one of Parquet.
    """
    try:
        groups = footer[4]
        columns = [each[3] for group in groups for each in group[1] if each[3][3] == [name.encode()]]
        bounds = [_bounds_of(column) for column in columns]
    except (KeyError, TypeError, IndexError, AttributeError):
        raise ValueError("its footer is damaged: it lacks a field") from None
    known = [one for one in bounds if one is not None]
    if not known or len(known) < len(bounds) or len(bounds) != len(groups):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _bounds_of(column: Struct) -> tuple[int, int] | None:
    found = column.get(12, {})
    low, high = found.get(6), found.get(5)
    if column[1] != _INT64 or not (isinstance(low, bytes) and isinstance(high, bytes) and len(low) == len(high) == 8):
        return None
    return int.from_bytes(low, "little", signed=True), int.from_bytes(high, "little", signed=True)


class _Decoder:
    """Decodes values one after the other. Raises IndexError at the end of the data, and ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int) -> Struct:
        """Return the fields of a struct."""
        if depth > _DEEPEST:
            raise ValueError("its footer is damaged: it is nested too deeply")
        fields: Struct = {}
        name = 0
        while head := self._byte():
            name = name + (head >> 4) if head >> 4 else self._signed()
            fields[name] = (head & 15) == 1 if head & 15 in (1, 2) else self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (9, 10):
            return self._list(depth + 1)
        if kind == 11:
            raise ValueError("its footer is damaged: it has a map")
        return self._plain[kind]()

    @property
    def _plain(self) -> dict[int, Callable[[], Any]]:
        number = self._signed
        texts = {7: lambda: self._bytes(8), 8: lambda: self._bytes(self._number())}
        return {1: self._byte, 2: self._byte, 3: self._byte, 4: number, 5: number, 6: number, **texts}

    def _list(self, depth: int) -> list[Any]:
        if depth > _DEEPEST:
            raise ValueError("its footer is damaged: it is nested too deeply")
        head = self._byte()
        size = head >> 4 if head >> 4 < 15 else self._number()
        return [self._value(head & 15, depth) for _ in range(size)]  # each takes a byte of the data at least

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._data):
            raise IndexError("it ends early")
        return self._data[self._at - size : self._at]

    def _number(self) -> int:
        found = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise ValueError("its footer is damaged: it has too large a number")

    def _signed(self) -> int:
        found = self._number()
        return (found >> 1) ^ -(found & 1)
