"""The history of a lake: what audits with the same output have seen of it, which shows whether it was rolled back or
rewritten since.

Unlike the state, the history cannot be computed again from the lake. So it has a file of its own, with a digest, that
stays valid when the version of the state changes: fields may only be added to it and to `Promise`, each with a
default.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventd.audit.coverage.file_tree_findings import SeenFileTree
from eventd.audit.coverage.rollbacks import DeletedRange, Promise
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.state import HashKey, State, another_lake, open_state
from eventd.audit.report.file_names import HISTORY, REPORT
from eventd.audit.segments.row_sums import SUMS, RangeSum
from eventd.errors import NotFound
from eventd.lake.coverage import Span, holes
from eventd.lake.file_sizes import MOST_KEPT, TooLargeFile
from eventd.lake.layout import LedgerSlug, parse_name, slug
from eventd.lake.ledger_files import GRACE
from eventd.lake.manifest import Int64, LakeHead, Number, Time
from eventd.lake.reader import Survey
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND

_SOONEST: Final = GRACE - 3600 * SECOND
"""Minimum time, in microseconds, for which rows stay after the node's state no longer promises them: `GRACE` less an
hour, because the clocks of programs that apply retention may differ."""
_HEADER: Final = b"sha256 "
"""Begins the first line of the file, which has the digest (hex) of the rest."""

SegmentSums = Mapping[str, Sequence[RangeSum]]
"""By name of the segment: the sum of all its rows first, then the sums of some ranges of its rows."""


class SeenSegment(msgspec.Struct, frozen=True, array_like=True):
    """A segment that an audit has read: the digest of its file, the number of rows, and the sum of their hashes.

    `total` is None if it is not known.
    """

    sha256: str
    rows: Number
    total: Int64 | None


class SeenRange(msgspec.Struct, frozen=True, array_like=True):
    """Rows with numbers in (after, upto] that audits have read in segments which are not in the lake any more.

    `total` is the sum of their hashes; None if it is not known.
    """

    ledger: LedgerSlug
    after: Number
    upto: Number
    rows: Number
    total: Int64 | None


class PromisedRows(msgspec.Struct, frozen=True, array_like=True):
    """A node's state that promised the rows of a ledger after the number `after`.

    An audit last saw this promise at `at`. `at` is in microseconds.
    """

    ledger: LedgerSlug
    after: Number
    at: Time


class AuditHistory(msgspec.Struct, kw_only=True):
    """What audits have seen of a lake.

    `key`: that of the hashes of rows, see `row_hash`; `sums`: the version of their sums. `segments`: those that were
    read, by name. `ranges`: rows of segments that others have replaced, until they are compared. `rewritten`: segments
    that are not what an earlier audit has read, and the time of discovery (microseconds). `promises`: the highest
    numbers that the states of nodes have promised. `promised`: the numbers from which on the states promised rows in
    the last day; `deleted`: rows that were deleted less than a day after such a promise. `file_trees`: the trees of
    files that the states named. `lost_at`: when an earlier history was found to be lost (microseconds, 0: none was),
    and `lost` why.
    """

    lake: str
    key: HashKey
    sums: int = SUMS
    segments: dict[str, SeenSegment] = {}
    ranges: list[SeenRange] = []
    rewritten: dict[str, Time] = {}
    promises: list[Promise] = []
    promised: list[PromisedRows] = []
    deleted: list[DeletedRange] = []
    file_trees: list[SeenFileTree] = []
    lost_at: Time = 0
    lost: str = ""

    def meet(self, survey: Survey, now: int) -> None:
        """Note the segments whose digest has changed (at `now`, microseconds), and those that are gone."""
        present = {one.place.name: one.manifest.sha256 for one in survey.segments}
        for name, seen in self.segments.items():
            if present.get(name, seen.sha256) != seen.sha256:
                self.rewritten.setdefault(name, now)
        for name in [name for name in self.segments if name not in present]:
            seen = self.segments.pop(name)
            if (place := parse_name(name)) is not None:
                self.ranges.append(SeenRange(place.ledger, place.after, place.upto, seen.rows, seen.total))
        self._forget_expired(survey, now)
        self._join_ranges(survey)
        self._note_promised(survey, now)

    def wanted(self, survey: Survey) -> dict[str, tuple[tuple[int, int], ...]]:
        """Return, by name of the segment, the ranges (after, upto] of which the sums are to be compared."""
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for seen, segments in self._replaced(survey):
            for segment in segments:
                found[segment.place.name].append(_common(seen, segment))
        return {name: tuple(ranges) for name, ranges in found.items()}

    def compare(self, survey: Survey, sums: SegmentSums, now: int) -> None:
        """Compare the rows of replaced segments with the rows of the segments that replaced them, and remember all
        segments that were read.

        Segments with other rows are noted as rewritten, at `now` (microseconds). Ranges of which rows are not in
        `sums`, or not in the lake, are compared by a later audit.
        """
        left = []
        for seen, segments in self._replaced(survey):
            parts = [_part(sums.get(one.place.name, ()), _common(seen, one)) for one in segments]
            known = [one for one in parts if one is not None]
            if len(known) < len(segments) or holes(segments, Span(seen.after, seen.upto)):
                left.append(seen)
            elif not _is_same(seen, known):
                self.rewritten |= {one.place.name: self.rewritten.get(one.place.name, now) for one in segments}
        self.ranges = left
        for segment in survey.segments:
            if found := sums.get(segment.place.name):
                whole = found[0]
                self.segments[segment.place.name] = SeenSegment(segment.manifest.sha256, whole.rows, whole.total)

    def adopt(self, state: State) -> None:
        """Add the segments that only the state knows: an audit that was killed has read them."""
        for name, entry in state.entries.items():
            if name not in self.segments and entry.sums:
                self.segments[name] = SeenSegment(entry.sha256, entry.rows, entry.sums[0].total)

    def _replaced(self, survey: Survey) -> list[tuple[SeenRange, list[Segment]]]:
        """Return each range with the segments that now have some of its numbers, in order."""
        if not self.ranges:
            return []
        ledgers: defaultdict[LedgerSlug, list[Segment]] = defaultdict(list)
        for segment in sorted(survey.segments, key=lambda one: one.upto):
            ledgers[segment.place.ledger].append(segment)
        return [(seen, _segments_with(seen, ledgers[seen.ledger])) for seen in self.ranges]

    def _forget_expired(self, survey: Survey, now: int) -> None:
        """Forget ranges that retention has removed: the state begins after them, or is that of a later epoch.

        Retention first lets the state begin after them, and deletes them a day later: it did not remove those that the
        state promised in the last day. Nor did it remove a part of a range, because it removes whole segments.
        """
        epochs = {(slug(one.node), one.epoch) for one in survey.nodes}
        nodes = {node for node, _ in epochs}
        begins = {
            LedgerSlug(slug(one.node), one.epoch, book): reach.after
            for one in survey.nodes
            for book, reach in one.segments.items()
        }
        left, recent = [], self._recent(now)
        self.ranges.sort(key=lambda one: (one.ledger, one.after))
        for seen, segments in self._replaced(survey):
            past = seen.ledger.slug in nodes and (seen.ledger.slug, seen.ledger.epoch) not in epochs
            end = seen.upto if past else min(seen.upto, begins.get(seen.ledger, -1))
            gone = holes(segments, Span(seen.after, end)) if end > seen.after else ()
            if not gone:
                left.append(seen)
                continue
            since = min((one.after for one in recent if one.ledger == seen.ledger), default=seen.upto)
            since = seen.after if end < seen.upto else since
            for hole in gone:
                if since < hole.upto:
                    self._note_deleted(seen.ledger, Span(max(hole.after, since), hole.upto), now)
        self.ranges = left

    def _note_deleted(self, ledger: LedgerSlug, rows: Span, now: int) -> None:
        """Note that these rows were deleted too early, together with those before them."""
        last = self.deleted[-1] if self.deleted else None
        if last is not None and (last.ledger, last.upto, last.at) == (ledger, rows.after, now):
            self.deleted[-1] = replace(last, upto=rows.upto)
        else:
            self.deleted.append(DeletedRange(ledger, rows.after, rows.upto, now))

    def _recent(self, now: int) -> list[PromisedRows]:
        """Return the promises of the last day.

        Promises dated in the future are left out: they were noted by a wrong clock, so their time is not known.
        """
        return [one for one in self.promised if abs(now - one.at) < _SOONEST]

    def _note_promised(self, survey: Survey, now: int) -> None:
        """Note where the ledgers begin that the states promise; what they promised more than a day ago is forgotten."""
        found = {(one.ledger, one.after): one for one in self._recent(now)}
        for state in survey.nodes:
            for book, reach in state.segments.items():
                one = PromisedRows(LedgerSlug(slug(state.node), state.epoch, book), reach.after, now)
                found[one.ledger, one.after] = one
        self.promised = [found[key] for key in sorted(found)]

    def _join_ranges(self, survey: Survey) -> None:
        """Join neighbouring ranges that lie in one segment: an archive replaces thousands of segments."""
        joined: list[tuple[SeenRange, list[Segment]]] = []
        for seen, segments in sorted(self._replaced(survey), key=lambda one: (one[0].ledger, one[0].after)):
            if joined and len(segments) == 1 and segments == joined[-1][1] and _follows(seen, joined[-1][0]):
                joined[-1] = _merge_ranges(joined[-1][0], seen), segments
            else:
                joined.append((seen, segments))
        self.ranges = [seen for seen, _ in joined]


class Resumption(NamedTuple):
    """What an audit continues from. `cleared`: what earlier audits had seen was discarded, as requested."""

    state: State
    history: AuditHistory
    cleared: bool


def resume(out: Storage, lake: LakeHead, request: AuditRequest, now: int) -> Resumption:
    """Read the state and the history of a lake, or make new ones. `now`: microseconds.

    A history that is lost is replaced at once, so that this is known even if the audit is killed. Raises Conflict if
    the output holds an audit of another lake, unless it is discarded, and LakeUnavailable.
    """
    found = _read(out)
    history = found if isinstance(found, AuditHistory) else None
    if request.discards:
        cleared = found is not None or _has_report(out)
        key = history.key if history is not None and history.lake == lake.id else State(lake=lake.id).key
        return Resumption(State(lake=lake.id, key=key), AuditHistory(lake=lake.id, key=key), cleared)
    if history is not None and history.lake != lake.id:
        raise another_lake(out)
    state = open_state(out, lake, full=request.full)
    if history is None:
        history = AuditHistory(lake=lake.id, key=state.key)
        if found is not None or state.entries or _has_report(out):
            history.lost_at, history.lost = now, "is missing" if found is None else "is damaged"
        keep_history(out, history)
    elif state.key != history.key:
        state = State(lake=lake.id, key=history.key)
    history.adopt(state)
    return Resumption(state, history, cleared=False)


def keep_history(out: Storage, history: AuditHistory) -> None:
    """Store the history. Raises LakeUnavailable, also for one that the next audit would not read."""
    text = msgspec.json.encode(history)
    content = b"%s%s\n%s" % (_HEADER, hashlib.sha256(text).hexdigest().encode(), text)
    if len(content) > MOST_KEPT:
        raise TooLargeFile(
            f"{HISTORY} in {out.url} would have more than {MOST_KEPT >> 20:,} MiB: the lake has too many segments",
            hint="compact the lake, and start over with --full, and without --from and --to",
        )
    out.put(HISTORY, content)


def _read(out: Storage) -> AuditHistory | bytes | None:
    """Return the history; bytes if its file is damaged or too large, None if it is missing. Raises LakeUnavailable."""
    try:
        content = out.read_within(HISTORY, MOST_KEPT)
    except NotFound:
        return None
    except TooLargeFile:
        return b""
    header, _, text = content.partition(b"\n")
    if header != _HEADER + hashlib.sha256(text).hexdigest().encode():
        return content
    try:
        found = msgspec.json.decode(text, type=AuditHistory)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content
    return found if found.sums == SUMS else _without_totals(found)


def _without_totals(history: AuditHistory) -> AuditHistory:
    """Return a history without its sums if they are of another version: then only the numbers of its rows are
    compared."""
    segments = {name: replace(one, total=None) for name, one in history.segments.items()}
    return replace(history, sums=SUMS, segments=segments, ranges=[replace(one, total=None) for one in history.ranges])


def _has_report(out: Storage) -> bool:
    return any(entry.path == REPORT for entry in out.list(""))


def _segments_with(seen: SeenRange, segments: Sequence[Segment]) -> list[Segment]:
    """Return those of a ledger's segments, in order and without overlaps, that have some of a range's numbers."""
    first = bisect_right(segments, seen.after, key=lambda one: one.upto)
    last = bisect_left(segments, seen.upto, key=lambda one: one.after)
    return [*segments[first:last]]


def _common(seen: SeenRange, segment: Segment) -> tuple[int, int]:
    """Return the numbers (after, upto] that are in a range and in a segment."""
    return max(seen.after, segment.after), min(seen.upto, segment.upto)


def _part(sums: Sequence[RangeSum], wanted: tuple[int, int]) -> RangeSum | None:
    return next((one for one in sums if (one.after, one.upto) == wanted), None)


def _follows(one: SeenRange, other: SeenRange) -> bool:
    return (one.ledger, one.after) == (other.ledger, other.upto)


def _merge_ranges(one: SeenRange, other: SeenRange) -> SeenRange:
    total = None if one.total is None or other.total is None else _wrapped((one.total, other.total))
    return SeenRange(one.ledger, one.after, other.upto, one.rows + other.rows, total)


def _is_same(seen: SeenRange, parts: Sequence[RangeSum]) -> bool:
    """Return whether the parts together have as many rows as the range had and, if the sum of the range is known, the
    same sum."""
    total = _wrapped(one.total for one in parts)
    return seen.rows == sum(one.rows for one in parts) and seen.total in (None, total)


def _wrapped(totals: Iterable[int]) -> int:
    """Return the sum of signed 64-bit numbers, wrapped around to a signed 64-bit number."""
    return (sum(totals) + (1 << 63)) % (1 << 64) - (1 << 63)
