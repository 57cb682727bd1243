"""Reads rows from the databases of nodes, running or stopped. A task reads a range of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eventd.audit.source.options import OnGap, SourceOptions
from eventd.audit.source.origin import (
    LedgerExtent,
    LedgerPartition,
    NumberedOrigin,
    Snapshot,
    UnreadableRows,
    rows_gone,
)
from eventd.audit.source.spark_columns import tabulate
from eventd.errors import Invalid, NotFound, SecretUnreadable
from eventd.lake.extract import Extract, Memory, read_ledger, read_state
from eventd.lake.layout import LedgerKey
from eventd.log.core.head import read_head
from eventd.store.engine.database import Connection, Database
from eventd.store.schema.migrations import require_current

if TYPE_CHECKING:
    import pyarrow as pa

PAGE_ROWS = 20_000
"""About how many rows are read in one transaction: a batch is never divided."""


class DatabaseOrigin(NumberedOrigin):
    """An origin of rows: the ledgers in the databases of one or many nodes."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._open: dict[str, Database] = {}

    def snapshot(self) -> Snapshot:
        extents = []
        self._places = {}
        for place in self._options.places:
            database = self._database(place)
            state = database.read_now(read_state)
            span = state.books[self._options.book]
            for node in state.nodes:
                ledger = LedgerKey(node, state.epoch, self._options.book)
                if not self._options.wants(node, state.epoch):
                    continue
                if ledger in self._places:
                    raise Invalid(
                        f"the node {node} is in two of the databases; {database.label()} is the second",
                        hint="give only one of them",
                    )
                self._places[ledger] = place
                extents.append(LedgerExtent(ledger, span.first - 1, span.last))
        return Snapshot([extent for extent in extents if extent.upto > extent.after], [])

    def read(self, partition: LedgerPartition, columns: Sequence[str]) -> Iterator[pa.Table]:
        database, memory, after = self._database(partition.place), Memory(), partition.after
        while after < partition.upto:
            page = database.read_now(_read_page, partition, after, memory, payloads=self._options.payloads)
            if page.epoch != partition.ledger.epoch:
                reason = f"the database has begun a new epoch, {page.epoch}"
                raise rows_gone([UnreadableRows(partition.ledger, after, partition.upto, reason)])
            if page.extract.lost and partition.resumed and self._options.on_gap is OnGap.FAIL:
                raise rows_gone(
                    [UnreadableRows(partition.ledger, after, page.extract.upto, "retention has evicted some of them")]
                )
            yield tabulate(partition.ledger.book, page.extract.columns, columns)
            if page.extract.upto <= after:
                return
            after = page.extract.upto

    def close(self) -> None:
        for database in self._open.values():
            database.close()
        self._open.clear()

    def _database(self, place: str) -> Database:
        if place not in self._open:
            database = Database(_address(place) if self._options.in_files else _as_url(place))
            self._open[place] = database
            if database.path is not None and not database.path.exists():
                raise NotFound(
                    f"there is no database at {database.path}",
                    hint="the path must exist on every machine that runs tasks",
                )
            require_current(database)
        return self._open[place]


class _Page(NamedTuple):
    epoch: str
    extract: Extract


def _read_page(conn: Connection, partition: LedgerPartition, after: int, memory: Memory, *, payloads: bool) -> _Page:
    ledger = partition.ledger
    extract = read_ledger(conn, ledger.book, after, rows=PAGE_ROWS, payloads=payloads, node=ledger.node, memory=memory)
    return _Page(read_head(conn).epoch, extract)


def _as_url(place: str) -> str:
    return place if "://" in place else f"sqlite:///{place}"


def _address(path: str) -> str:
    try:
        return _as_url(Path(path).read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        message = f"the option databaseFile names {path}, which cannot be read"
        raise SecretUnreadable(message, hint="put the file, readable, on every machine that runs tasks") from None
