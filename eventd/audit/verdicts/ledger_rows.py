"""Reads rows of single segments again, for the verdicts on batches, of which the cells have only hashes and counts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers
from eventd.audit.report.findings import NO_DELIVERIES, NO_RECEIPT
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch, declared_gaps, owner_of
from eventd.lake.losses import parse_loss
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


BatchKey = tuple[int, str, str]
"""The number, the group and the peer of a batch, in one epoch of its sender."""


def batches_in(segment: Segment, batches: Sequence[BatchKey]) -> Sequence[BatchKey]:
    """Return those of some batches in ascending order of which the segment has the rows, if there are any."""
    number = itemgetter(0)
    return batches[
        bisect_right(batches, segment.place.after, key=number) : bisect_right(batches, segment.place.upto, key=number)
    ]


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


class DeclaredLosses:
    """The rows of deliveries and receipts of which the nodes themselves declare that they could not be shipped."""

    def __init__(self, survey: Survey, summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]) -> None:
        self._batches: set[tuple[object, ...]] = set()
        self._numbers: defaultdict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
        for owner, gap in declared_gaps(survey, summaries):
            loss = parse_loss(gap.reason)
            if loss is not None and loss.by_number:
                self._numbers[owner.node, gap.gap_epoch, gap.group, loss.book].append((gap.after, gap.upto))
            elif loss is not None and loss.book is Ledger.DELIVERIES:
                self._batches.add((owner.node, gap.gap_epoch, gap.group, gap.peer, gap.after, gap.upto))

    def explain(self, owner: NodeEpoch, detail: str, row: Mapping[str, Any]) -> bool:
        """Return whether a loss explains that rows of a batch are missing. `row`: of its receipt or a delivery."""
        book = {NO_DELIVERIES: Ledger.DELIVERIES, NO_RECEIPT: Ledger.RECEIPTS}.get(detail)
        if book is None:
            return False
        spans = self._numbers.get((*owner, row["group"], book), ())
        if any(after < row["number"] <= upto for after, upto in spans):
            return True
        ends = (row.get("link_epoch"), row["group"], row["peer"], row.get("after"), row.get("upto"))
        return book is Ledger.DELIVERIES and (owner.node, *ends) in self._batches
