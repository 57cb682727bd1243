"""The work of one Spark task in stage 1: read some segments, and write their cells to one file.

Nothing here depends on Spark. A corrupt segment is reported as such; its rows count nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eventd.audit.engine.cells import (
    DELIVERY_COLUMNS,
    HourlySkew,
    cell_schema,
    event_columns,
    sum_deliveries,
    sum_events,
)
from eventd.audit.engine.columns import NEVER, Columns
from eventd.audit.engine.ledger_summaries import LedgerSummary, columns_of, sum_batches, summarize
from eventd.audit.engine.link_rows import LinkRow
from eventd.errors import Invalid
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.layout import parse_name
from eventd.lake.manifest import Manifest
from eventd.lake.reader import BadSegment, open_segment, read_segment
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, Written, connect
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

SMALL: frozenset[Ledger] = frozenset({Ledger.RECEIPTS, Ledger.INBOUND, Ledger.GAPS, Ledger.REFUSALS})
"""Ledgers that are read first, because the plan for the others depends on them."""


class SegmentJob(msgspec.Struct, frozen=True, kw_only=True):
    """One segment, and the parameters to read it: see `sum_events`, `sum_deliveries`, `summarize`."""

    name: str
    manifest: Manifest
    links: tuple[LinkRow, ...] = ()
    skews: dict[str, HourlySkew] = {}
    since: int = NEVER
    limit: int = 0

    @property
    def segment(self) -> Segment:
        """Return the segment. Raises Invalid for a name that is not a segment's."""
        place = parse_name(self.name)
        if place is None:
            raise Invalid(f"{self.name} is not the name of a segment")
        return Segment(place, self.manifest)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Segments of the lake whose cells go into one file of the state; `file` is empty if they are only rechecked."""

    lake: str
    out: str
    file: str
    jobs: tuple[SegmentJob, ...]


class TaskResult(msgspec.Struct, kw_only=True):
    """The result of a task, by name of the segment: number of rows, errors of corrupt ones, summaries of small ledgers.

    `written`: size and digest of the file of cells.
    """

    file: str
    written: Written = Written(0, "")
    rows: dict[str, int] = {}
    errors: dict[str, str] = {}
    summaries: dict[str, LedgerSummary] = {}


def run_task(task: Task) -> TaskResult:
    """Read the segments of a task, write their cells to its file, and return the result.

    Raises LakeUnavailable if the lake or the state cannot be reached.
    """
    lake, result = connect(task.lake), TaskResult(file=task.file)
    with (
        connect(task.out).create(task.file) as draft,
        parquet().ParquetWriter(draft, cell_schema(), compression="zstd", compression_level=1) as writer,
    ):
        for job in task.jobs:
            try:
                table = _cells(lake, job, result)
            except (BadSegment, pyarrow().ArrowException) as error:
                result.errors[job.name] = str(error)
                continue
            if table.num_rows:
                writer.write_table(table)
            result.rows[job.name] = job.manifest.rows
    result.written = draft.written
    return result


def recheck_task(task: Task) -> list[str]:
    """Return the names of the task's segments that do not match their manifests. Raises LakeUnavailable."""
    lake, changed = connect(task.lake), []
    for job in task.jobs:
        try:
            open_segment(lake, job.segment)
        except (BadSegment, pyarrow().ArrowException):
            changed.append(job.name)
    return changed


def _cells(lake: Storage, job: SegmentJob, result: TaskResult) -> pa.Table:
    segment = job.segment
    book = segment.place.book
    if book is Ledger.EVENTS:
        return sum_events(job.name, _read(lake, segment, event_columns(job.links)), job.links, job.since)
    if book is Ledger.DELIVERIES:
        return sum_deliveries(job.name, _read(lake, segment, DELIVERY_COLUMNS), job.skews, job.since)
    table = _read(lake, segment, columns_of(book))
    result.summaries[job.name] = summarize(book, table, limit=job.limit)
    if book in (Ledger.RECEIPTS, Ledger.INBOUND):
        return sum_batches(job.name, book, table)
    return cell_schema().empty_table()


def _read(lake: Storage, segment: Segment, columns: tuple[str, ...]) -> Columns:
    return Columns(read_segment(lake, segment, [*dict.fromkeys(("node", "epoch", *columns))]))
