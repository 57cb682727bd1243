"""Closed days are put into the archive, a file or few instead of thousands, and what is too old is removed.

Nobody who reads meanwhile is disturbed: what the archive takes the place of stays where it is for a day, and so does
what the node's state no longer promises. A run that is broken off leaves a lake that is as good, and the next goes on.
Only one program at a time should tidy up after a node; two at once do the same work twice, and no harm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from eventd.clock import SECOND
from eventd.lake.covering import Span, choose, holes
from eventd.lake.layout import (
    ARCHIVE,
    DATA,
    LANDING,
    MANIFEST,
    Place,
    archived,
    day_of,
    parse_place,
    slug,
    state_path,
)
from eventd.lake.manifest import Manifest, NodeState, Reach, Unreadable, decode, encode
from eventd.lake.reading import BadSegment, read_segment, state_files
from eventd.lake.schema import Book
from eventd.lake.storage import Storage
from eventd.lake.writing import Segment, write_segment, write_state

DAY: Final = 86_400 * SECOND
GRACE: Final = DAY
"""How long what is not needed any more is kept for those who may be reading it (microseconds)."""
ARCHIVE_ROWS: Final = 2_000_000
"""Rows that one file of the archive holds at most, unless a single segment has more."""


class Done(NamedTuple):
    """What one piece of work has done: segments put into the archive, files removed, numbers no longer promised."""

    compacted: int = 0
    removed: int = 0
    forgotten: int = 0


class _Key(NamedTuple):
    slug: str
    epoch: str
    book: Book


class _Files(NamedTuple):
    """The segments of a book by tree, and files that nothing speaks of."""

    landing: list[Place]
    archive: list[Place]
    unfinished: list[Place]

    @property
    def both(self) -> list[Place]:
        return [*self.landing, *self.archive]


def compacting(
    storage: Storage, nodes: Collection[str], *, now: int, after: int, grace: int = GRACE, most: int = ARCHIVE_ROWS
) -> Iterator[Done]:
    """Put the closed days of these nodes into the archive, piece by piece: each step of the iteration is one.

    A day is closed so long `after` its end; what it leaves in the landing goes a `grace` later. In microseconds.
    `most` rows are in one file. Raises LakeUnavailable, MissingExtra.
    """
    names = {slug(node): node for node in nodes}
    for key, files in sorted(_list(storage, names).items()):
        storage.delete(place.data for place in files.unfinished if _is_left_over(place, files))
        yield from _compact(storage, names[key.slug], files, now, after, most)
        yield from _remove_archived(storage, files, now - grace)


def retaining(storage: Storage, nodes: Collection[str], *, now: int, keep: int, grace: int = GRACE) -> Iterator[Done]:
    """Take the promise of days back that are older than `keep`, and remove them a `grace` later; otherwise the same."""
    names = {slug(node): node for node in nodes}
    yield from _retain(storage, names, _list(storage, names), now - keep, grace)


def _list(storage: Storage, names: Collection[str]) -> dict[_Key, _Files]:
    endings: defaultdict[Place, set[str]] = defaultdict(set)
    for entry in [*storage.list(LANDING), *storage.list(ARCHIVE)]:
        place = parse_place(entry.path)
        if place is not None and place.slug in names:
            endings[place].add(entry.path.removeprefix(place.name))
    shelves: defaultdict[_Key, _Files] = defaultdict(lambda: _Files([], [], []))
    for place, there in sorted(endings.items(), key=lambda item: (item[0].after, item[0].upto)):
        files = shelves[_Key(place.slug, place.epoch, place.book)]
        if there == {DATA, MANIFEST}:
            (files.archive if place.tree == ARCHIVE else files.landing).append(place)
        elif there == {DATA}:
            files.unfinished.append(place)
    return shelves


def _is_left_over(place: Place, files: _Files) -> bool:
    """Whether somebody was killed while it was archived, or removed. In the landing it may just be being written."""
    return place.tree == ARCHIVE or not holes(files.archive, Span(place.after, place.upto))


# --- compaction -----------------------------------------------------------------------------------------------------


def _compact(storage: Storage, node: str, files: _Files, now: int, after: int, most: int) -> Iterator[Done]:
    by_day: defaultdict[str, list[Place]] = defaultdict(list)
    for place in choose([place for place in files.landing if holes(files.archive, Span(place.after, place.upto))]):
        if _end_of(place.day) + after <= now:
            by_day[place.day].append(place)
    for day, places in sorted(by_day.items()):
        for run in _runs(_read_manifests(storage, places), most):
            for segment in _merge(storage, node, day, run, now):
                files.archive.append(segment.place)
                yield Done(compacted=len(segment.manifest.replaces))


def _read_manifests(storage: Storage, places: Sequence[Place]) -> list[Segment]:
    texts = storage.read_many([place.manifest for place in places])
    segments = []
    for place in places:
        try:
            segments.append(Segment(place, decode(texts.get(place.manifest, b""), Manifest)))
        except Unreadable:
            continue  # it stays as it is, for those who look for what is wrong
    return segments


def _runs(segments: Sequence[Segment], most: int) -> Iterator[list[Segment]]:
    """Segments that follow each other, up to so many rows."""
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


def _merge(storage: Storage, node: str, day: str, run: Sequence[Segment], now: int) -> Iterator[Segment]:
    """One file of the run; around what cannot be trusted, several."""
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
            replaces=tuple(segment.place.name for segment in run),
        )
    except BadSegment:
        if len(run) > 1:
            middle = len(run) // 2
            yield from _merge(storage, node, day, run[:middle], now)
            yield from _merge(storage, node, day, run[middle:], now)


def _remove_archived(storage: Storage, files: _Files, before: int) -> Iterator[Done]:
    """Remove from the landing what has been in the archive for long enough."""
    for whole in files.archive:
        parts = [place for place in files.landing if whole.after <= place.after and place.upto <= whole.upto]
        if not parts:
            continue
        found = _read_manifests(storage, [whole])
        if not found or found[0].manifest.written_at > before:
            continue
        try:
            read_segment(storage, found[0], ["number"])
        except BadSegment:  # then what it was made of is all there is: it is made again
            _remove(storage, [whole])
            yield Done(removed=1)
            continue
        _remove(storage, parts)
        kept = msgspec.structs.replace(found[0].manifest, replaces=())  # or it would list what nobody can find
        storage.put(whole.manifest, encode(kept))
        yield Done(removed=len(parts))


def _remove(storage: Storage, places: Sequence[Place]) -> None:
    storage.delete(place.manifest for place in places)  # first: a file without one counts for nobody
    storage.delete(place.data for place in places)


# --- retention ------------------------------------------------------------------------------------------------------


def _retain(
    storage: Storage, names: dict[str, str], shelves: dict[_Key, _Files], before: int, grace: int
) -> Iterator[Done]:
    """Promise no longer what is of days before a time; remove it a grace later."""
    last_day, gone_day = day_of(before), day_of(before - grace)
    states = _read_states(storage, names)
    for key, files in sorted(shelves.items()):
        old = _prefix(files, last_day)
        state = states.get((key.slug, key.epoch))
        if old and state is not None and (forgotten := _forget(storage, state, key.book, old[-1].upto)):
            states[key.slug, key.epoch] = forgotten
            yield Done(forgotten=len(old))
        storage.delete(place.data for place in files.unfinished if place.day < gone_day)
        gone = [place for place in files.both if place.day < gone_day and (not old or place.upto <= old[-1].upto)]
        if old and gone:
            _remove(storage, gone)
            for place in gone:
                (files.archive if place.tree == ARCHIVE else files.landing).remove(place)
            yield Done(removed=len(gone))
    newest = {slug: max(s.began_at for (other, _), s in states.items() if other == slug) for slug, _ in states}
    for (node, epoch), state in states.items():
        is_empty = not any(files.both for key, files in shelves.items() if key[:2] == (node, epoch))
        if is_empty and day_of(state.as_of) < gone_day and state.began_at < newest[node]:
            storage.delete([state_path(state.node, epoch)])
            yield Done(removed=1)


def _prefix(files: _Files, day: str) -> list[Place]:
    """What is of days before this one, up to the first that is not."""
    old = []
    for place in choose(files.both):
        if place.day >= day:
            break
        old.append(place)
    return old


def _forget(storage: Storage, state: NodeState, book: Book, upto: int) -> NodeState | None:
    """Take a promise back; the new state, None where nothing had been promised."""
    reach = state.segments.get(book)
    if reach is None or reach.after >= upto:
        return None
    kept = Reach(after=min(upto, reach.upto), upto=reach.upto)
    changed = msgspec.structs.replace(state, segments={**state.segments, book: kept})
    write_state(storage, changed)
    return changed


def _read_states(storage: Storage, names: Collection[str]) -> dict[tuple[str, str], NodeState]:
    found = {(file.slug, file.epoch): file.state for file in state_files(storage) if file.slug in names}
    return {key: state for key, state in found.items() if isinstance(state, NodeState)}


def _end_of(day: str) -> int:
    return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * SECOND + DAY
