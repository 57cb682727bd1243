"""Reads rows of any ledger."""

from __future__ import annotations

from typing import Final

from eventd.lake.extract.batches import Selections, read_batches
from eventd.lake.extract.block_columns import Memory
from eventd.lake.extract.deliveries import spread
from eventd.lake.extract.events import read_events
from eventd.lake.extract.history import read_history
from eventd.lake.extract.listed import LISTS, as_columns, read_list, receipts
from eventd.lake.extract.result import EvictedRows, Extract
from eventd.lake.extract.scope import Scope, read_scope
from eventd.lake.schema import Ledger
from eventd.log.cursors.trimmed import read_forgotten
from eventd.store.engine.database import Connection

MOST_LISTED: Final = 5000
"""Maximum number of rows that one extract reads from a plain table: each may hold a receipt."""


def read_ledger(
    conn: Connection,
    book: Ledger,
    after: int,
    *,
    rows: int,
    payloads: bool = False,
    node: str | None = None,
    memory: Memory | None = None,
) -> Extract:
    """Read at most about `rows` rows of a ledger after the number `after`; all rows of a batch are in one extract.

    `payloads` includes the payloads of events. `node` limits the rows to groups in which this node has that name; None
    reads all. `memory` caches blocks between the extracts of one reader.
    """
    places = read_scope(conn, node)
    memory = memory or Memory()
    if book is Ledger.EVENTS:
        return read_events(conn, places, after, rows=rows, payloads=payloads, memory=memory)
    if book is Ledger.HISTORY:
        return read_history(conn, places, after)
    if book in LISTS:
        columns, upto, full = read_list(conn, book, places, after, min(rows, MOST_LISTED))
        return _with_losses(conn, places, Extract(book, after, upto, columns, full))
    return _with_losses(conn, places, _read_batches(conn, book, places, after, rows, memory))


def _read_batches(conn: Connection, book: Ledger, places: Scope, after: int, rows: int, memory: Memory) -> Extract:
    page = read_batches(conn, after, rows=rows, expanded=book is Ledger.DELIVERIES)
    batches = [batch for batch in page.batches if batch.cursor in places.peers]
    selections = Selections(conn)
    if book is Ledger.RECEIPTS:
        columns = as_columns(book, receipts(batches, places, selections))
        return Extract(book, after, page.upto, columns, page.full)
    done = spread(conn, batches, places, selections, memory)
    return Extract(book, after, page.upto, done.columns, page.full, done.lost)


def table_of(book: Ledger) -> str:
    """Return the table whose ids are the row numbers of a ledger, unless these are positions."""
    return LISTS[book][0] if book in LISTS else "batches"


def _with_losses(conn: Connection, places: Scope, read: Extract) -> Extract:
    """Return the extract; if rows were deleted before they were read, add a range for each group to its `lost`.

    Rows are deleted by age, or with their peer. The range ends with the last deleted row of any group; some of its
    rows may exist.

    If no rows come after the deleted ones, `upto` becomes the number of the last deleted one.
    """
    forgotten = read_forgotten(conn, table_of(read.book))
    upto = read.upto if read.full else max(read.upto, forgotten)
    edge = min(forgotten, upto)
    if edge <= read.after:
        return Extract(read.book, read.after, upto, read.columns, read.full, read.lost)
    lost = [
        EvictedRows(place.group, "", places.epoch, read.after, edge, 0, f"{read.book}_forgotten")
        for place in places.topics.values()
    ]
    return Extract(read.book, read.after, upto, read.columns, read.full, [*lost, *read.lost])
