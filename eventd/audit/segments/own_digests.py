"""Looks for digests among the own events of the segments that may have them.

The digest covers the time of observation of its event, so only segments with events of that minute are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from eventd.audit.arrays.columns import Columns
from eventd.audit.segments.damaged_segment import name_damage
from eventd.audit.segments.leaf_comparison import ComparedSegment
from eventd.lake.extra import pyarrow
from eventd.lake.layout import slot_of
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import FileReader
from eventd.lake.writer import Segment
from federation.history.merkle import HASH_SIZE


class DatedDigest(NamedTuple):
    """The digest of an event that was observed at `at` (microseconds)."""

    at: int
    digest: bytes


class DigestSearch(NamedTuple):
    """A segment of `events`, and the digests, one after the other, that are looked for among its own events."""

    segment: ComparedSegment
    digests: bytes


def plan_searches(segments: Iterable[Segment], wanted: Iterable[DatedDigest]) -> Iterator[DigestSearch]:
    """Yield the searches for these digests: one for each segment with events of the same minute as some of them."""
    by_slot: defaultdict[int, set[bytes]] = defaultdict(set)
    for one in wanted:
        by_slot[slot_of(one.at)].add(one.digest)
    slots = sorted(by_slot)
    for segment in segments:
        if segment.place.book is Ledger.EVENTS and segment.manifest.slots is not None:
            first, last = segment.manifest.slots
            near = {
                digest
                for slot in slots[bisect_left(slots, first) : bisect_right(slots, last)]
                for digest in by_slot[slot]
            }
            if near:
                compared = ComparedSegment(segment.place.name, segment.manifest)
                yield DigestSearch(compared, b"".join(sorted(near)))


def find_digests(search: DigestSearch, lake: FileReader) -> bytes:
    """Return those of the digests that are of an own event of the segment, one after the other.

    Raises DamagedSegment and LakeUnavailable.
    """
    from pyarrow import compute

    with name_damage(search.segment.name):
        table = read_segment(lake, search.segment.segment, ["own", "digest"])
    own = pyarrow().array(np.flatnonzero(Columns(table).booleans("own")))
    digests, wanted = table["digest"].take(own), pyarrow().array(split_digests(search.digests), pyarrow().binary(32))
    return b"".join(digests.filter(compute.is_in(digests, wanted)).unique().to_pylist())


def split_digests(digests: bytes) -> list[bytes]:
    """Return digests that follow each other, each by itself."""
    return [digests[at : at + HASH_SIZE] for at in range(0, len(digests), HASH_SIZE)]
