"""What every origin of rows can do, and the words for it: line, reach, loss and piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyspark.sql.datasource import InputPartition

from eventd.audit.source.options import Options
from eventd.errors import EventdError
from eventd.lake.schema import Book

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_OF_A_BATCH: Final = 256


class RowsGone(EventdError):
    """Rows that were asked for are gone, or cannot be trusted."""

    code = "rows_gone"


class Line(NamedTuple):
    """One book of one node in one of its histories: what numbers are counted in."""

    node: str
    epoch: str
    book: Book

    @property
    def key(self) -> str:
        """As offsets and checkpoints name it."""
        return f"{self.node}/{self.epoch}/{self.book.value}"


class Loss(NamedTuple):
    """Rows with numbers in (after, upto] that cannot be read, and why; without `upto` it is not known how many."""

    line: Line
    after: int
    upto: int | None
    reason: str


class Reach(NamedTuple):
    """What can be read of a line now: numbers in (after, upto]."""

    line: Line
    after: int
    upto: int


class Look(NamedTuple):
    """An origin at one moment."""

    reaches: Sequence[Reach]
    losses: Sequence[Loss]


class Piece(InputPartition):
    """What one task reads: the rows of `line` with numbers in (after, upto]. `hint` is the origin's own.

    `goes_on`: the reader has read all up to `after`, so whatever is gone since then it has missed. Who comes for the
    first time has missed nothing by what was gone before.
    """

    goes_on = False

    def __init__(self, line: Line, after: int, upto: int, place: str, hint: Any = None) -> None:
        self.line = line
        self.after = after
        self.upto = upto
        self.place = place
        self.hint = hint


class Origin(Protocol):
    """Somewhere rows can be read from. It is asked on the driver, but for `read`, which runs wherever a task does."""

    def look(self) -> Look:
        """How far each line reaches. What `split` and `limit` say is of this moment."""
        ...

    def limit(self, line: Line, after: int, upto: int, rows: int) -> int:
        """The number in (after, upto] up to which there are about so many rows, and at least one number."""
        ...

    def split(self, line: Line, after: int, upto: int) -> list[Piece]:
        """What is to be read for (after, upto], in pieces of about `rows_per_partition` rows."""
        ...

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows of a piece; there may be others beside them. Raises RowsGone."""
        ...

    def close(self) -> None:
        """Let go of what was opened."""
        ...


class Numbered:
    """Origins that give the rows of a range of numbers: which line is at which place, and how its numbers are cut."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._places: dict[Line, str] = {}

    def limit(self, line: Line, after: int, upto: int, rows: int) -> int:
        """As `Origin` says."""
        return min(upto, after + numbers_for(line.book, rows))

    def split(self, line: Line, after: int, upto: int) -> list[Piece]:
        """As `Origin` says."""
        step = numbers_for(line.book, self._options.rows_per_partition)
        place = self._places[line]
        return [Piece(line, at, min(at + step, upto), place) for at in range(after, upto, step)]


def numbers_for(book: Book, rows: int) -> int:
    """How many numbers hold about so many rows, by a guess: a number of deliveries is a whole batch."""
    return max(1, rows // _ROWS_OF_A_BATCH) if book is Book.DELIVERIES else rows


def gone(losses: Sequence[Loss]) -> RowsGone:
    """The error for losses, of which there is at least one."""
    first = losses[0]
    more = f", and {len(losses) - 1} more" if len(losses) > 1 else ""
    line = first.line
    span = f"from {first.after + 1} on" if first.upto is None else f"{first.after + 1} to {first.upto}"
    return RowsGone(
        f"{line.book.value} {span} of the node {line.node} (epoch {line.epoch}) cannot be read: {first.reason}{more}",
        hint="onGap=skip leaves out what cannot be read",
    )
