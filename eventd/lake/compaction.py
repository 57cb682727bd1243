"""Compacts closed days into the archive: a few files instead of thousands.

Readers are not disturbed: segments that the archive replaces stay for at least a day. A run that is interrupted leaves
a valid lake, and the next run continues. Only one program at a time should compact the ledgers of a node; two at the
same time do the work twice, without harm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

from eventd.lake.archive_checks import LandingAuthor
from eventd.lake.coverage import Span, choose, holes
from eventd.lake.file_tree import without_replaced
from eventd.lake.layout import ARCHIVE, SegmentName, archived, slug
from eventd.lake.ledger_files import DAY, GRACE, Done, LedgerFiles, list_files, remove_segments
from eventd.lake.listed_files import read_small
from eventd.lake.manifest import Manifest, Unreadable, decode
from eventd.lake.segment_checks import manifest_fault
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment, TooLargeSegment, write_segment
from eventd.runtime.clock import SECOND

ARCHIVE_ROWS: Final = 2_000_000
"""Maximum number of rows in one file of the archive; a single segment with more rows is archived whole."""

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
    for key, files in sorted(list_files(storage, names).items()):
        storage.delete(place.data for place in files.unfinished if _is_left_over(place, files))
        yield from _compact(storage, names[key.slug], files, now, after, most, signing)
        yield from _remove_archived(storage, files, now - grace)


def _is_left_over(place: SegmentName, files: LedgerFiles) -> bool:
    """Return whether a data file without a manifest is left from an interrupted run.

    A file in the landing counts as left over only if the archive holds its rows: otherwise its node may still write
    the manifest.
    """
    return place.tree == ARCHIVE or not holes(files.archive, Span(place.after, place.upto))


def _compact(
    storage: Storage, node: str, files: LedgerFiles, now: int, after: int, most: int, signing: ArchiveSigning | None
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


def _remove_archived(storage: Storage, files: LedgerFiles, before: int) -> Iterator[Done]:
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
            remove_segments(storage, [whole])
            yield Done(removed=1)
            continue
        remove_segments(storage, parts)
        text = read_small(storage, [whole.manifest]).get(whole.manifest)
        if text is not None:  # or it would list segments that no longer exist
            storage.put(whole.manifest, without_replaced(text))
        yield Done(removed=len(parts))


def _end_of(day: str) -> int:
    return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * SECOND + DAY
