"""The stages of an audit, each in its place: what is read in which order, and what of it is known already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from eventd.audit.engine import reconcile as balance
from eventd.audit.engine import suspects
from eventd.audit.engine.cells import HOUR, Skew
from eventd.audit.engine.columns import NEVER
from eventd.audit.engine.coverage import Sight
from eventd.audit.engine.link_figures import Judged
from eventd.audit.engine.plan import Keeper, Plan
from eventd.audit.engine.rows import Line, Uneven, concerns
from eventd.audit.engine.small_ledgers import Facts, mark_of
from eventd.audit.engine.spreading import gather, together
from eventd.audit.engine.state import FOLDER, State
from eventd.audit.engine.tasks import SMALL, Job, Outcome, Task, carry_out, recheck
from eventd.audit.report.findings import NO_BATCH, OTHER_RECEIPT, Fact, Kind
from eventd.lake.layout import MINUTE
from eventd.lake.reader import Survey, read_segment
from eventd.lake.schema import Book
from eventd.lake.storage import connect
from eventd.lake.writer import Segment
from eventd.runtime.chance import SYSTEM

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_PER_TASK: Final = 48 << 20
"""Bytes of segments that make a task, unless there would be too few tasks for all to work."""
_TASKS: Final = 4
"""Tasks for each of Spark's cores at least, so that none waits long for the last one."""
_ROWS_OF_A_PART: Final = 4_000_000
"""Rows of the lake whose cells are brought together in one place."""
_MOST_PARTS: Final = 2_000
_AN_HOUR: Final = HOUR * MINUTE


@dataclass
class Reader:
    """Reads the lake through Spark. `hours` [first, last) are those of the events' own time that are looked at.

    `now` in microseconds. `rechecked` is how many segments' bytes were compared with their digests again.
    """

    spark: SparkSession
    lake: str
    out: str
    survey: Survey
    state: State
    hours: tuple[int, int]
    now: int
    rechecked: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    read: list[Job] = field(default_factory=list)

    def recheck(self, percent: float) -> None:
        """Check the digests of known segments again: so many percent of their bytes, the longest unread first.

        What is not what it should be is forgotten, so that it is read, and told, as any segment.
        """
        known = []
        for segment in self.survey.segments:
            entry = self.state.entries.get(segment.place.name)
            if entry is not None and entry.sha256 != segment.manifest.sha256:
                self.state.rewritten.setdefault(segment.place.name, self.now)
            elif entry is not None and self._is_near(segment):  # or what is found would not be told
                known.append((entry.read_at, segment))
        jobs = oldest_jobs(known, percent)
        tasks = [Task(lake=self.lake, out=self.out, file="", jobs=tuple(part)) for part in self.shares(jobs)]
        changed: set[str] = set()
        for text in gather(self.spark, _Work([msgspec.msgpack.encode(task) for task in tasks], recheck), len(tasks)):
            changed.update(msgspec.msgpack.decode(text, type=list[str]))
        for job in jobs:
            if job.name in changed:
                del self.state.entries[job.name]
            else:
                self.state.entries[job.name] = replace(self.state.entries[job.name], read_at=self.now)
        self.rechecked = len(jobs)

    @property
    def oldest(self) -> int | None:
        """When the segment was read that has not been looked at for longest; None where all were in this run."""
        times = [entry.read_at for entry in self.state.entries.values()]
        return min((time for time in times if time < self.now), default=None)

    def small_books(self) -> dict[Keeper, list[Facts]]:
        """The facts of the small books of each node and epoch."""
        limits = self._limits()
        jobs = [
            _job(one, limit=min(limits.get(_keeper(one), 0), one.place.upto))
            for one in self.survey.segments
            if one.place.book in SMALL
        ]
        self._carry_out([job for job in jobs if not self.state.knows(job, {})])
        found: dict[Keeper, list[Facts]] = {}
        for job in jobs:
            entry = self.state.entries.get(job.name)
            if entry is not None and entry.facts is not None:
                found.setdefault(Keeper(job.manifest.node, job.manifest.epoch), []).append(entry.facts)
        return found

    def _limits(self) -> dict[Keeper, int]:
        """Up to which number the deliveries are known: links have not gone farther than what they tell."""
        found = {Keeper(one.node, one.epoch): one.books.get(Book.DELIVERIES, 0) for one in self.survey.nodes}
        for one in self.survey.segments:
            if one.place.book is Book.DELIVERIES:
                found[_keeper(one)] = max(one.place.upto, found.get(_keeper(one), 0))
        return found

    def large_books(self, plan: Plan) -> list[Job]:
        """Read what is new of the large books, and forget what does not count any more; all of their jobs."""
        jobs = [
            job_for(one, plan) for one in self.survey.segments if one.place.book not in SMALL and self._is_near(one)
        ]
        self._carry_out([job for job in jobs if not self.state.knows(job, plan.clocks)])
        self.state.keep_only([one.place.name for one in self.survey.segments])
        return [job for job in jobs if job.name not in self.unreadable]

    def _is_near(self, segment: Segment) -> bool:
        slots = segment.manifest.slots
        return slots is None or (slots[0] // HOUR < self.hours[1] and slots[1] // HOUR >= self.hours[0])

    def _carry_out(self, jobs: Sequence[Job]) -> None:
        """Let Spark's tasks do the jobs, and learn what came of them."""
        tasks = [
            Task(lake=self.lake, out=self.out, file=f"{FOLDER}/cells-{SYSTEM.token(8).hex()}.parquet", jobs=tuple(part))
            for part in self.shares(jobs)
        ]
        done = {job.name: job for job in jobs}
        for text in gather(self.spark, _Work([msgspec.msgpack.encode(task) for task in tasks], carry_out), len(tasks)):
            outcome = msgspec.msgpack.decode(text, type=Outcome)
            self.unreadable |= outcome.troubles
            for name in {*outcome.rows, *outcome.troubles}:
                self.state.learn(done[name], outcome, self.now)
                self.read.append(done[name])

    def shares(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """The jobs in shares of about the same size, for a task each."""
        if not jobs:
            return []
        total = sum(job.manifest.bytes for job in jobs)
        least = self.spark.sparkContext.defaultParallelism * _TASKS
        pieces = min(len(jobs), max(least, total // _PER_TASK))
        shares: list[list[Job]] = [[] for _ in range(pieces)]
        weights = [0] * pieces
        for job in sorted(jobs, key=lambda job: -job.manifest.bytes):
            at = weights.index(min(weights))
            shares[at].append(job)
            weights[at] += job.manifest.bytes + 1
        return shares

    def balance(self, reach: Mapping[str, int]) -> dict[str, list[pa.Table]]:
        """What `balance.balance` makes of the cells of all segments that count, within the hours."""
        near = {one.place.name for one in self.survey.segments if self._is_near(one)}
        files = [(file, [name for name in names if name in near]) for file, names in self.state.files().items()]
        cells = balance.CellFiles(self.out, [one for one in files if one[1]], self.state.cells, self.hours)
        work = partial(balance.balance, reach=dict(reach))
        return together(self.spark, cells, len(cells.files), balance.keys, work, self.parts)

    def compare(self, uneven: Uneven, jobs: Sequence[Job], sight: Sight) -> Judged:
        """Look at the rows of slots that are not even."""
        near = [job for job in jobs if concerns(uneven, job.segment, job.links)]
        marks = suspects.Marks(self.lake, self.shares(near), uneven)
        work = partial(suspects.compare, sight=sight)
        return Judged.from_tables(together(self.spark, marks, len(marks.shares), suspects.keys, work, self.parts))

    @property
    def parts(self) -> int:
        """In how many parts rows are brought together."""
        rows = sum(entry.rows for entry in self.state.entries.values())
        return min(max(self.spark.sparkContext.defaultParallelism, rows // _ROWS_OF_A_PART), _MOST_PARTS)

    def forged_receipts(self, unknown: Iterable[Mapping[str, Any]], sight: Sight) -> Iterator[Fact]:
        """Receipts of batches that the peer's books would know and do not."""
        sought: dict[str, dict[tuple[str, str, int], str]] = {}
        for row in unknown:
            line = Line(row["group"], row["source"], row["peer"])
            first, last = sight.there(line.source, line.peer, (row["first"], (row["hour"] + 1) * _AN_HOUR))
            if row["other"]:
                sought.setdefault(line.source, {})[line.group, line.peer, row["mark"]] = OTHER_RECEIPT
            elif sight.sees(line.peer, Book.INBOUND, 0, (first, last)):
                sought.setdefault(line.source, {})[line.group, line.peer, row["mark"]] = NO_BATCH
        for segment in self.survey.segments:
            wanted = sought.get(segment.manifest.node)
            if wanted and segment.place.book is Book.RECEIPTS and segment.place.name not in self.unreadable:
                yield from self._named(segment, wanted)

    def _named(self, segment: Segment, wanted: Mapping[tuple[str, str, int], str]) -> Iterator[Fact]:
        table = read_segment(connect(self.lake), segment, ["group", "peer", "batch_id"])
        for row in table.to_pylist():
            detail = wanted.get((row["group"], row["peer"], mark_of(row["batch_id"])))
            if detail is not None:
                kind = Kind.FORGED if detail == NO_BATCH else Kind.DISAGREEMENT
                yield Fact(kind, row["group"], segment.manifest.node, row["peer"], 0, row["batch_id"], detail)


class _Work:
    """What a task of Spark does: one of the tasks by its number."""

    def __init__(self, tasks: Sequence[bytes], work: Callable[[Task], Any]) -> None:
        self._tasks = tasks
        self._work = work

    def __call__(self, piece: int) -> bytes:
        return msgspec.msgpack.encode(self._work(msgspec.msgpack.decode(self._tasks[piece], type=Task)))


def oldest_jobs(known: Sequence[tuple[int, Segment]], percent: float) -> list[Job]:
    """At least one of the segments, and so many percent of their bytes: those with the earliest times."""
    wanted = sum(segment.manifest.bytes for _, segment in known) * percent / 100
    jobs: list[Job] = []
    for _, segment in sorted(known, key=lambda one: (one[0], one[1].place.name)):
        if not percent or (jobs and wanted <= 0):
            break
        jobs.append(_job(segment))
        wanted -= segment.manifest.bytes
    return jobs


def job_for(segment: Segment, plan: Plan) -> Job:
    """The job of a segment of a large book."""
    keeper, place = _keeper(segment), segment.place
    since = plan.since.get(keeper, NEVER)
    if place.book is Book.EVENTS:
        links = tuple(link.within(place.after, place.upto) for link in plan.links.get(keeper, ()))
        return _job(segment, links=links, since=since)
    return _job(segment, skews=_near_skews(plan.skews(keeper.node), segment.manifest.times), since=since)


def _near_skews(skews: Mapping[str, Skew], times: tuple[int, int] | None) -> dict[str, Skew]:
    """The skews of the hours that a segment is of, and of those beside them."""
    if times is None:
        return {}
    first, last = times[0] // _AN_HOUR - 1, times[1] // _AN_HOUR + 1
    found = {}
    for peer, skew in skews.items():
        near = [at for at, hour in enumerate(skew.hours) if first <= hour <= last]
        near = near or [min(range(len(skew.hours)), key=lambda at: abs(skew.hours[at] - first))]
        found[peer] = Skew(tuple(skew.hours[at] for at in near), tuple(skew.values[at] for at in near))
    return found


def _job(segment: Segment, **known: Any) -> Job:
    return Job(name=segment.place.name, manifest=segment.manifest, **known)


def _keeper(segment: Segment) -> Keeper:
    return Keeper(segment.manifest.node, segment.manifest.epoch)
