"""Reads rows from lakes, by their manifests. A task reads whole segments, each checked against its digest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eventd.audit.source.filters import may_hold
from eventd.audit.source.options import OnGap, SourceOptions
from eventd.audit.source.origin import LedgerExtent, LedgerPartition, Snapshot, UnreadableRows, rows_gone
from eventd.errors import Invalid
from eventd.lake.coverage import Span, choose, holes
from eventd.lake.layout import ARCHIVE, LANDING, NODES, LedgerKey
from eventd.lake.reader import Survey, survey
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect
from eventd.lake.stored_files import StoredFile
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa


class _LedgerSegments(NamedTuple):
    """The segments of a ledger in the lake `place`, ascending and without overlaps, and the losses of the ledger."""

    place: str
    segments: Sequence[Segment]
    losses: Sequence[UnreadableRows]


class LakeOrigin:
    """An origin of rows: the ledgers in one or many lakes."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._storages: dict[str, Storage] = {}
        self._surveys: dict[str, tuple[Sequence[StoredFile], Survey]] = {}
        self._held: dict[LedgerKey, _LedgerSegments] = {}

    def snapshot(self) -> Snapshot:
        self._held = {}
        for place in self._options.places:
            for ledger, held in self._segments_of(place):
                if ledger in self._held:
                    other = connect(self._held[ledger].place).url
                    raise Invalid(
                        f"the node {ledger.node} is in two lakes, {other} and {self._storage(place).url}",
                        hint="give only one of them",
                    )
                self._held[ledger] = held
        extents = [_reach(ledger, held) for ledger, held in self._held.items() if held.segments]
        return Snapshot(extents, [loss for held in self._held.values() for loss in held.losses])

    def limit(self, ledger: LedgerKey, after: int, upto: int, rows: int) -> int:
        counted, reached = 0, after
        for segment in self._between(ledger, after, upto):
            counted += segment.manifest.rows
            if counted > rows and reached > after:
                break
            reached = min(segment.place.upto, upto)
        return reached if reached > after else upto

    def split(self, ledger: LedgerKey, after: int, upto: int) -> list[LedgerPartition]:
        partitions: list[list[Segment]] = []
        rows = 0
        for segment in self._between(ledger, after, upto):
            if not may_hold(segment.manifest, self._options.conditions):
                continue
            rows += segment.manifest.rows
            if not partitions or rows > self._options.rows_per_partition:
                partitions.append([])
                rows = segment.manifest.rows
            partitions[-1].append(segment)
        place = self._held[ledger].place if partitions else ""
        return [
            LedgerPartition(ledger, max(after, part[0].place.after), min(upto, part[-1].place.upto), place, part)
            for part in partitions
        ]

    def read(self, partition: LedgerPartition, columns: Sequence[str]) -> Iterator[pa.Table]:
        storage = self._storage(partition.place)
        for segment in partition.hint:
            try:
                yield read_segment(storage, segment, columns)
            except BadSegment as error:
                yield from self._read_elsewhere(storage, partition, segment, columns, str(error))

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    def _read_elsewhere(
        self, storage: Storage, partition: LedgerPartition, bad: Segment, columns: Sequence[str], reason: str
    ) -> Iterator[pa.Table]:
        """Yield the rows of a segment whose file is corrupt or gone from other segments that hold them.

        A file is gone if it was compacted after the read was planned. If the other segments lack any of the rows, this
        raises RowsGone; with `onGap=skip`, it skips all rows of the segment.
        """
        place = bad.place
        span = Span(max(partition.after, place.after), min(partition.upto, place.upto))
        good = [one for one in survey(storage).segments if _ledger(one) == partition.ledger and one.place != place]
        found = [one for one in choose(good) if one.place.upto > span.after and one.place.after < span.upto]
        if holes([one.place for one in found], span):
            if self._options.on_gap is OnGap.SKIP:
                return
            raise rows_gone([UnreadableRows(partition.ledger, span.after, span.upto, f"{place.name}: {reason}")])
        for segment in found:
            try:
                yield _between(read_segment(storage, segment, columns), span)
            except BadSegment as error:
                if self._options.on_gap is OnGap.FAIL:
                    raise rows_gone(
                        [UnreadableRows(partition.ledger, span.after, span.upto, f"{segment.place.name}: {error}")]
                    ) from None

    def _between(self, ledger: LedgerKey, after: int, upto: int) -> Iterator[Segment]:
        held = self._held.get(ledger)
        for segment in held.segments if held else ():
            if segment.place.upto > after and segment.place.after < upto:
                yield segment

    def _segments_of(self, place: str) -> Iterator[tuple[LedgerKey, _LedgerSegments]]:
        found = self._survey(place)
        book = self._options.book
        segments: defaultdict[LedgerKey, list[Segment]] = defaultdict(list)
        for one in found.segments:
            if one.place.book is book and self._options.wants(one.manifest.node, one.manifest.epoch):
                segments[_ledger(one)].append(one)
        losses: defaultdict[LedgerKey, list[UnreadableRows]] = defaultdict(list)
        for trouble in found.troubles:
            if trouble.book is book and self._options.wants(trouble.node, trouble.epoch):
                ledger = LedgerKey(trouble.node, trouble.epoch, book)
                losses[ledger].append(
                    UnreadableRows(ledger, trouble.after, trouble.upto, f"{trouble.name}: {trouble.message}")
                )
        for ledger in {**segments, **losses}:
            yield (
                ledger,
                _LedgerSegments(place, sorted(segments[ledger], key=lambda one: one.place.after), losses[ledger]),
            )

    def _survey(self, place: str) -> Survey:
        """Return a survey of the lake `place`: the previous one if its files still have the same paths and sizes.

        Streams survey often, so manifests are not read again then. Only states of nodes and the files of the ledger
        table `options.book` are compared.
        """
        storage = self._storage(place)
        book = self._options.book.value
        # NODES is listed first, as in a survey, so that no state refers to a segment that is not listed.
        entries = [
            entry for folder in (NODES, f"{LANDING}/{book}", f"{ARCHIVE}/{book}") for entry in storage.list(folder)
        ]
        if place not in self._surveys or self._surveys[place][0] != entries:
            self._surveys[place] = (entries, survey(storage))
        return self._surveys[place][1]

    def _storage(self, place: str) -> Storage:
        if place not in self._storages:
            self._storages[place] = connect(place)
        return self._storages[place]


def _ledger(segment: Segment) -> LedgerKey:
    return LedgerKey(segment.manifest.node, segment.manifest.epoch, segment.place.book)


def _reach(ledger: LedgerKey, held: _LedgerSegments) -> LedgerExtent:
    """Return the extent from the first segment to the end, or to the first gap without a known loss."""
    after = upto = held.segments[0].place.after
    for segment in held.segments:
        lost = [Span(loss.after, loss.upto) for loss in held.losses if loss.upto is not None]
        if segment.place.after > upto and holes(lost, Span(upto, segment.place.after)):
            break  # the segment may not be shipped yet
        upto = segment.place.upto
    return LedgerExtent(ledger, after, upto)


def _between(table: pa.Table, span: Span) -> pa.Table:
    from pyarrow import compute

    number = table["number"]
    return table.filter(compute.and_(compute.greater(number, span.after), compute.less_equal(number, span.upto)))
