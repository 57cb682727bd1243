"""Blocks: records that were stored together, as one text of lines. Pure.

A record costs most where it is a row: its columns are bound one by one, and every index takes an entry. So what is
stored at once is one row, and its text is that of its canonical events, line by line. Where a block lies is not in its
text: so a batch is stored as it was read, and a block goes over the wire as it is stored.
What a reader asks most (does anything in here expire, which types and sources occur) stands beside the text, so that a
block that is wanted as a whole, or not at all, is never taken apart.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import accumulate, repeat
from typing import NamedTuple, Self

from eventd.log.core.records import content_size
from eventd.log.core.values import Drafts, Record
from federation.event import Outline, expiry_micros, micros, read_outlines
from federation.lines import Bodies, Piece, size_of

BLOCK_RECORDS = 1000
"""Most records of a block."""
BLOCK_BYTES = 256 << 10
"""Characters of bodies in a block at most, unless one record has more: who wants one record reads all of its block."""
MOST_NAMES = 16
"""Different types, sources or paths that a block tells; where there are more, it has to be taken apart."""

NO_PATH = '[""]'
"""The paths of a block of what entered the log here."""


class Block(NamedTuple):
    """One row of the log: `records` lines, whose positions and seqs run on from those of the first.

    `own` is 1 where they entered the log here, else 0. Nothing expires before `expires_first`, and where it is None
    nothing expires. `types`, `sources` and `paths` name all that occur, and maybe more, as JSON lists; empty: too many.
    A line of the text is a body where `paths` names one path alone; elsewhere it is path, tab and body. An empty body:
    its record is gone.
    """

    position: int
    topic_id: int
    seq: int
    records: int
    bytes: int
    recorded_at: int
    own: int
    expires_first: int | None
    types: str
    sources: str
    paths: str
    text: str

    @property
    def last(self) -> int:
        """The position of its last record."""
        return self.position + self.records - 1

    @property
    def last_seq(self) -> int:
        """The seq of its last record."""
        return self.seq + self.records - 1

    @property
    def path(self) -> str | None:
        """The path of all its records; None where each line has its own."""
        told = names(self.paths)
        return next(iter(told)) if told is not None and len(told) == 1 else None

    def rows(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The lines of its records, from the one with this number to before that one, without line feeds."""
        stop = self.records if stop is None else stop
        return self.text.split("\n", stop)[start:stop]

    def bodies(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The bodies in these lines."""
        return self.bodies_of(self.rows(start, stop))

    def facts(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, str]]:
        """Paths and bodies in these lines."""
        rows, path = self.rows(start, stop), self.path
        return map(_split, rows) if path is None else zip(repeat(path), rows, strict=False)

    def bodies_of(self, rows: list[str]) -> list[str]:
        """The bodies in some of its lines."""
        return rows if self.path is not None else [row[row.index("\t") + 1 :] for row in rows]

    @property
    def empty_row(self) -> str:
        """What a line is when its record is gone."""
        return "" if self.path is not None else "\t"

    @property
    def has_empty(self) -> bool:
        """Whether any line is empty."""
        if self.path is None:
            return "\t\n" in self.text
        return "\n\n" in self.text or self.text.startswith("\n")

    def within(self, after: int, until: int) -> Self | None:
        """The part of it in `(after, until]`; None when there is none."""
        if after < self.position and until >= self.last:
            return self
        start, stop = max(0, after + 1 - self.position), min(self.records, until + 1 - self.position)
        if start >= stop:
            return None
        rows = self.rows(start, stop)
        return self.made_of(rows, start, sum(map(weight_of, self.bodies_of(rows))))

    def made_of(self, rows: Sequence[str], start: int, size: int) -> Self:
        """A block of these lines, which begin at this one of its own."""
        return self._replace(
            position=self.position + start,
            seq=self.seq + start,
            records=len(rows),
            bytes=size,
            text="\n".join([*rows, ""]),
        )

    def fitting(self, records: int, size: int) -> int:
        """How many of its first records are at most `records`, and at most `size` bytes of bodies."""
        if self.records <= records and self.bytes <= size:
            return self.records
        return bisect_right([*accumulate(map(weight_of, self.bodies(0, min(records, self.records))))], size)


def _split(row: str) -> tuple[str, str]:
    path, _, body = row.partition("\t")
    return path, body


def weight_of(body: str) -> int:
    """What a body counts: an event all of its bytes, a record those of its data and meta."""
    return size_of(body) if body.startswith('{"id":') else content_size(body)


@lru_cache(maxsize=64)  # the same few come again in block after block; other nodes make them up, hence the bound
def names(told: str) -> frozenset[str] | None:
    """The names a block tells; None for too many."""
    return frozenset(json.loads(told)) if told else None


def pack(drafts: Drafts, *, topic_id: int, position: int, seq: int, now: int) -> Iterator[Block]:
    """The blocks of drafts of one kind. `seq` and `position`: of the first."""
    told = (int(drafts.own), drafts.expires_first, _told(drafts.types), _told(drafts.sources))
    for paths, records, size, lines in _texts(drafts):
        yield Block(position, topic_id, seq, records, size, now, *told, paths, lines)
        position, seq = position + records, seq + records


BlockText = tuple[str, int, int, str]
"""Of a block: paths, records, bytes, lines."""


def _texts(drafts: Drafts) -> Iterator[BlockText]:
    distinct, bodies = set(drafts.paths), drafts.bodies
    if len(distinct) == 1 and isinstance(bodies, Bodies) and all(map(_fits, bodies.pieces)):
        return _of_pieces(bodies.pieces, _told(distinct))
    # A path may be longer than its body: what is read at once must stay about as small then.
    longest = max(map(len, distinct)) if len(distinct) > 1 else 0
    return _of_rows(drafts, min(BLOCK_RECORDS, max(1, BLOCK_BYTES // (1 + longest))))


def _fits(piece: Piece) -> bool:
    return piece.records <= BLOCK_RECORDS and len(piece.text) <= BLOCK_BYTES


def _of_pieces(pieces: Sequence[Piece], paths: str) -> Iterator[BlockText]:
    """Blocks of texts that need not be cut."""
    start = 0
    while start < len(pieces):
        stop, records, size = start, 0, 0
        while stop < len(pieces):
            text, count = pieces[stop]
            if records + count > BLOCK_RECORDS or size + len(text) > BLOCK_BYTES:
                break
            stop, records, size = stop + 1, records + count, size + len(text)
        held = Bodies(pieces[start:stop])
        yield paths, records, held.bytes, "".join([text for text, _ in held.pieces])
        start = stop


def _of_rows(drafts: Drafts, most: int) -> Iterator[BlockText]:
    """Blocks of single bodies, `most` records each."""
    bodies = [*drafts.bodies]
    ends = [*accumulate(map(len, bodies))]
    start = 0
    while start < len(ends):
        taken = ends[start - 1] if start else 0
        stop = bisect_right(ends, taken + BLOCK_BYTES, start, min(len(ends), start + most))
        stop = max(stop, start + 1)
        held, paths = bodies[start:stop], drafts.paths[start:stop]
        distinct = set(paths)
        rows = held if len(distinct) == 1 else map("\t".join, zip(paths, held, strict=True))
        lines = "\n".join([*rows, ""])
        sizes = drafts.sizes[start:stop] or map(len if lines.isascii() else size_of, held)
        yield _told(distinct), len(held), sum(sizes), lines
        start = stop


def _told(values: Set[str]) -> str:
    return _write(frozenset(values)) if len(values) <= MOST_NAMES else ""


@lru_cache(maxsize=64)
def _write(names: frozenset[str]) -> str:
    return json.dumps(sorted(names))


def unpack(block: Block, wanted: Callable[[str], object] | None = None) -> list[Record]:
    """Its records, in order; only those of bodies that are `wanted`, if that is given."""
    facts = [*enumerate(block.facts(), block.position)]
    if wanted is not None:
        facts = [fact for fact in facts if wanted(fact[1][1])]
    outlines = read_outlines([body for _, (_, body) in facts])
    shift, topic_id, recorded_at = block.seq - block.position, block.topic_id, block.recorded_at
    return [
        _record(position, topic_id, position + shift, recorded_at, path, body, outline)
        for (position, (path, body)), outline in zip(facts, outlines, strict=True)
    ]


def _record(position: int, topic_id: int, seq: int, recorded_at: int, path: str, body: str, outline: Outline) -> Record:
    return Record(
        position,
        topic_id,
        seq,
        outline.source_node,
        outline.type,
        outline.subject,
        outline.id,
        micros(outline.observed_at),
        expiry_micros(outline),
        recorded_at,
        path,
        size_of(body),
        body,
    )
