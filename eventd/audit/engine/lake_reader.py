"""Reads the lake through Spark, and reuses the results of segments that earlier audits read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from eventd.audit.coverage.coverage import Coverage
from eventd.audit.engine.planned_jobs import job_for, job_of, oldest_jobs, share_out
from eventd.audit.engine.state import State, ranges_of
from eventd.audit.receipts.receipt_terms import ReceiptTerms
from eventd.audit.report.report import TreeReport
from eventd.audit.segments.cell_files import write_cells
from eventd.audit.segments.cells import SLOTS_PER_HOUR
from eventd.audit.segments.damaged_segment import name_damage
from eventd.audit.segments.event_digests import DigestResult
from eventd.audit.segments.leaf_comparison import LeafComparison, compare_leaves, decode_comparison
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.link_progress import LinkProgress
from eventd.audit.segments.own_digests import DatedDigest, find_digests, plan_searches, split_digests
from eventd.audit.segments.plan import LakePlan, NodeEpoch, NumberRanges, owner_of
from eventd.audit.segments.row_marks import UnevenSlots, concerns
from eventd.audit.segments.row_sums import RangeSum
from eventd.audit.segments.segment_jobs import SMALL, CellMaker, DigestCheck, RangeCheck, SegmentJob, SegmentJobs
from eventd.audit.segments.seq_runs import SeqRun
from eventd.audit.segments.spark_tasks import FileShares, group_files, run_on_files, run_tasks
from eventd.audit.segments.taken_ids import TakenId
from eventd.audit.segments.tree_leaves import TreeLeaves
from eventd.audit.spark.locations import Location
from eventd.audit.spark.session import cores_of
from eventd.audit.verdicts import reconcile, row_comparison
from eventd.audit.verdicts.leaf_verdicts import find_equal, plan_leaf_tasks, task_basis, task_name
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.audit.verdicts.node_trees import Trees
from eventd.audit.verdicts.pair_figures import RowComparison
from eventd.audit.verdicts.renamed_events import join_renamed
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_TASKS: Final = 4
"""Minimum number of tasks per core, so that no core waits long for the last task."""
_ROWS_OF_A_PART: Final = 4_000_000
"""Rows of the lake per part of the cells."""
_MOST_PARTS: Final = 2_000


@dataclass
class LakeReader:
    """Reads the lake through Spark. `hours` [first, last) are the requested hours since 1970 of the events' own time.

    `out` has the state. `now` is in microseconds. `ranges`: by name of the segment, the numbers (after, upto] of which
    the sums are needed, see `AuditHistory.wanted`. `receipts`: the terms by which receipts are checked; `digests`: the
    percentage of events with payloads whose contents are compared with their digests, `sample` that of the tiles of
    trees that are computed from rows. `rechecked` is the number of known segments whose digests were checked again.
    `unreadable` has, by name of the segment, the reason why it could not be read; it begins with the segments that an
    earlier attempt of this run found damaged. `read` are the jobs that this run executed.
    """

    spark: SparkSession
    lake: Location
    out: Location
    survey: Survey
    state: State
    hours: tuple[int, int]
    now: int
    receipts: ReceiptTerms = field(default_factory=ReceiptTerms)
    digests: float = 100.0
    ranges: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    sample: float = 100.0
    rechecked: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    read: list[SegmentJob] = field(default_factory=list)

    def recheck(self, percent: float) -> None:
        """Check the digests of known segments again: `percent` of their bytes, the least recently read first.

        Segments with events of other hours only are left out. A segment whose file was changed or is missing is
        forgotten, so that this run reads it and reports it as corrupt. One whose manifest now has another digest is
        read anyway.
        """
        known = []
        for segment in self.survey.segments:
            entry = self.state.entries.get(segment.place.name)
            if entry is None or entry.sha256 != segment.manifest.sha256:
                continue
            if self._is_near(segment):  # others are not read by this run
                known.append((entry.read_at, segment))
        jobs = oldest_jobs(known, percent)
        changed: set[str] = set()
        for text in run_on_files(self.spark, self.shares(jobs), DigestCheck(SegmentJobs(jobs))):
            changed.update(msgspec.msgpack.decode(text, type=list[str]))
        for job in jobs:
            if job.name in changed:
                del self.state.entries[job.name]
            else:
                self.state.entries[job.name] = replace(self.state.entries[job.name], read_at=self.now)
        self.rechecked = len(jobs)

    def check_skipped(self) -> None:
        """Compare `slots` and `times` of the segments that are not read with their files, once for each segment.

        Otherwise a false manifest would hide rows of the requested hours. Segments with other ranges are unreadable.
        """
        skipped = [one for one in self.survey.segments if not (self._is_near(one) or self.state.knows_ranges(one))]
        jobs = [job_of(one) for one in skipped]
        pieces = min(len(jobs), self.cores * _TASKS)  # the ends of files have about the same size
        paths = [job.segment.place.data for job in jobs]
        shares = FileShares(self.lake, [paths[at::pieces] for at in range(pieces)])
        faults: dict[str, str] = {}
        for text in run_on_files(self.spark, shares, RangeCheck(SegmentJobs(jobs))):
            faults |= msgspec.msgpack.decode(text, type=dict[str, str])
        self.unreadable |= faults
        self.state.checked |= {job.name: ranges_of(job.manifest) for job in jobs if job.name not in faults}

    @property
    def oldest(self) -> int | None:
        """Return the earliest time of a segment's last reading or check (microseconds).

        None if this run has read or checked all segments.
        """
        times = [entry.read_at for entry in self.state.entries.values()]
        return min((time for time in times if time < self.now), default=None)

    def summarize_small(self) -> dict[NodeEpoch, list[LedgerSummary]]:
        """Return a summary of each readable segment of receipts, inbound, gaps and refusals, by node and epoch."""
        limits = self._limits()
        terms = {book: self.receipts.digest(book, self.state.key) for book in SMALL}
        jobs = [
            job_of(
                one,
                limit=min(limits.get(owner_of(one), 0), one.place.upto),
                receipts=terms[one.place.book],
                key=self.state.key,
                ranges=self.ranges.get(one.place.name, ()),
            )
            for one in self.survey.segments
            if one.place.book in SMALL
        ]
        self._run([job for job in jobs if not self.state.knows(job, {})])
        found: dict[NodeEpoch, list[LedgerSummary]] = {}
        for job in jobs:
            entry = self.state.entries.get(job.name)
            if entry is not None and entry.summary is not None:
                found.setdefault(NodeEpoch(job.manifest.node, job.manifest.epoch), []).append(entry.summary)
        return found

    def progress_by_segment(self) -> Callable[[Segment], Sequence[LinkProgress] | None]:
        """Return a function for the progress of the links of a segment of `receipts`.

        It returns None if the progress is not known, or does not cover all rows of the segment.
        """
        limits = self._limits()

        def progress_of(segment: Segment) -> Sequence[LinkProgress] | None:
            entry = self.state.entries.get(segment.place.name)
            is_covered = segment.place.upto <= limits.get(owner_of(segment), 0)
            return entry.summary.progress if entry is not None and entry.summary is not None and is_covered else None

        return progress_of

    def _limits(self) -> dict[NodeEpoch, int]:
        """Return the row number up to which the lake has the deliveries of each node and epoch.

        Receipts have the same numbers; receipts with higher numbers do not count as progress of links.
        """
        found = {NodeEpoch(one.node, one.epoch): one.books.get(Ledger.DELIVERIES, 0) for one in self.survey.nodes}
        for one in self.survey.segments:
            if one.place.book is Ledger.DELIVERIES:
                found[owner_of(one)] = max(one.place.upto, found.get(owner_of(one), 0))
        return found

    def read_large(self, plan: LakePlan, trees: Trees) -> list[SegmentJob]:
        """Read segments of events and deliveries of the requested hours, unless their cells are known and valid.

        Forgets segments that have left the lake. Returns the jobs of all readable segments of these hours.
        """
        jobs = [
            replace(
                job_for(one, plan),
                key=self.state.key,
                digests=self.digests,
                ranges=self.ranges.get(one.place.name, ()),
                **self._tree_terms(one, trees),
            )
            for one in self.survey.segments
            if one.place.book not in SMALL and self._is_near(one)
        ]
        self._run([job for job in jobs if not self.state.knows(job, plan.clocks)])
        self._run([*self._with_other_cuts(jobs, trees)])
        self.state.keep_only([one.place.name for one in self.survey.segments])
        return [job for job in jobs if job.name not in self.unreadable]

    def _tree_terms(self, segment: Segment, trees: Trees) -> dict[str, Any]:
        """Return the parameters of a job that its leaves are computed with."""
        claims = bool(trees.evidence) and segment.manifest.leaves  # of the trees of others
        if segment.place.book is not Ledger.EVENTS or not (claims or trees.keeps(segment.manifest.node)):
            return {}
        moves, cuts = trees.moves_in(segment), trees.cuts_in(segment)
        return {"trees": True, "moves": moves, "cuts": cuts, "sample": self.sample}

    def _with_other_cuts(self, jobs: Iterable[SegmentJob], trees: Trees) -> Iterator[SegmentJob]:
        """Yield the jobs whose leaves end checkpoints that were sought elsewhere: they name a false position."""
        for job in jobs:
            entry = self.state.entries.get(job.name)
            if job.trees and entry is not None and entry.leaves is not None:
                wanted = trees.cuts_of(job.manifest.node, entry.leaves)
                if not wanted <= {*entry.leaves.cuts}:
                    yield replace(job, cuts=tuple(sorted({*job.cuts, *wanted})))

    @property
    def leaves(self) -> list[tuple[str, TreeLeaves]]:
        """Return the leaves in the segments of `events` that this or an earlier run has read, each with its node."""
        return [(segment.manifest.node, found) for segment, found in self.leaves_by_segment]

    @property
    def leaves_by_segment(self) -> list[tuple[Segment, TreeLeaves]]:
        """Return the same, each with its segment."""
        segments = {one.place.name: one for one in self.survey.segments}
        known = ((name, entry.leaves) for name, entry in sorted(self.state.entries.items()))
        return [
            (segments[name], found)
            for name, found in known
            if found is not None and name in segments and name not in self.unreadable
        ]

    def compare_leaves(self, trees: Sequence[TreeReport]) -> LeafComparison:
        """Return the rows of events of other nodes that differ from the leaves of these trees that they claim to be.

        Leaves that an earlier run has compared are not read again while their segments are the same.
        """
        tasks = {task_name(one): one for one in plan_leaf_tasks(self.leaves_by_segment, trees)}
        bases = {name: task_basis(task) for name, task in tasks.items()}
        new = [task for name, task in tasks.items() if self.state.compared.get(name) != bases[name]]
        made = [*map(decode_comparison, run_tasks(self.spark, self.lake, new, compare_leaves))]
        found = LeafComparison([row for one in made for row in one.rows], [cut for one in made for cut in one.cut])
        found.rows.sort(key=lambda row: (row.node, row.tree, row.leaf, row.peer, row.id))
        self.state.compared = {name: bases[name] for name in find_equal(tasks, found.rows)}
        return found

    def find_own(self, wanted: Sequence[DatedDigest]) -> set[bytes]:
        """Return those of these digests that are of an own event of any node."""
        searches = [*plan_searches(self.rows.segments, wanted)]
        found = run_tasks(self.spark, self.lake, searches, find_digests)
        return {digest for digests in found for digest in split_digests(digests)}

    @property
    def unread(self) -> dict[str, list[tuple[int, int]]]:
        """Return by node the positions (after, upto] in segments of `events` that no run has read."""
        found: dict[str, list[tuple[int, int]]] = {}
        for one in self.survey.segments:
            name = one.place.name
            if one.place.book is Ledger.EVENTS and name not in self.state.entries and name not in self.unreadable:
                found.setdefault(one.manifest.node, []).append((one.after, one.upto))
        return found

    @property
    def runs(self) -> dict[str, list[SeqRun]]:
        """Return the runs of seqs of the segments of `events` that this or an earlier run has read, by name."""
        known = ((name, entry.runs) for name, entry in self.state.entries.items())
        return {name: runs for name, runs in known if runs is not None and name not in self.unreadable}

    @property
    def digest_results(self) -> list[tuple[str, DigestResult]]:
        """Return the checks of digests of the segments of `events` of the requested hours, each with its node."""
        near = self._near
        known = ((name, entry.digests) for name, entry in sorted(self.state.entries.items()) if name in near)
        return [
            (near[name].manifest.node, one) for name, one in known if one is not None and name not in self.unreadable
        ]

    @property
    def taken_ids(self) -> list[TakenId]:
        """Return the events of the requested hours that a peer refused because it has their ids from other sources."""
        known = ((name, entry.taken) for name, entry in sorted(self.state.entries.items()) if name in self._near)
        return [one for name, taken in known if name not in self.unreadable for one in taken]

    @cached_property
    def _near(self) -> dict[str, Segment]:
        """Return, by name, the segments that may have rows of the requested hours."""
        return {one.place.name: one for one in self.survey.segments if self._is_near(one)}

    @property
    def sums(self) -> dict[str, list[RangeSum]]:
        """Return the sums of the readable segments that this or an earlier run has read, by name."""
        digests = {one.place.name: one.manifest.sha256 for one in self.survey.segments}
        return {
            name: entry.sums
            for name, entry in self.state.entries.items()
            if entry.sha256 == digests.get(name) and name not in self.unreadable
        }

    def _rows_of(self, segment: Segment, columns: Sequence[str]) -> pa.Table:
        """Return these columns of a segment. Raises DamagedSegment and LakeUnavailable."""
        with name_damage(segment.place.name):
            return read_segment(self.lake.open(self.spark), segment, columns)

    def _is_near(self, segment: Segment) -> bool:
        slots = segment.manifest.slots
        return slots is None or (
            slots[0] // SLOTS_PER_HOUR < self.hours[1] and slots[1] // SLOTS_PER_HOUR >= self.hours[0]
        )

    def _run(self, jobs: Sequence[SegmentJob]) -> None:
        """Run the jobs in Spark's tasks; keep their results in the state, and their errors in `unreadable`."""
        done = {job.name: job for job in jobs}
        for result in write_cells(self.spark, self.shares(jobs), CellMaker(SegmentJobs(jobs), self.receipts), self.out):
            for name in result.rows:
                self.unreadable.pop(name, None)  # it is as it was again
            self.unreadable |= result.errors
            for name in {*result.rows, *result.errors}:
                self.state.learn(done[name], result, self.now)
                self.read.append(done[name])

    def shares(self, jobs: Sequence[SegmentJob]) -> FileShares:
        """Return the files of the jobs' segments in shares of about the same size, one per task."""
        return FileShares(self.lake, share_out(jobs, self.cores * _TASKS))

    def reconcile(self, coverage: Coverage, unkept: NumberRanges) -> dict[str, list[pa.Table]]:
        """Return, by name, the tables of `reconcile.reconcile` of all parts, for the cells of the requested hours.

        `unkept`: the numbers of receipts that the lake need not have.
        """
        near = self._near
        named = {file: [name for name in names if name in near] for file, names in self.state.files().items()}
        segments = {file: names for file, names in named.items() if names}
        files = FileShares(self.out, [[file] for file in segments])
        cells = reconcile.CellFilter(segments, self.state.cells, self.hours)
        reach = {node: until + coverage.margin for node, until in coverage.until.items()}
        covered = coverage.ends_by_sender()
        work = partial(reconcile.reconcile, reach=reach, hours=self.hours, covered=covered, unkept=unkept)
        return group_files(self.spark, files, cells, reconcile.keys, work, self.parts)

    def compare(self, uneven: UnevenSlots, jobs: Sequence[SegmentJob], coverage: Coverage) -> RowComparison:
        """Return the comparison of the rows of uneven slots, read from these jobs' segments that may hold some."""
        near = [job for job in jobs if concerns(uneven, job.segment, job.links)]
        marks = row_comparison.MarkMaker(SegmentJobs(near), uneven)
        work = partial(row_comparison.compare, coverage=coverage)
        comparison = RowComparison.from_tables(
            group_files(self.spark, self.shares(near), marks, row_comparison.keys, work, self.parts)
        )
        join_renamed(comparison)
        return comparison

    @cached_property
    def cores(self) -> int:
        """Return the number of cores on which Spark runs tasks."""
        return cores_of(self.spark)

    @property
    def parts(self) -> int:
        """Return the number of parts into which cells and marks are divided by key."""
        rows = sum(entry.rows for entry in self.state.entries.values())
        return min(max(self.cores, rows // _ROWS_OF_A_PART), _MOST_PARTS)

    @property
    def rows(self) -> LedgerRows:
        """Return a reader of rows of all segments that no run has found corrupt, also of other hours."""
        readable = [one for one in self.survey.segments if one.place.name not in self.unreadable]
        return LedgerRows(readable, self._rows_of)

    @property
    def known(self) -> set[str]:
        """Return the names of the segments whose cells count for the requested hours."""
        return (self._near.keys() & self.state.entries.keys()) - self.unreadable.keys()
