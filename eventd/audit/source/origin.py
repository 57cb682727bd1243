"""Origins of rows: the ledgers of an origin, their extents and losses, and the partitions that tasks read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyspark.sql.datasource import InputPartition

from eventd.audit.source.options import SourceOptions
from eventd.errors import EventdError
from eventd.lake.layout import LedgerKey
from eventd.lake.schema import Ledger

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_OF_A_BATCH: Final = 256


class RowsGone(EventdError):
    """Requested rows are missing or corrupt, or the state of a node in a lake cannot be read."""

    code = "rows_gone"


class UnreadableRows(NamedTuple):
    """Rows with numbers in (after, upto] that cannot be read, and the reason; `upto` is None if unknown."""

    ledger: LedgerKey
    after: int
    upto: int | None
    reason: str


class LedgerExtent(NamedTuple):
    """The readable range of a ledger: numbers in (after, upto]."""

    ledger: LedgerKey
    after: int
    upto: int


class Snapshot(NamedTuple):
    """The extents and losses of an origin at one moment."""

    extents: Sequence[LedgerExtent]
    losses: Sequence[UnreadableRows]


class LedgerPartition(InputPartition):
    """The rows that one task reads: numbers in (after, upto] of `ledger`, from one place of the options.

    Only the origin interprets `hint`. `resumed`: the stream has read rows of the ledger before, so rows that
    retention evicted are a loss. A new stream loses nothing by earlier evictions.
    """

    resumed = False

    def __init__(self, ledger: LedgerKey, after: int, upto: int, place: str, hint: Any = None) -> None:
        self.ledger = ledger
        self.after = after
        self.upto = upto
        self.place = place
        self.hint = hint


class LedgerSource(Protocol):
    """The interface of an origin of rows: lakes, running nodes or databases.

    `read` runs in tasks, `close` in tasks and on the driver, all other methods on the driver.
    """

    def snapshot(self) -> Snapshot:
        """Return the extent of each ledger that the options select and that has rows, and the known losses.

        `split` and `limit` refer to the latest snapshot.
        """
        ...

    def limit(self, ledger: LedgerKey, after: int, upto: int, rows: int) -> int:
        """Return the number in (after, upto] up to which there are about `rows` rows after `after`."""
        ...

    def split(self, ledger: LedgerKey, after: int, upto: int) -> list[LedgerPartition]:
        """Return the partitions of (after, upto], of about `rows_per_partition` rows each."""
        ...

    def read(self, partition: LedgerPartition, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows of a partition; rows with numbers outside of the partition may be among them.

        Raises RowsGone.
        """
        ...

    def close(self) -> None:
        """Close all connections; a later call of another method opens them again."""
        ...


class NumberedOrigin:
    """The common part of origins that read ranges of numbers.

    It keeps the place of each ledger, and divides the numbers of a ledger into partitions.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._places: dict[LedgerKey, str] = {}

    def limit(self, ledger: LedgerKey, after: int, upto: int, rows: int) -> int:
        """Return the number up to which there are about `rows` rows after `after`, at most `upto`."""
        return min(upto, after + numbers_for(ledger.book, rows))

    def split(self, ledger: LedgerKey, after: int, upto: int) -> list[LedgerPartition]:
        """Return the partitions of (after, upto], of about `rows_per_partition` rows each."""
        step = numbers_for(ledger.book, self._options.rows_per_partition)
        place = self._places[ledger]
        return [LedgerPartition(ledger, at, min(at + step, upto), place) for at in range(after, upto, step)]


def numbers_for(book: Ledger, rows: int) -> int:
    """Estimate how many numbers hold `rows` rows: a number of the deliveries ledger is a whole batch."""
    return max(1, rows // _ROWS_OF_A_BATCH) if book is Ledger.DELIVERIES else rows


def rows_gone(losses: Sequence[UnreadableRows]) -> RowsGone:
    """Return the error for one or more losses; it names the first."""
    first = losses[0]
    more = f"; unreadable ranges in all: {len(losses)}" if len(losses) > 1 else ""
    ledger = first.ledger
    span = f"after {first.after}" if first.upto is None else f"{first.after + 1} to {first.upto}"
    return RowsGone(
        f"rows with numbers {span} in the {ledger.book.value} ledger of {ledger.node} (epoch {ledger.epoch}) "
        f"cannot be read: {first.reason}{more}",
        hint="onGap=skip skips rows that cannot be read",
    )
