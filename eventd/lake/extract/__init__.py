"""Ledger rows of a database as columns, for the lake and for Spark.

Rows are only ever added at the end of a ledger. Each has a `number` (all deliveries of a batch have the same one), and
numbers rise in the order of commits: a reader that has read up to a number has seen every row at or below it. Rows that
retention removed before they were read are reported.

May import: lake, log.core, log.cursors, log.delivery, log.history, log.witnesses, store.engine, store.rows.
"""

from __future__ import annotations

from eventd.lake.extract.block_columns import Memory
from eventd.lake.extract.ledgers import read_ledger
from eventd.lake.extract.lost_rows import note_lost
from eventd.lake.extract.result import EvictedRows, Extract
from eventd.lake.extract.state import (
    GroupSnapshot,
    LedgerSnapshot,
    LinkSnapshot,
    SelectionPeriod,
    Span,
    read_floors,
    read_state,
)
from eventd.lake.schema import Ledger

__all__ = [
    "EvictedRows",
    "Extract",
    "GroupSnapshot",
    "Ledger",
    "LedgerSnapshot",
    "LinkSnapshot",
    "Memory",
    "SelectionPeriod",
    "Span",
    "note_lost",
    "read_floors",
    "read_ledger",
    "read_state",
]
