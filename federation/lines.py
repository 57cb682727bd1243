"""A line of a batch: `position TAB path TAB event`, ended by a line feed; and event bodies as one text.

Neither a canonical event nor a path contains a line feed or a tab.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload


def encode_lines(records: Iterable[tuple[int, str, str]]) -> str:
    """Return one line for each (position, path, body), in the given order; batches need ascending positions."""
    return "".join([f"{position}\t{path}\t{body}\n" for position, path, body in records])


def split_line(line: str) -> list[str]:
    """Split a line (no line feed) at its first two tabs into position, path and body; fewer tabs give fewer parts."""
    return line.split("\t", 2)


def size_of(body: str) -> int:
    """Return the number of bytes of a body in UTF-8."""
    return len(body) if body.isascii() else len(body.encode())


class BodyRun(NamedTuple):
    """`records` bodies as one text, each ended by a line feed."""

    text: str
    records: int


class Bodies(Sequence[str]):
    """The bodies of some events: kept as joined texts, which are split when the first single body is needed."""

    __slots__ = ("_apart", "_count", "pieces")

    def __init__(self, pieces: Sequence[BodyRun] = ()) -> None:
        self.pieces = pieces
        self._count = sum([piece.records for piece in pieces])
        self._apart: list[str] | None = None

    @classmethod
    def joined(cls, parts: Iterable[Bodies]) -> Bodies:
        """Return the bodies of all parts, in order, without copying a text."""
        return cls([piece for part in parts for piece in part.pieces])

    @property
    def bytes(self) -> int:
        """The number of bytes of all bodies, without line feeds."""
        return sum([size_of(piece.text) for piece in self.pieces]) - self._count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._cut())

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._cut()[index]

    def _cut(self) -> list[str]:
        if self._apart is None:
            self._apart = [body for piece in self.pieces for body in piece.text.split("\n")[:-1]]
        return self._apart
