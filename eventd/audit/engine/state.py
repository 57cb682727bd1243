"""The state that an audit keeps for the next one: the cells of every segment it has read, and their parameters.

All of the state can be computed again from the lake; data that cannot be is in the history, see `history`. The state
belongs to one lake. A segment is read again when its file has changed, or the parameters of its cells have, such as
the links that select its rows, or the clock offsets that correct its times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from eventd.audit.report.file_names import HISTORY
from eventd.audit.segments.cell_files import FOLDER, parse_cells, read_cells
from eventd.audit.segments.event_digests import DigestResult
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import ClockOffsets
from eventd.audit.segments.row_sums import SUMS, RangeSum
from eventd.audit.segments.segment_jobs import SegmentJob, TaskResult
from eventd.audit.segments.seq_runs import SeqRun
from eventd.audit.segments.taken_ids import TakenId
from eventd.audit.segments.tree_leaves import TreeLeaves
from eventd.errors import Conflict, LakeUnavailable, NotFound
from eventd.lake.file_sizes import MOST_KEPT, TooLargeFile
from eventd.lake.manifest import Int64, LakeHead, Manifest, Number, Time
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from eventd.lake.stored_files import Written
from eventd.lake.writer import Segment
from eventd.runtime.chance import SYSTEM

INDEX: Final = f"{FOLDER}/index.msgpack"
VERSION: Final = 26
"""The version of cells and parameters. A state of another version is discarded and rebuilt."""
HashKey = Annotated[bytes, msgspec.Meta(max_length=64)]
"""A key of the hashes of rows, of at most the length that these hashes accept."""


class KnownSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that was read: its digest, the file with its cells, and their parameters.

    `ranges`: see `ranges_of`. `read_at`: when its bytes were last compared with its digest (microseconds). `runs` and
    `digests`: those of a segment of `events`, `leaves` of a node with trees; `taken`: those of one of `deliveries`.
    `sums`: see `TaskResult`.
    """

    sha256: str
    ranges: str
    rows: Number
    file: str
    read_at: Time
    links: str = ""
    skews: dict[str, dict[Int64, Int64]] = {}
    summary: LedgerSummary | None = msgspec.field(default=None, name="facts")
    runs: list[SeqRun] | None = None
    digests: DigestResult | None = None
    sums: list[RangeSum] = []
    leaves: TreeLeaves | None = None
    taken: list[TakenId] = []


class State(msgspec.Struct, kw_only=True):
    """The known segments by name. `cells`: size and digest of the files with cells.

    `sums`: the version of the sums of rows, see `row_sums`. `key`: the key of the hashes of rows, see `row_hash`; the
    history has the same. `checked`: by name of the segment, the ranges of its manifest that were found in its file, for
    segments whose rows were not read. `compared`: by name of a task, that it has found no row of another node that
    differs from a leaf, with all that this depends on, see `task_basis`.
    """

    version: int = VERSION
    sums: int = SUMS
    lake: str
    key: HashKey = msgspec.field(default_factory=lambda: SYSTEM.token(16))
    entries: dict[str, KnownSegment] = {}
    cells: dict[str, Written] = {}
    checked: dict[str, str] = {}
    compared: dict[str, str] = {}

    def knows(self, job: SegmentJob, clocks: ClockOffsets) -> bool:
        """Return whether the cells of the job's segment are known and still valid."""
        entry = self.entries.get(job.name)
        return (
            entry is not None
            and entry.sha256 == job.manifest.sha256
            and entry.ranges == ranges_of(job.manifest)
            and entry.links == _basis(job)
            and {(one.after, one.upto) for one in entry.sums}.issuperset(job.ranges)
            and (entry.leaves is not None or not job.trees)
            and (entry.leaves is None or {*entry.leaves.cuts}.issuperset(job.cuts))
            and _within_bounds(entry.skews, job.manifest.node, clocks)
        )

    def learn(self, job: SegmentJob, result: TaskResult, now: int) -> None:
        """Add the result of a job to the state; a segment that could not be read is forgotten."""
        self.cells[result.file] = result.written
        if job.name not in result.rows:
            self.entries.pop(job.name, None)
            return
        self.entries[job.name] = KnownSegment(
            sha256=job.manifest.sha256,
            ranges=ranges_of(job.manifest),
            rows=result.rows[job.name],
            file=result.file,
            read_at=now,
            links=_basis(job),
            skews=_used(job),
            summary=result.summaries.get(job.name),
            runs=result.runs.get(job.name),
            digests=result.digests.get(job.name),
            sums=result.sums[job.name],
            leaves=result.leaves.get(job.name),
            taken=result.taken.get(job.name, []),
        )

    def knows_ranges(self, segment: Segment) -> bool:
        """Return whether `slots` and `times` of a segment's manifest were compared with its file."""
        name, ranges = segment.place.name, ranges_of(segment.manifest)
        entry = self.entries.get(name)
        return self.checked.get(name) == ranges or (entry is not None and entry.ranges == ranges)

    def written(self, file: str) -> Written:
        """Return the size and digest that a file of cells had when it was written; a size of -1 for an unknown file."""
        return self.cells.get(file, Written(-1, ""))

    def forget(self, files: Collection[str]) -> None:
        """Forget the segments whose cells are in these files: they are read again."""
        self.entries = {name: entry for name, entry in self.entries.items() if entry.file not in files}
        self.cells = {file: written for file, written in self.cells.items() if file not in files}

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget all segments but these."""
        kept = frozenset(names)
        self.entries = {name: entry for name, entry in self.entries.items() if name in kept}
        self.checked = {name: ranges for name, ranges in self.checked.items() if name in kept}

    def files(self) -> dict[str, list[str]]:
        """Return the files with cells, and the segments that count in each."""
        found: dict[str, list[str]] = {}
        for name, entry in sorted(self.entries.items()):
            found.setdefault(entry.file, []).append(name)
        return found


def ranges_of(manifest: Manifest) -> str:
    """Return the `slots` and `times` of a manifest with the digest of its file, as one text to compare."""
    return f"{manifest.sha256} {manifest.slots} {manifest.times}"


def open_state(out: Storage, lake: LakeHead, *, full: bool = False) -> State:
    """Read the state of a lake; a new one if `full`, or if it is missing, too large, damaged or out of date.

    Segments whose files of cells are missing or of another size are forgotten, so that the audit reads them again.
    Raises Conflict if the output holds the state of another lake, also if `full`, and LakeUnavailable.
    """
    try:
        found = msgspec.msgpack.decode(out.read_within(INDEX, MOST_KEPT), type=State)
    except (NotFound, TooLargeFile, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return State(lake=lake.id)  # none, unfinished, or of another version: it is rebuilt
    if found.lake != lake.id:
        raise another_lake(out)
    if full or (found.version, found.sums) != (VERSION, SUMS):
        return State(lake=lake.id)
    sizes = {entry.path: entry.bytes for entry in out.list(FOLDER)}
    found.forget([file for file in found.files() if sizes.get(file) != found.written(file).bytes])
    return found


def another_lake(out: Storage) -> Conflict:
    """Return the error of an output that holds an audit of another lake."""
    return Conflict(
        f"{out.url} holds an audit of another lake",
        hint="choose another --out, or start over with --full, and without --from and --to",
    )


def forget_corrupt(out: Storage, state: State) -> bool:
    """Forget the segments in files of cells that are missing or corrupt, and return whether there are any.

    Reads all files of cells completely: one may have the digest that it should have, and not be one of cells. Raises
    LakeUnavailable.
    """
    corrupt = [file for file in state.files() if not _is_whole(out, file, state.written(file))]
    state.forget(corrupt)
    return bool(corrupt)


def _is_whole(out: Storage, file: str, written: Written) -> bool:
    try:
        data = read_cells(out, file, written.bytes)
        return hashlib.sha256(data).hexdigest() == written.sha256 and parse_cells(data) is not None
    except NotFound:
        return False


def prepare_output(out: Storage, lake: LakeHead, *, discards: bool) -> None:
    """Write an empty state of the lake to an output without one, so that errors are reported before any work.

    Raises Conflict if the output holds the state of another lake, unless the audit `discards` it, and LakeUnavailable
    if the output cannot be read or written.
    """
    try:
        try:
            out.read_within(INDEX, MOST_KEPT)
        except (NotFound, TooLargeFile):
            out.put(INDEX, msgspec.msgpack.encode(State(lake=lake.id)))
            return
    except LakeUnavailable as error:
        raise LakeUnavailable(error.message, hint="choose another --out") from None
    if not discards:
        open_state(out, lake)


def keep(out: Storage, state: State) -> None:
    """Store the state, and remove the files of its folder that it does not refer to.

    Such files belong to segments that were read again or forgotten, or are unfinished files of killed tasks. If the
    index had more than `MOST_KEPT` bytes, it would not be read: it is stored without some segments, which the next
    audit reads again. `state` itself keeps them all.
    """
    files = state.files()
    state.cells = {file: state.cells[file] for file in files}
    out.put(INDEX, _encode_within(state, MOST_KEPT))
    needed = {*files, INDEX, HISTORY}
    out.delete([entry.path for entry in out.list(FOLDER) if entry.path not in needed])
    out.delete(out.unfinished(FOLDER))


def _encode_within(state: State, most: int) -> bytes:
    """Return a state as at most `most` bytes; while it is larger, half of its segments are left out."""
    while len(text := msgspec.msgpack.encode(state)) > most and (state.entries or state.checked):
        entries = dict(islice(state.entries.items(), len(state.entries) // 2))
        checked = dict(islice(state.checked.items(), len(state.checked) // 2))
        files = {entry.file for entry in entries.values()}
        cells = {file: written for file, written in state.cells.items() if file in files}
        state = replace(state, entries=entries, checked=checked, cells=cells)
    return text


def _basis(job: SegmentJob) -> str:
    """Return a digest of the parameters of the job on which its cells, its summary and its other results depend."""
    # The peers are part of the cells, so the links count with their names.
    terms = msgspec.msgpack.encode((job.links, job.since, job.limit, job.receipts, job.digests))
    if job.trees:  # the terms of other jobs are what they were before there were trees
        terms += msgspec.msgpack.encode((job.moves, job.sample))
    return hashlib.sha256(terms).hexdigest()[:16]


def _used(job: SegmentJob) -> dict[str, dict[int, int]]:
    """Return the clock skews with which the times in the cells were corrected, by peer and hour.

    Empty except for deliveries.
    """
    if job.manifest.book is not Ledger.DELIVERIES:
        return {}
    return {peer: dict(zip(skew.hours, skew.values, strict=True)) for peer, skew in job.skews.items()}


def _within_bounds(used: Mapping[str, Mapping[int, int]], node: str, clocks: ClockOffsets) -> bool:
    """Return whether each of these skews of a node's peers is still within the bounds that are known now."""
    for (sender, peer), hours in clocks.items():
        if sender != node:
            continue
        before = used.get(peer, {})
        for one in hours:
            if one.hour in before and not min(one.low, one.high) <= before[one.hour] <= max(one.low, one.high):
                return False
    return True
