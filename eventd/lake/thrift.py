"""Decodes structs of Thrift's compact protocol, as Parquet files have them, which may be damaged in any way.

Arrow decodes the same bytes, and a struct that the two understand differently would escape the checks of readers. So a
struct is refused if it is ambiguous: if it has a field twice, or an id or a number with more bits than its type.
"""

from __future__ import annotations

from typing import Any, Final

INT32: Final = 5
INT64: Final = 6
"""Types of fields, by their numbers in the Thrift protocol."""

_BOOLEANS: Final = (1, 2)
_SINGLE_BYTES: Final = (1, 2, 3)
_NUMBERS: Final = (4, INT32, INT64)
_DOUBLE: Final = 7
_BYTES: Final = 8
_LISTS: Final = (9, 10)
_STRUCT: Final = 12
_DEEPEST: Final = 32
"""Maximum depth of nested structs; a footer needs 8."""
_LARGEST_ID: Final = (1 << 15) - 1


class Struct(dict[int, Any]):
    """The fields of a decoded struct by id; `types` has their types."""

    __slots__ = ("types",)

    def __init__(self) -> None:
        self.types: dict[int, int] = {}


class StructDecoder:
    """Decodes values one after the other from `at`. Raises ValueError, and IndexError at the end of the data.

    An audit decodes a thousand values of each segment, most of them a number of one byte: these are decoded in place.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at

    def struct(self, depth: int = 0) -> Struct:
        """Return the fields of a struct."""
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        fields = Struct()
        types, data, name = fields.types, self._data, 0
        while head := data[self.at]:
            self.at += 1
            kind = head & 15
            name = name + (head >> 4) if head >> 4 else self._signed()
            if not 0 < name <= _LARGEST_ID or name in fields:
                raise ValueError("it has a field twice, or one without a valid id")
            types[name] = kind
            if kind in _NUMBERS and (byte := data[self.at]) < 128:
                self.at += 1
                fields[name] = (byte >> 1) ^ -(byte & 1)
            else:
                fields[name] = kind == 1 if kind in _BOOLEANS else self._value(kind, depth)
        self.at += 1
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._signed()
        if kind == _BYTES:
            return self._bytes(self._number())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in _LISTS:
            return self._list(depth + 1)
        if kind in _SINGLE_BYTES:
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        raise ValueError("it has a map, or a field without a valid type")

    def _list(self, depth: int) -> list[Any]:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        head = self._byte()
        size = head >> 4 if head >> 4 < 15 else self._number()
        return [self._value(head & 15, depth) for _ in range(size)]  # each takes a byte of the data at least

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self._data):
            raise IndexError("it ends early")
        return self._data[self.at - size : self.at]

    def _number(self) -> int:
        data, at = self._data, self.at
        found = data[at] & 127
        if data[at] < 128:
            self.at += 1
            return found
        for shift in range(7, 64, 7):
            at += 1
            byte = data[at]
            found |= (byte & 127) << shift
            if byte < 128:
                if found >> 64:
                    break
                self.at = at + 1
                return found
        raise ValueError("it has too large a number")

    def _signed(self) -> int:
        found = self._number()
        return (found >> 1) ^ -(found & 1)
