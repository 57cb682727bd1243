"""The work of one Spark task in stage 1: read some segments, write their cells to one file, and tell what they were.

Nothing here knows Spark. A segment that cannot be trusted is told as such; its rows count nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eventd.audit.engine.cells import DELIVERY_COLUMNS, Skew, cell_schema, event_columns, sum_deliveries, sum_events
from eventd.audit.engine.columns import NEVER, Columns
from eventd.audit.engine.links import Link
from eventd.audit.engine.small_ledgers import Facts, columns_of, read_facts, sum_batches
from eventd.errors import Invalid
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.layout import parse_name
from eventd.lake.manifest import Manifest
from eventd.lake.reader import BadSegment, open_segment, read_segment
from eventd.lake.schema import Book
from eventd.lake.storage import Storage, Written, connect
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

SMALL: frozenset[Book] = frozenset({Book.RECEIPTS, Book.INBOUND, Book.GAPS, Book.REFUSALS})
"""Books that are read first: they say how the others are to be read."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One segment, and what has to be known to read it: see `sum_events`, `sum_deliveries`, `read_facts`."""

    name: str
    manifest: Manifest
    links: tuple[Link, ...] = ()
    skews: dict[str, Skew] = {}
    since: int = NEVER
    limit: int = 0

    @property
    def segment(self) -> Segment:
        """The segment. Raises Invalid for a name that is none."""
        place = parse_name(self.name)
        if place is None:
            raise Invalid(f"{self.name} is no name of a segment")
        return Segment(place, self.manifest)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Segments of the lake whose cells go into one file of the state."""

    lake: str
    out: str
    file: str
    jobs: tuple[Job, ...]


class Outcome(msgspec.Struct, kw_only=True):
    """What a task did: the rows of each segment it read, why others could not be, and the facts of the small books.

    `written`: the file with cells, as it was written.
    """

    file: str
    written: Written = Written(0, "")
    rows: dict[str, int] = {}
    troubles: dict[str, str] = {}
    facts: dict[str, Facts] = {}


def carry_out(task: Task) -> Outcome:
    """Do the work. Raises LakeUnavailable where the lake or the state cannot be reached."""
    lake, outcome = connect(task.lake), Outcome(file=task.file)
    with (
        connect(task.out).create(task.file) as draft,
        parquet().ParquetWriter(draft, cell_schema(), compression="zstd", compression_level=1) as writer,
    ):
        for job in task.jobs:
            try:
                table = _cells(lake, job, outcome)
            except (BadSegment, pyarrow().ArrowException) as error:
                outcome.troubles[job.name] = str(error)
                continue
            if table.num_rows:
                writer.write_table(table)
            outcome.rows[job.name] = job.manifest.rows
    outcome.written = draft.written
    return outcome


def recheck(task: Task) -> list[str]:
    """The names of the task's segments whose files are not what their manifests say. Raises LakeUnavailable."""
    lake, changed = connect(task.lake), []
    for job in task.jobs:
        try:
            open_segment(lake, job.segment)
        except (BadSegment, pyarrow().ArrowException):
            changed.append(job.name)
    return changed


def _cells(lake: Storage, job: Job, outcome: Outcome) -> pa.Table:
    segment = job.segment
    book = segment.place.book
    if book is Book.EVENTS:
        return sum_events(job.name, _read(lake, segment, event_columns(job.links)), job.links, job.since)
    if book is Book.DELIVERIES:
        return sum_deliveries(job.name, _read(lake, segment, DELIVERY_COLUMNS), job.skews, job.since)
    table = _read(lake, segment, columns_of(book))
    outcome.facts[job.name] = read_facts(book, table, limit=job.limit)
    if book in (Book.RECEIPTS, Book.INBOUND):
        return sum_batches(job.name, book, table)
    return cell_schema().empty_table()


def _read(lake: Storage, segment: Segment, columns: tuple[str, ...]) -> Columns:
    return Columns(read_segment(lake, segment, [*dict.fromkeys(("node", "epoch", *columns))]))
