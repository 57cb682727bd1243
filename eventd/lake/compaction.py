"""Compacts closed days into the archive, a few files instead of thousands, and deletes what has expired.

Readers are not disturbed: segments that the archive replaces, or that were marked as expired, stay for at least a day.
A run that is interrupted leaves a valid lake, and the next run continues. Only one program at a time should compact
the ledgers of a node; two at the same time do the work twice, without harm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec

from eventd.lake.archive_checks import LandingAuthor
from eventd.lake.coverage import Span, choose, holes
from eventd.lake.expiry import Expiry, Mark, read_expiry, write_expiry
from eventd.lake.file_tree import TREES, without_replaced
from eventd.lake.layout import (
    ARCHIVE,
    DATA,
    LANDING,
    MANIFEST,
    LedgerSlug,
    SegmentName,
    archived,
    day_of,
    expiry_path,
    parse_path,
    slug,
    state_path,
)
from eventd.lake.listed_files import read_small
from eventd.lake.manifest import Manifest, NodeState, SegmentRange, Unreadable, decode
from eventd.lake.reader import read_segment, read_state, state_files
from eventd.lake.schema import Ledger
from eventd.lake.segment_checks import manifest_fault
from eventd.lake.segment_file import BadSegment
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment, TooLargeSegment, write_segment, write_state
from eventd.runtime.clock import SECOND

DAY: Final = 86_400 * SECOND
GRACE: Final = DAY
"""How long replaced and expired segments are kept for readers (microseconds)."""
ARCHIVE_ROWS: Final = 2_000_000
"""Maximum number of rows in one file of the archive; a single segment with more rows is archived whole."""


class Done(NamedTuple):
    """The result of one step: the number of segments copied to the archive, deleted, and marked as expired.

    A deleted state of an old epoch counts as `removed` too.
    """

    compacted: int = 0
    removed: int = 0
    expired: int = 0


class LedgerRetention(NamedTuple):
    """The work of retention on one ledger of a node and epoch: the segments to mark as expired, and those to
    delete."""

    node: str
    epoch: str
    book: Ledger
    expired: Sequence[SegmentName]
    removed: Sequence[SegmentName]


class _Files(NamedTuple):
    """The segments of one ledger in the landing and in the archive; `unfinished` are data files without a manifest."""

    landing: list[SegmentName]
    archive: list[SegmentName]
    unfinished: list[SegmentName]

    @property
    def both(self) -> list[SegmentName]:
        return [*self.landing, *self.archive]


Announce = Callable[[SegmentName, str, bytes], None]
"""A function that gets the place of a new segment of the archive, its node, and its manifest before this is written."""


class ArchiveSigning(Protocol):
    """What a node with a key says of the segments that it archives. Both raise LakeUnavailable."""

    def announce(self, place: SegmentName, node: str, manifest: bytes) -> None:
        """Sign a new segment of the archive, before its manifest is written: see `Announce`."""
        ...

    def author(self, place: SegmentName, node: str, manifest: bytes) -> LandingAuthor:
        """Return who wrote a segment of the landing with this manifest."""
        ...


def compacting(
    storage: Storage,
    nodes: Collection[str],
    *,
    now: int,
    after: int,
    grace: int = GRACE,
    most: int = ARCHIVE_ROWS,
    signing: ArchiveSigning | None = None,
) -> Iterator[Done]:
    """Compact the closed days of the nodes with these names, and yield the result of each step.

    A day is closed `after` microseconds past its end. Data files that an interrupted run left are deleted immediately;
    segments that a file of the archive replaces are deleted when that file is `grace` microseconds old. `most`: see
    `ARCHIVE_ROWS`. With `signing`, segments that another program wrote or changed stay as they are. Raises
    LakeUnavailable, MissingExtra.
    """
    names = {slug(node): node for node in nodes}
    for key, files in sorted(_list(storage, names).items()):
        storage.delete(place.data for place in files.unfinished if _is_left_over(place, files))
        yield from _compact(storage, names[key.slug], files, now, after, most, signing)
        yield from _remove_archived(storage, files, now - grace)


def retaining(storage: Storage, nodes: Collection[str], *, now: int, keep: int, grace: int = GRACE) -> Iterator[Done]:
    """Mark segments of days older than `keep` as expired, delete those marked at least `grace` ago; yield each result.

    Both times are in microseconds. The state of a node is rewritten to no longer promise marked segments. The state of
    an old epoch is deleted if it has no segments and was last written `keep` + `grace` ago. Raises LakeUnavailable.
    """
    names = {slug(node): node for node in nodes}
    ledgers = _list(storage, names)
    states = _read_states(storage, names)
    for slug_, epoch in sorted({(key.slug, key.epoch) for key in ledgers}):
        books = {key.book: files for key, files in ledgers.items() if key[:2] == (slug_, epoch)}
        history = _EpochRetention(storage, slug_, epoch, states.get((slug_, epoch)))
        yield from history.retain(books, now, keep, grace)
    yield from _forget_epochs(storage, states, ledgers, now - keep - grace)


def plan_retention(
    storage: Storage, nodes: Collection[str], *, now: int, keep: int, grace: int = GRACE
) -> list[LedgerRetention]:
    """Return the segments that `retaining` would mark or delete, by ledger, without changing the lake.

    Ledgers without any are left out. Raises like `retaining`.
    """
    names = {slug(node): node for node in nodes}
    states = _read_states(storage, names)
    plans = []
    for key, files in sorted(_list(storage, names).items()):
        history = _EpochRetention(storage, key.slug, key.epoch, states.get((key.slug, key.epoch)))
        step = history.plan(key.book, files, now, keep, grace)
        if step.expired or step.removed:
            plans.append(LedgerRetention(names[key.slug], key.epoch, key.book, step.expired, step.removed))
    return plans


def _list(storage: Storage, names: Collection[str]) -> dict[LedgerSlug, _Files]:
    endings: defaultdict[SegmentName, set[str]] = defaultdict(set)
    for entry in [*storage.list(LANDING), *storage.list(ARCHIVE)]:
        place = parse_path(entry.path)
        if place is not None and place.slug in names:
            endings[place].add(entry.path.removeprefix(place.name))
    ledgers: defaultdict[LedgerSlug, _Files] = defaultdict(lambda: _Files([], [], []))
    for place, there in sorted(endings.items(), key=lambda item: (item[0].after, item[0].upto)):
        files = ledgers[place.ledger]
        if there == {DATA, MANIFEST}:
            (files.archive if place.tree == ARCHIVE else files.landing).append(place)
        elif there == {DATA}:
            files.unfinished.append(place)
    return ledgers


def _is_left_over(place: SegmentName, files: _Files) -> bool:
    """Return whether a data file without a manifest is left from an interrupted run.

    A file in the landing counts as left over only if the archive holds its rows: otherwise its node may still write
    the manifest.
    """
    return place.tree == ARCHIVE or not holes(files.archive, Span(place.after, place.upto))


# --- compaction -----------------------------------------------------------------------------------------------------


def _compact(
    storage: Storage, node: str, files: _Files, now: int, after: int, most: int, signing: ArchiveSigning | None
) -> Iterator[Done]:
    by_day: defaultdict[str, list[SegmentName]] = defaultdict(list)
    for place in choose([place for place in files.landing if holes(files.archive, Span(place.after, place.upto))]):
        if _end_of(place.day) + after <= now:
            by_day[place.day].append(place)
    for day, places in sorted(by_day.items()):
        for segments, announce in _by_author(storage, node, places, signing):
            for run in _runs(segments, most):
                for segment in _merge(storage, node, day, run, now, announce):
                    files.archive.append(segment.place)
                    yield Done(compacted=len(segment.manifest.replaces))


def _by_author(
    storage: Storage, node: str, places: Sequence[SegmentName], signing: ArchiveSigning | None
) -> Iterator[tuple[list[Segment], Announce | None]]:
    """Yield the segments to archive, each group with the function that signs its archive, if the node may sign that.

    The bytes that are compared with the lines of the node are those that are merged: a manifest may change at any time.
    """
    texts = read_small(storage, [place.manifest for place in places])
    if signing is None:
        yield _decode_manifests(places, texts), None
        return
    groups = defaultdict[LandingAuthor, list[SegmentName]](list)
    for place in places:
        groups[signing.author(place, node, texts.get(place.manifest, b""))].append(place)
    yield _decode_manifests(groups[LandingAuthor.SIGNED], texts), signing.announce
    yield _decode_manifests(groups[LandingAuthor.UNSIGNED], texts), None


def _read_manifests(storage: Storage, places: Sequence[SegmentName]) -> list[Segment]:
    return _decode_manifests(places, read_small(storage, [place.manifest for place in places]))


def _decode_manifests(places: Sequence[SegmentName], texts: Mapping[str, bytes]) -> list[Segment]:
    segments = []
    for place in places:
        try:
            segments.append(Segment(place, decode(texts.get(place.manifest, b""), Manifest)))
        except Unreadable:
            continue  # missing, too large or damaged: it is left as it is, so that the cause can be found
    return segments


def _runs(segments: Sequence[Segment], most: int) -> Iterator[list[Segment]]:
    """Yield groups of adjacent segments of up to `most` rows in all; a segment with more rows is a group by itself."""
    run: list[Segment] = []
    rows = 0
    for segment in segments:
        if run and (run[-1].upto != segment.after or rows + segment.manifest.rows > most):
            yield run
            run, rows = [], 0
        run.append(segment)
        rows += segment.manifest.rows
    if run:
        yield run


def _merge(
    storage: Storage, node: str, day: str, run: Sequence[Segment], now: int, announce: Announce | None
) -> Iterator[Segment]:
    """Write the rows of a run of segments to one file of the archive, and yield the new segment.

    If a segment is invalid, or the file would take too much memory, each half of the run is merged on its own, until
    only the invalid ones are left out.
    """
    first = run[0].place
    place = archived(first.book, node, first.epoch, first.after, run[-1].upto, day=day)
    try:
        yield write_segment(
            storage,
            place,
            (read_segment(storage, segment) for segment in run),
            node=node,
            now=now,
            payloads=any(segment.manifest.payloads for segment in run),
            leaves=any(segment.manifest.leaves for segment in run),
            replaces=tuple(segment.place.name for segment in run),
            lost=tuple(lost for segment in run for lost in segment.manifest.lost),
            announce=None if announce is None else partial(announce, place, node),
        )
    except (BadSegment, TooLargeSegment):
        if len(run) > 1:
            middle = len(run) // 2
            yield from _merge(storage, node, day, run[:middle], now, announce)
            yield from _merge(storage, node, day, run[middle:], now, announce)


def _remove_archived(storage: Storage, files: _Files, before: int) -> Iterator[Done]:
    """Delete the landing segments in the range of an archive file written at `before` (microseconds) or earlier.

    The manifest of that file then names no replaced segments any more. If its rows cannot be read, it is itself deleted
    instead; one whose manifest is not that of a segment is left as it is, so that the cause can be found.
    """
    for whole in files.archive:
        parts = [place for place in files.landing if whole.after <= place.after and place.upto <= whole.upto]
        if not parts:
            continue
        found = _read_manifests(storage, [whole])
        if not found or manifest_fault(found[0].manifest) is not None or found[0].manifest.written_at > before:
            continue
        try:
            read_segment(storage, found[0], ["number"])
        except BadSegment:  # the segments that it replaces still exist: the next run archives them again
            _remove(storage, [whole])
            yield Done(removed=1)
            continue
        _remove(storage, parts)
        text = read_small(storage, [whole.manifest]).get(whole.manifest)
        if text is not None:  # or it would list segments that no longer exist
            storage.put(whole.manifest, without_replaced(text))
        yield Done(removed=len(parts))


def _remove(storage: Storage, places: Sequence[SegmentName]) -> None:
    storage.delete(place.manifest for place in places)  # manifests first: a file without one does not count
    storage.delete(place.data for place in places)


# --- retention ------------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """The work for one ledger: the segments to mark as expired, and the segments and unfinished files to delete."""

    expired: Sequence[SegmentName]
    removed: Sequence[SegmentName]
    unfinished: Sequence[SegmentName]
    kept: tuple[Mark, ...]
    """The marks of the ledger that remain afterwards, including the new one."""


class _EpochRetention:
    """Retention of one node and epoch: reads and changes its state and its marks, and deletes its segments."""

    def __init__(self, storage: Storage, slug: str, epoch: str, state: NodeState | None) -> None:
        self._storage = storage
        self._slug, self._epoch = slug, epoch
        self._state = state
        self._expiry = read_expiry(storage, slug, epoch)

    def plan(self, book: Ledger, files: _Files, now: int, keep: int, grace: int) -> _Step:
        """Return the work for one ledger that is due at `now`.

        A segment is deleted only if its mark is at least `grace` old and its day older than `keep` (microseconds). The
        ledger `history` is kept: it is small, and the trees of later events cannot be computed without it.
        """
        if book is Ledger.HISTORY:
            return _Step((), (), (), ())
        last_day = day_of(now - keep)
        old = _prefix(files, last_day)
        marks = tuple(mark for mark in self._expiry.marks.get(book, ()) if not self._promises(book, mark.upto))
        marked = max((mark.upto for mark in marks), default=-1)
        due = max((mark.upto for mark in marks if mark.at <= now - grace), default=-1)
        due = min(due, old[-1].upto if old else -1)
        expired = [place for place in old if place.upto > marked]
        left = tuple(mark for mark in marks if mark.upto > due)
        return _Step(
            expired=expired,
            removed=[place for place in files.both if place.upto <= due and place.day < last_day],
            unfinished=[place for place in files.unfinished if place.upto <= due],
            kept=(*left, Mark(upto=expired[-1].upto, at=now)) if expired else left,
        )

    def _promises(self, book: Ledger, upto: int) -> bool:
        """Return whether the node's state promises any row with a number up to `upto`, so that readers rely on the
        row."""
        reach = self._state.segments.get(book) if self._state is not None else None
        return reach is not None and reach.after < min(upto, reach.upto)

    def retain(self, books: Mapping[Ledger, _Files], now: int, keep: int, grace: int) -> Iterator[Done]:
        """Mark and delete the due segments of each ledger, and yield each result; `books` loses the deleted ones."""
        for book, files in sorted(books.items()):
            step = self.plan(book, files, now, keep, grace)
            if step.expired:
                self._withdraw(book, step.expired[-1].upto)
                yield Done(expired=len(step.expired))
            self._storage.delete(place.data for place in step.unfinished)
            if step.removed:
                _remove(self._storage, step.removed)
                for place in step.removed:
                    (files.archive if place.tree == ARCHIVE else files.landing).remove(place)
                yield Done(removed=len(step.removed))
            self._note(book, step.kept)

    def _withdraw(self, book: Ledger, upto: int) -> None:
        """Rewrite the node's state so that it promises no row with a number up to `upto`.

        The state is read again first, because the node may have rewritten it.
        """
        if self._state is None:
            return
        self._state = read_state(self._storage, self._state.node, self._epoch)
        if self._state is None or not self._promises(book, upto):
            return
        reach = self._state.segments[book]
        kept = SegmentRange(after=min(upto, reach.upto), upto=reach.upto)
        self._state = msgspec.structs.replace(self._state, segments={**self._state.segments, book: kept})
        write_state(self._storage, self._state)

    def _note(self, book: Ledger, marks: tuple[Mark, ...]) -> None:
        if self._expiry.marks.get(book, ()) != marks:
            self._expiry = Expiry(marks={**self._expiry.marks, book: marks})
            write_expiry(self._storage, self._slug, self._epoch, self._expiry)


def _forget_epochs(
    storage: Storage, states: Mapping[tuple[str, str], NodeState], ledgers: Mapping[LedgerSlug, _Files], before: int
) -> Iterator[Done]:
    """Delete the files of each epoch that has no segments and whose state was last written before `before`.

    They are the state, its marks, and the lines of its tree of files. Whole days are compared; `before` is in
    microseconds. The state of a node's latest epoch stays.
    """
    newest = {slug: max(s.began_at for (other, _), s in states.items() if other == slug) for slug, _ in states}
    for (node, epoch), state in states.items():
        is_empty = not any(files.both for key, files in ledgers.items() if key[:2] == (node, epoch))
        if is_empty and day_of(state.as_of) < day_of(before) and state.began_at < newest[node]:
            lines = [one.path for one in storage.list(f"{TREES}/{node}/{epoch}")]
            storage.delete([state_path(state.node, epoch), expiry_path(node, epoch), *lines])
            yield Done(removed=1)


def _prefix(files: _Files, day: str) -> list[SegmentName]:
    """Return the segments, selected without overlaps and in order, that precede the first segment of `day` or a later
    day."""
    old = []
    for place in choose(files.both):
        if place.day >= day:
            break
        old.append(place)
    return old


def _read_states(storage: Storage, names: Collection[str]) -> dict[tuple[str, str], NodeState]:
    found = {(file.slug, file.epoch): file.state for file in state_files(storage) if file.slug in names}
    return {key: state for key, state in found.items() if isinstance(state, NodeState)}


def _end_of(day: str) -> int:
    return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * SECOND + DAY
