"""Reads the statistics in the footer of a Parquet file, which may be damaged in any way.

If only the footer of a file is read, there is no digest to compare it with. Some damaged footers make Arrow end the
process when it returns statistics, so footers are decoded here: a footer is a struct of Thrift's compact protocol.
"""

from __future__ import annotations

from typing import Final

from eventd.lake.thrift import Struct, StructDecoder

_INT64: Final = 2
"""The physical type of a column of times."""


def decode_footer(data: bytes) -> Struct:
    """Return the footer at the end of a file, without the length and the mark behind it. Raises ValueError."""
    length = int.from_bytes(data[-8:-4], "little")
    try:
        return StructDecoder(data[max(0, len(data) - 8 - length) : -8]).struct()
    except (IndexError, ValueError) as error:
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
