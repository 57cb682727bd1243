"""Rows from lakes, by their manifests. A task reads whole segments, each checked against its digest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eventd.audit.source.options import OnGap, Options
from eventd.audit.source.origin import Line, Look, Loss, Piece, Reach, gone
from eventd.errors import Invalid
from eventd.lake.coverage import Span, choose, holes
from eventd.lake.layout import ARCHIVE, LANDING, NODES
from eventd.lake.reader import BadSegment, Survey, read_segment, survey
from eventd.lake.storage import Entry, Storage, connect
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa


class _Shelf(NamedTuple):
    """The segments of a line, in order and without overlaps, in the lake `place`."""

    place: str
    segments: Sequence[Segment]
    losses: Sequence[Loss]


class LakeOrigin:
    """One or many lakes."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._storages: dict[str, Storage] = {}
        self._seen: dict[str, tuple[Sequence[Entry], Survey]] = {}
        self._shelves: dict[Line, _Shelf] = {}

    def look(self) -> Look:
        self._shelves = {}
        for place in self._options.places:
            for line, shelf in self._shelves_of(place):
                if line in self._shelves:
                    other = connect(self._shelves[line].place).url
                    raise Invalid(f"the node {line.node} is in two lakes, {other} and {self._storage(place).url}")
                self._shelves[line] = shelf
        reaches = [_reach(line, shelf) for line, shelf in self._shelves.items() if shelf.segments]
        return Look(reaches, [loss for shelf in self._shelves.values() for loss in shelf.losses])

    def limit(self, line: Line, after: int, upto: int, rows: int) -> int:
        counted, reached = 0, after
        for segment in self._between(line, after, upto):
            counted += segment.manifest.rows
            if counted > rows and reached > after:
                break
            reached = min(segment.place.upto, upto)
        return reached if reached > after else upto

    def split(self, line: Line, after: int, upto: int) -> list[Piece]:
        pieces: list[list[Segment]] = []
        rows = 0
        for segment in self._between(line, after, upto):
            rows += segment.manifest.rows
            if not pieces or rows > self._options.rows_per_partition:
                pieces.append([])
                rows = segment.manifest.rows
            pieces[-1].append(segment)
        place = self._shelves[line].place if pieces else ""
        return [
            Piece(line, max(after, part[0].place.after), min(upto, part[-1].place.upto), place, part) for part in pieces
        ]

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.Table]:
        storage = self._storage(piece.place)
        for segment in piece.hint:
            try:
                yield read_segment(storage, segment, columns)
            except BadSegment as error:
                yield from self._read_elsewhere(storage, piece, segment, columns, str(error))

    def close(self) -> None:
        """Nothing stays open."""

    def _read_elsewhere(
        self, storage: Storage, piece: Piece, bad: Segment, columns: Sequence[str], reason: str
    ) -> Iterator[pa.Table]:
        """What a segment held that was compacted away since it was planned, or cannot be trusted."""
        place = bad.place
        span = Span(max(piece.after, place.after), min(piece.upto, place.upto))
        good = [one for one in survey(storage).segments if _line(one) == piece.line and one.place != place]
        found = [one for one in choose(good) if one.place.upto > span.after and one.place.after < span.upto]
        if holes([one.place for one in found], span):
            if self._options.on_gap is OnGap.SKIP:
                return
            raise gone([Loss(piece.line, span.after, span.upto, f"{place.name}: {reason}")])
        for segment in found:
            try:
                yield _between(read_segment(storage, segment, columns), span)
            except BadSegment as error:
                if self._options.on_gap is OnGap.FAIL:
                    raise gone([Loss(piece.line, span.after, span.upto, f"{segment.place.name}: {error}")]) from None

    def _between(self, line: Line, after: int, upto: int) -> Iterator[Segment]:
        shelf = self._shelves.get(line)
        for segment in shelf.segments if shelf else ():
            if segment.place.upto > after and segment.place.after < upto:
                yield segment

    def _shelves_of(self, place: str) -> Iterator[tuple[Line, _Shelf]]:
        found = self._survey(place)
        book = self._options.book
        segments: defaultdict[Line, list[Segment]] = defaultdict(list)
        for one in found.segments:
            if one.place.book is book and self._options.wants(one.manifest.node, one.manifest.epoch):
                segments[_line(one)].append(one)
        losses: defaultdict[Line, list[Loss]] = defaultdict(list)
        for trouble in found.troubles:
            if trouble.book is book and self._options.wants(trouble.node, trouble.epoch):
                line = Line(trouble.node, trouble.epoch, book)
                losses[line].append(Loss(line, trouble.after, trouble.upto, f"{trouble.name}: {trouble.message}"))
        for line in {**segments, **losses}:
            yield line, _Shelf(place, sorted(segments[line], key=lambda one: one.place.after), losses[line])

    def _survey(self, place: str) -> Survey:
        """A lake as it is. A stream looks every few moments: manifests are read again only where files have changed."""
        storage = self._storage(place)
        book = self._options.book.value
        # NODES first, as the survey does: a state never promises what is not there yet.
        entries = [
            entry for folder in (NODES, f"{LANDING}/{book}", f"{ARCHIVE}/{book}") for entry in storage.list(folder)
        ]
        if place not in self._seen or self._seen[place][0] != entries:
            self._seen[place] = (entries, survey(storage))
        return self._seen[place][1]

    def _storage(self, place: str) -> Storage:
        if place not in self._storages:
            self._storages[place] = connect(place)
        return self._storages[place]


def _line(segment: Segment) -> Line:
    return Line(segment.manifest.node, segment.manifest.epoch, segment.place.book)


def _reach(line: Line, shelf: _Shelf) -> Reach:
    """As far as segments follow on each other, or what lies between them is known to be lost."""
    after = upto = shelf.segments[0].place.after
    for segment in shelf.segments:
        lost = [Span(loss.after, loss.upto) for loss in shelf.losses if loss.upto is not None]
        if segment.place.after > upto and holes(lost, Span(upto, segment.place.after)):
            break  # it may be on its way
        upto = segment.place.upto
    return Reach(line, after, upto)


def _between(table: pa.Table, span: Span) -> pa.Table:
    from pyarrow import compute

    number = table["number"]
    return table.filter(compute.and_(compute.greater(number, span.after), compute.less_equal(number, span.upto)))
