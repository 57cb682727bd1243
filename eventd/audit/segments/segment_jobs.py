"""The work of one Spark task in stage 1: read some segments, and write their cells to one file.

A corrupt segment is reported as such; its rows count nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

import msgspec

from eventd.audit.arrays.columns import NEVER, Columns
from eventd.audit.arrays.counts import TooManyKeys
from eventd.audit.receipts.receipt_checks import check_receipts, texts_of
from eventd.audit.receipts.receipt_terms import CHECKED, ReceiptTerms
from eventd.audit.segments.batch_cells import sum_batches
from eventd.audit.segments.batch_counts import COUNT_COLUMNS, count_deliveries, count_receipts
from eventd.audit.segments.cells import cell_schema
from eventd.audit.segments.delivery_cells import DELIVERY_COLUMNS, sum_deliveries
from eventd.audit.segments.event_cells import EVENT_COLUMNS, sum_events
from eventd.audit.segments.event_digests import DIGEST_COLUMNS, DigestResult, check_digests
from eventd.audit.segments.hourly_skew import HourlySkew
from eventd.audit.segments.ledger_summaries import LedgerSummary, columns_of, summarize
from eventd.audit.segments.link_rows import LinkRow
from eventd.audit.segments.refused_counts import REFUSED_COLUMNS, count_refused_answers, count_refused_rows
from eventd.audit.segments.row_sums import RangeSum, range_sums, summed_columns
from eventd.audit.segments.seq_runs import RUN_COLUMNS, SeqRun, seq_runs
from eventd.audit.segments.spark_tasks import OpenFile
from eventd.audit.segments.taken_ids import TAKEN_COLUMNS, TakenId, find_taken_ids
from eventd.audit.segments.tree_leaves import LEAF_COLUMNS, LeafTerms, TreeLeaves, TreeMove, find_leaves
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.footers import false_ranges
from eventd.lake.manifest import Manifest
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment, open_segment, parsing
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import FileReader
from eventd.lake.stored_files import FileDraft, Written
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet_type

SMALL: frozenset[Ledger] = frozenset({*Ledger} - {Ledger.EVENTS, Ledger.DELIVERIES})
"""Ledgers that are read first, because the plan for the others depends on them."""
_AT_ONCE: Final = 500
"""Number of files whose ends are read at the same time."""
_ROW_GROUP: Final = 1 << 13
"""Cells of a row group at least, but for the last one of a file."""


class SegmentJob(msgspec.Struct, frozen=True, kw_only=True):
    """One segment, and the parameters to read it: see `sum_events`, `sum_deliveries`, `summarize`.

    `receipts`: the digest of the terms by which its receipts are checked, see `ReceiptTerms.digest`. `key`: that of the
    hashes of rows, see `row_hash`. `digests`: see `check_digests`. `ranges`: parts (after, upto] of the numbers of the
    segment whose rows are also summed by themselves, see `range_sums`. `trees`: the node has trees; then `moves`,
    `cuts` and the percentage `sample` are those of `LeafTerms`.
    """

    name: str
    manifest: Manifest
    links: tuple[LinkRow, ...] = ()
    skews: dict[str, HourlySkew] = {}
    since: int = NEVER
    limit: int = 0
    receipts: str = ""
    key: bytes = b""
    digests: float = 100.0
    ranges: tuple[tuple[int, int], ...] = ()
    trees: bool = False
    moves: tuple[TreeMove, ...] = ()
    cuts: tuple[tuple[str, int], ...] = ()
    sample: float = 100.0

    @property
    def segment(self) -> Segment:
        """Return the segment. Raises Invalid for a name that is not a segment's."""
        return Segment.named(self.name, self.manifest)


class TaskResult(msgspec.Struct, kw_only=True):
    """The result of a task, by name of the segment: number of rows, errors of corrupt ones, summaries of small ledgers.

    `file` has the cells; `written`: its size and digest; the caller of `CellMaker` sets both. `runs` and `digests`:
    those of segments of `events`, `leaves` those of nodes with trees; `taken`: those of segments of `deliveries`;
    `sums`: those of all rows of the segment, and then those of the job's `ranges`.
    """

    file: str = ""
    written: Written = Written(0, "")
    rows: dict[str, int] = {}
    errors: dict[str, str] = {}
    summaries: dict[str, LedgerSummary] = {}
    runs: dict[str, list[SeqRun]] = {}
    digests: dict[str, DigestResult] = {}
    sums: dict[str, list[RangeSum]] = {}
    leaves: dict[str, TreeLeaves] = {}
    taken: dict[str, list[TakenId]] = {}


class SegmentJobs:
    """The jobs of some segments, found by the path of the segment's file. It is small when pickled for a task."""

    def __init__(self, jobs: Iterable[SegmentJob]) -> None:
        self._jobs = {job.segment.place.data: msgspec.msgpack.encode(job) for job in jobs}

    def at(self, path: str) -> SegmentJob:
        """Return the job of the segment whose file has this path."""
        return msgspec.msgpack.decode(self._jobs[path], type=SegmentJob)


@dataclass(frozen=True)
class CellMaker:
    """Makes the cells of a task's segments. Called with the files of the segments, it writes their cells to a draft.

    Raises LakeUnavailable if the lake or the draft's storage cannot be reached.
    """

    jobs: SegmentJobs
    receipts: ReceiptTerms = field(default_factory=ReceiptTerms)

    def __call__(self, files: Iterator[OpenFile], draft: FileDraft) -> TaskResult:
        result = TaskResult()
        with parquet().ParquetWriter(draft, cell_schema(), compression="zstd", compression_level=1) as writer:
            group = _RowGroup(writer)
            for path, lake in files:
                job = self.jobs.at(path)
                try:
                    with parsing():
                        table = _cells(lake, job, self.receipts, result)
                except (BadSegment, TooManyKeys) as error:
                    result.errors[job.name] = str(error)
                    continue
                group.add(table)
                result.rows[job.name] = job.manifest.rows
            group.write()
        return result


class _RowGroup:
    """Collects the cells of small segments: to write and to read a row group takes as long as many cells."""

    def __init__(self, writer: parquet_type.ParquetWriter) -> None:
        self._writer = writer
        self._tables: list[pa.Table] = []
        self._rows = 0

    def add(self, cells: pa.Table) -> None:
        """Add the cells of a segment, and write all of them once they are enough."""
        self._tables.append(cells)
        self._rows += cells.num_rows
        if self._rows >= _ROW_GROUP:
            self.write()

    def write(self) -> None:
        """Write the cells that were added."""
        if self._rows:
            # One dictionary for each column: the writer keeps that of the first chunk only.
            self._writer.write_table(pyarrow().concat_tables(self._tables).unify_dictionaries())
        self._tables, self._rows = [], 0


@dataclass(frozen=True)
class DigestCheck:
    """Called with the files of segments, it returns the encoded names of those that do not match their manifests.

    Raises LakeUnavailable.
    """

    jobs: SegmentJobs

    def __call__(self, files: Iterator[OpenFile]) -> bytes:
        changed = []
        for path, lake in files:
            job = self.jobs.at(path)
            try:
                open_segment(lake, job.segment)
            except BadSegment:
                changed.append(job.name)
        return msgspec.msgpack.encode(changed)


@dataclass(frozen=True)
class RangeCheck:
    """Called with the files of segments, it returns, encoded, the faults of those whose manifests have other ranges.

    The faults are by name of the segment, see `false_ranges`. Raises LakeUnavailable.
    """

    jobs: SegmentJobs

    def __call__(self, files: Iterator[OpenFile]) -> bytes:
        faults: dict[str, str] = {}
        for lake, some in groupby(files, key=lambda file: file.storage):  # of a file in memory: one alone
            while few := [*islice(some, _AT_ONCE)]:
                faults |= false_ranges(lake, [self.jobs.at(path).segment for path, _ in few])
        return msgspec.msgpack.encode(faults)


def _cells(lake: FileReader, job: SegmentJob, terms: ReceiptTerms, result: TaskResult) -> pa.Table:
    segment = job.segment
    book = segment.place.book
    if book is Ledger.EVENTS:
        of_trees = LEAF_COLUMNS if job.trees else ()
        rows = _read(lake, segment, (*EVENT_COLUMNS, *RUN_COLUMNS, *DIGEST_COLUMNS, *of_trees))
        if job.trees:
            result.leaves[job.name] = find_leaves(rows, LeafTerms(job.moves, job.cuts, job.sample, job.key))
        result.sums[job.name] = _sums(job, rows)
        result.runs[job.name] = seq_runs(rows)
        result.digests[job.name] = check_digests(rows, job.digests)
        return sum_events(job.name, rows, job.links, job.since, job.key)
    if book is Ledger.DELIVERIES:
        rows = _read(lake, segment, (*DELIVERY_COLUMNS, *COUNT_COLUMNS, *REFUSED_COLUMNS, *TAKEN_COLUMNS))
        if taken := find_taken_ids(rows):
            result.taken[job.name] = taken
        result.sums[job.name] = _sums(job, rows)
        sums = sum_deliveries(job.name, rows, job.skews, job.since, job.key)
        counts = [count_deliveries(job.name, rows, job.key), count_refused_rows(job.name, rows)]
        return pyarrow().concat_tables([sums, *counts])
    table = _read(lake, segment, (*columns_of(book), *texts_of(book)))
    result.sums[job.name] = _sums(job, table)
    summary = result.summaries[job.name] = summarize(book, table, limit=job.limit)
    if book in CHECKED:
        summary.receipts = check_receipts(book, table, terms)
        batches = sum_batches(job.name, book, table)
        if book is Ledger.RECEIPTS:
            counts = [count_receipts(job.name, table, job.key), count_refused_answers(job.name, table)]
            batches = pyarrow().concat_tables([batches, *counts])
        return batches
    return cell_schema().empty_table()


def _sums(job: SegmentJob, rows: Columns) -> list[RangeSum]:
    place = job.segment.place
    return range_sums(place.book, rows, ((place.after, place.upto), *job.ranges), job.key)


def _read(lake: FileReader, segment: Segment, columns: tuple[str, ...]) -> Columns:
    """Return these columns of a segment, and those that are summed and checked. Raises BadSegment."""
    names = dict.fromkeys(("node", "epoch", *columns, *summed_columns(segment.place.book)))
    return Columns(read_segment(lake, segment, [*names]))
