"""Blocks: records that were stored together, as one text of lines. Pure.

One row per record would be expensive: every column is bound and every index gets an entry. So the records of one append
are one row, or a few, whose text has one canonical event, or one record of a topic of records, per line. The text does
not contain positions: a batch is stored as it was read, and sent as it is stored. What most readers check first
(expiries, types and sources) is stored in separate columns, so a block that a peer is to get completely, or not at all,
is usually not decoded.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Final, NamedTuple, Self

import msgspec

from eventd.log.core.records import content_size
from eventd.log.core.values import Drafts, Record
from federation.event import Outline, expiry_micros, micros, read_outlines
from federation.lines import Bodies, BodyRun, size_of

BLOCK_RECORDS = 1000
"""Maximum number of records in a block."""
BLOCK_BYTES = 256 << 10
"""Maximum number of characters of bodies in a block, unless a single record has more.

It is low because a reader of one record reads its whole block."""
MOST_NAMES = 16
"""Maximum number of names (types, sources or paths) that a block lists; with more, its lines must be read instead."""

UNREADABLE = (ValueError, TypeError, OverflowError, msgspec.MsgspecError)
"""Raised for text that is not what this node has stored: the database was damaged, or changed by hand."""

NO_PATH = '[""]'
"""The column `paths` of a block whose records all entered the log at this node."""


class Block(NamedTuple):
    """One row of the log: `records` lines, whose positions and seqs are consecutive from those of the first.

    `own` is 1 if the records have empty paths: they entered the log at this node, and none is a router's copy in a
    topic of records. Nothing expires before `expires_first`; None: nothing expires. `types` (of records: the tags),
    `sources` and `paths` are JSON lists of all names that occur in the block, and possibly others; empty if there are
    too many to list. If `paths` names a single path, a line of the text is a body; otherwise it is path, tab and body.
    A line with an empty body stands for a removed record. `leaf` is the index of the first
    record's leaf in the history's `tree`, and those of the others follow; None: they have no leaves.
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
    tree: int | None
    leaf: int | None
    text: str

    @property
    def last(self) -> int:
        """Return the position of the block's last record."""
        return self.position + self.records - 1

    @property
    def last_seq(self) -> int:
        """Return the seq of the block's last record."""
        return self.seq + self.records - 1

    @property
    def path(self) -> str | None:
        """Return the path of all records of the block; None if each line has its own."""
        paths = names(self.paths)
        return next(iter(paths)) if paths is not None and len(paths) == 1 else None

    def rows(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Return the lines from index `start` to before `stop` (None: to the end), without line breaks."""
        stop = self.records if stop is None else stop
        return self.text.split("\n", stop)[start:stop]

    def bodies(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Return the bodies of the lines from index `start` to before `stop`."""
        return self.bodies_of(self.rows(start, stop))

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, str]]:
        """Yield the path and the body of each line from index `start` to before `stop`."""
        rows, path = self.rows(start, stop), self.path
        return map(_split, rows) if path is None else zip(repeat(path), rows, strict=False)

    def bodies_of(self, rows: list[str]) -> list[str]:
        """Return the bodies of `rows`, which are lines of this block."""
        return rows if self.path is not None else [row[row.index("\t") + 1 :] for row in rows]

    @property
    def empty_row(self) -> str:
        """Return the line that a removed record has in this block."""
        return "" if self.path is not None else "\t"

    @property
    def has_empty(self) -> bool:
        """Return whether any record of the block is removed, so that its line has no body."""
        if self.path is None:
            return "\t\n" in self.text
        return "\n\n" in self.text or self.text.startswith("\n")

    def within(self, after: int, until: int) -> Self | None:
        """Return the part of the block at positions in `(after, until]`; None if there is none."""
        if after < self.position and until >= self.last:
            return self
        start, stop = max(0, after + 1 - self.position), min(self.records, until + 1 - self.position)
        if start >= stop:
            return None
        rows = self.rows(start, stop)
        return self.made_of(rows, start, sum(map(weight_of, self.bodies_of(rows))))

    def made_of(self, rows: Sequence[str], start: int, size: int) -> Self:
        """Return a block of some lines of this one: `rows`, from its line `start` on, with `size` bytes of bodies."""
        return self._replace(
            position=self.position + start,
            seq=self.seq + start,
            records=len(rows),
            bytes=size,
            leaf=None if self.leaf is None else self.leaf + start,
            text="\n".join([*rows, ""]),
        )

    def fitting(self, records: int, size: int) -> int:
        """Return how many of the block's first records fit into `records` records and `size` bytes of bodies."""
        if self.records <= records and self.bytes <= size:
            return self.records
        return bisect_right([*accumulate(map(weight_of, self.bodies(0, min(records, self.records))))], size)


COLUMNS: Final = ", ".join(Block._fields)
"""The columns of a block."""
OUTLINE: Final = ", ".join(
    [*(name for name in Block._fields if name not in ("tree", "leaf", "text")), "NULL, NULL, ''"]
)
"""The columns of a block without its text, and without those that SQLite stores behind it: they would cost as much."""


def _split(row: str) -> tuple[str, str]:
    path, _, body = row.partition("\t")
    return path, body


def weight_of(body: str) -> int:
    """Return the bytes of a body that count as its size: all of an event, data and meta of a record."""
    return size_of(body) if body.startswith('{"id":') else content_size(body)


@lru_cache(maxsize=64)  # the same few occur in block after block; other nodes choose them, hence the limit
def names(listed: str) -> frozenset[str] | None:
    """Return the names in a block's column `types`, `sources` or `paths`; None if there are too many to list."""
    return frozenset(json.loads(listed)) if listed else None


def pack(drafts: Drafts, *, topic_id: int, position: int, seq: int, now: int) -> Iterator[Block]:
    """Yield new blocks with these drafts; either all of their paths are empty, or none is.

    `seq` and `position` are those of the first draft.
    """
    summary = (int(drafts.own), drafts.expires_first, _listed(drafts.types), _listed(drafts.sources))
    for paths, records, size, lines in _texts(drafts):
        yield Block(position, topic_id, seq, records, size, now, *summary, paths, None, None, lines)
        position, seq = position + records, seq + records


BlockText = tuple[str, int, int, str]
"""The content of one new block: the names of its paths, its number of records, the bytes of their bodies, its
lines."""


def _texts(drafts: Drafts) -> Iterator[BlockText]:
    distinct, bodies = set(drafts.paths), drafts.bodies
    if len(distinct) == 1 and isinstance(bodies, Bodies) and all(map(_fits, bodies.pieces)):
        return _of_pieces(bodies.pieces, _listed(distinct))
    # A path may be longer than its body, and reads should stay about as small.
    longest = max(map(len, distinct)) if len(distinct) > 1 else 0
    return _of_rows(drafts, min(BLOCK_RECORDS, max(1, BLOCK_BYTES // (1 + longest))))


def _fits(piece: BodyRun) -> bool:
    return piece.records <= BLOCK_RECORDS and len(piece.text) <= BLOCK_BYTES


def _of_pieces(pieces: Sequence[BodyRun], paths: str) -> Iterator[BlockText]:
    """Yield the `BlockText` of each new block: as many whole pieces as fit into it."""
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
    """Yield the `BlockText` of each new block: single bodies, joined, up to `most` records and `BLOCK_BYTES`."""
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
        yield _listed(distinct), len(held), sum(sizes), lines
        start = stop


def _listed(values: Set[str]) -> str:
    return _write(frozenset(values)) if len(values) <= MOST_NAMES else ""


@lru_cache(maxsize=64)
def _write(names: frozenset[str]) -> str:
    return json.dumps(sorted(names))


def unpack(block: Block, wanted: Callable[[str], object] | None = None) -> list[Record]:
    """Return the events of a block of a group's topic, in order; with `wanted`, only those whose body it accepts."""
    entries = [*enumerate(block.entries(), block.position)]
    if wanted is not None:
        entries = [entry for entry in entries if wanted(entry[1][1])]
    outlines = read_outlines([body for _, (_, body) in entries])
    shift, topic_id, recorded_at = block.seq - block.position, block.topic_id, block.recorded_at
    return [
        _record(position, topic_id, position + shift, recorded_at, path, body, outline)
        for (position, (path, body)), outline in zip(entries, outlines, strict=True)
    ]


def unpack_readable(block: Block) -> list[Record]:
    """Return the events of a block like `unpack`, without those whose line is damaged: such a record is lost."""
    try:
        return unpack(block)
    except UNREADABLE:
        return [*_readable_lines(block)]


def _readable_lines(block: Block) -> Iterator[Record]:
    shift = block.seq - block.position
    for position, row in enumerate(block.rows(), block.position):
        with suppress(*UNREADABLE):
            path, body = _split(row) if block.path is None else (block.path, row)
            [outline] = read_outlines([body])
            yield _record(position, block.topic_id, position + shift, block.recorded_at, path, body, outline)


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
