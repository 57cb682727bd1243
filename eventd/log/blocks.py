"""Blocks: records that were stored together, as one text of lines. Pure.

A record costs most where it is a row: its columns are bound one by one, and every index takes an entry. So what is
stored at once is one row, and its text is what goes over the wire: position, path and canonical event, line by line.
What a reader asks most (does anything in here expire, which types and sources occur) stands beside the text, so that a
block that is wanted as a whole, or not at all, is never taken apart.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, Self

from eventd.log.records import content_size
from eventd.log.values import Drafts, Record, size_of
from federation.event import Outline, expiry_micros, micros, read_outlines
from federation.lines import encode_lines, split_line

BLOCK_RECORDS = 1000
"""Most records of a block."""
BLOCK_BYTES = 256 << 10
"""Characters of bodies in a block at most, unless one record has more: who wants one record reads all of its block."""
MOST_NAMES = 16
"""Different types, sources or paths that a block tells; where there are more, it has to be taken apart."""


class Block(NamedTuple):
    """One row of the log: `records` lines, whose positions and seqs run on from those of the first.

    `own` is 1 where they entered the log here, else 0. Nothing expires before `expires_first`, and where it is None
    nothing expires. `types`, `sources` and `paths` name all that occur, and maybe more, as JSON lists; empty: too many.
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
    lines: str

    @property
    def last(self) -> int:
        """The position of its last record."""
        return self.position + self.records - 1

    def within(self, after: int, until: int) -> Self | None:
        """The part of it in `(after, until]`; None when there is none."""
        if after < self.position and until >= self.last:
            return self
        start, stop = max(0, after + 1 - self.position), min(self.records, until + 1 - self.position)
        if start >= stop:
            return None
        rows = self.lines.split("\n", stop)[start:stop]
        return self._replace(
            position=self.position + start,
            seq=self.seq + start,
            records=stop - start,
            bytes=sum(weight_of(split_line(row)[2]) for row in rows),
            lines="\n".join([*rows, ""]),
        )

    def fitting(self, records: int, size: int) -> int:
        """How many of its first records are at most `records`, and at most `size` bytes of bodies."""
        if self.records <= records and self.bytes <= size:
            return self.records
        bodies = (split_line(row)[2] for row in self.lines.split("\n", records)[:records] if row)
        return bisect_right([*accumulate(map(weight_of, bodies))], size)


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
    ends = [*accumulate(map(len, drafts.bodies))]
    # A path may be longer than its body: what is read at once must stay about as small then.
    most = min(BLOCK_RECORDS, max(1, BLOCK_BYTES // (1 + max(map(len, set(drafts.paths))))))
    start = 0
    while start < len(ends):
        taken = ends[start - 1] if start else 0
        stop = bisect_right(ends, taken + BLOCK_BYTES, start, min(len(ends), start + most))
        stop = max(stop, start + 1)
        part = slice(start, stop)
        paths, bodies, sizes = drafts.paths[part], drafts.bodies[part], drafts.sizes[part]
        yield _block(paths, bodies, sizes, told, topic_id, position + start, seq + start, now)
        start = stop


Told = tuple[int, int | None, str, str]
"""What is said of all blocks of some drafts: own, expires_first, types, sources."""


def _block(
    paths: Sequence[str],
    bodies: Sequence[str],
    sizes: Sequence[int],
    told: Told,
    topic_id: int,
    position: int,
    seq: int,
    now: int,
) -> Block:
    lines = encode_lines(zip(range(position, position + len(bodies)), paths, bodies, strict=True))
    size = sum(sizes or map(len if lines.isascii() else size_of, bodies))
    return Block(position, topic_id, seq, len(bodies), size, now, *told, _told(set(paths)), lines)


def _told(values: Set[str]) -> str:
    return json.dumps(sorted(values)) if len(values) <= MOST_NAMES else ""


def unpack(block: Block, wanted: Callable[[str], object] | None = None) -> list[Record]:
    """Its records, in order; only those of lines that are `wanted`, if that is given."""
    lines = block.lines.split("\n")[:-1]
    rows = [split_line(line) for line in (lines if wanted is None else filter(wanted, lines))]
    outlines = read_outlines([row[2] for row in rows])
    shift, topic_id, recorded_at = block.seq - block.position, block.topic_id, block.recorded_at
    return [
        _record(int(position), topic_id, int(position) + shift, recorded_at, path, body, outline)
        for (position, path, body), outline in zip(rows, outlines, strict=True)
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
