"""Reads rows of single segments again, for the verdicts on batches, of which the cells have only hashes and counts."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers
from eventd.audit.segments.plan import NodeEpoch, owner_of
from eventd.lake.reader import Survey
from eventd.lake.schema import OWN_TIME, Ledger
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class LedgerRows:
    """The rows of the readable `segments` of a lake; `read` returns columns of one, and raises DamagedSegment."""

    segments: Sequence[Segment]
    read: Callable[[Segment, Sequence[str]], pa.Table]

    def of(self, book: Ledger, node: str) -> Iterator[Segment]:
        """Yield the segments of a node's ledger."""
        for segment in self.segments:
            if (segment.place.book, segment.manifest.node) == (book, node):
                yield segment

    def at(self, book: Ledger, node: str, times: Numbers, names: Sequence[str]) -> Iterator[Columns]:
        """Yield the rows of a node's ledger that were recorded at exactly one of these ascending times."""
        column = OWN_TIME[book]
        for segment in self.of(book, node):
            span = segment.manifest.times
            if span and np.searchsorted(times, span[0]) < np.searchsorted(times, span[1], side="right"):
                table = self.read(segment, ["group", column, *names])
                yield Columns(table.take(np.flatnonzero(np.isin(Columns(table).numbers(column), times))))


class NumbersRead:
    """Tells whether the rows of a ledger with some number, if there are any, are in segments that were read.

    `known` are the names of these segments.
    """

    def __init__(self, survey: Survey, known: Collection[str]) -> None:
        self._spans: defaultdict[tuple[NodeEpoch, Ledger], list[tuple[int, int, bool]]] = defaultdict(list)
        for segment in survey.segments:
            place = segment.place
            self._spans[owner_of(segment), place.book].append((place.after, place.upto, place.name in known))
        for spans in self._spans.values():
            spans.sort()
        self._promised = {
            (NodeEpoch(one.node, one.epoch), book): upto for one in survey.nodes for book, upto in one.books.items()
        }

    def covers(self, owner: NodeEpoch, book: Ledger, number: int) -> bool:
        """Return whether the rows of a ledger with this number are in segments that were read, or do not exist."""
        spans = self._spans[owner, book]
        at = bisect_left(spans, number, key=itemgetter(0)) - 1
        if at >= 0 and number <= spans[at][1]:
            return spans[at][2]
        # The last numbers of a ledger have no segment if they have no rows.
        last = spans[-1][1] if spans else 0
        return last < number <= self._promised.get((owner, book), 0)
