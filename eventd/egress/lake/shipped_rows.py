"""The rows of one segment: read from a ledger in extracts, up to the bounds of a segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from eventd.egress.lake.protocol import Terms
from eventd.egress.lake.rows import to_table
from eventd.lake.extract import Extract, Memory, read_ledger
from eventd.lake.manifest import LostRows
from eventd.lake.schema import Ledger
from eventd.log.core.head import read_head
from eventd.store.engine.database import Connection, Database

if TYPE_CHECKING:
    import pyarrow as pa

EXTRACT_ROWS: Final = 20_000
"""Rows of one extract: a long read keeps SQLite from truncating its write-ahead log."""
PAYLOAD_ROWS: Final = 1_000
"""Rows of one extract with payloads."""
SEGMENT_BYTES: Final = 64 << 20
"""Bytes of rows in memory after which a segment is complete."""
MOST_LOST: Final = 1_000
"""Ranges of lost rows after which a segment is complete: its manifest and its message list them, one for each batch
whose events are evicted. The extract that exceeds it is still a part of the segment."""


class ShippedRows:
    """Reads the rows of one segment, and yields them as tables.

    `upto`: how far the ledger was read; `lost`: rows that were deleted before they were read.
    """

    def __init__(
        self, database: Database, terms: Terms, memory: Memory, epoch: str, node: str, book: Ledger, position: int
    ) -> None:
        self._database = database
        self._terms = terms
        self._memory = memory
        self._epoch, self._node, self._book = epoch, node, book
        self._left = terms.rows
        self._most = PAYLOAD_ROWS if terms.payloads else EXTRACT_ROWS
        self._size = 0
        self._ended = False
        self.upto = position
        self.lost: list[LostRows] = []

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        while not self._ended:
            extract = self._database.read_now(self._read)
            if extract is None:  # a new history: the following rows do not belong to this segment
                break
            self.upto = extract.upto
            self.lost += [LostRows(*lost) for lost in extract.lost]
            self._left -= extract.rows
            self._ended = not extract.full or self._left <= 0 or len(self.lost) >= MOST_LOST
            if extract.rows:
                table = to_table(extract)
                self._size += table.nbytes
                self._ended = self._ended or self._size >= SEGMENT_BYTES
                return table
        self._ended = True
        raise StopIteration

    def _read(self, conn: Connection) -> Extract | None:
        if read_head(conn).epoch != self._epoch:
            return None
        return read_ledger(
            conn,
            self._book,
            self.upto,
            rows=min(self._most, self._left),
            payloads=self._terms.payloads,
            node=self._node,
            memory=self._memory,
        )
