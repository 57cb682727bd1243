"""Finds batches that the ledger of a peer has and that of their sender does not show, and judges them.

The ids of batches do not show that: if an answer is lost, a restarted sender sends the same events in a batch with
another id. But a link that passes an event that it selects leaves a row, so another row covers some of the same
positions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers, grouped
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.report.findings import MOST_NAMED, UNCLAIMED_BATCH, Discrepancy, DiscrepancyKey, Evidence, Kind
from eventd.audit.segments.cells import HOUR, Measure
from eventd.audit.segments.ledger_summaries import LedgerSummary, LinkProgress, hash_of
from eventd.audit.segments.link_rows import ENDLESS
from eventd.audit.segments.plan import NodeEpoch, declared_gaps, owner_of
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH: Final = (*PairKey._fields, "total")
_COLUMNS: Final = ("peer", "batch_id", "link_epoch", "after", "upto", "repair", "accepted", "duplicates")
_OF_LINKS: Final = ("group", "peer", "link_epoch", "after", "upto", "repair", "status")


def unclaimed_batches(cells: pa.Table, hours: tuple[int, int]) -> pa.Table:
    """Return the batches with events that the ledger of a peer has, and of which the sender's has no receipt.

    `cells` are those of RECEIPT and INBOUND. A row for each: `batch` is a hash of the batch's id, and the peer recorded
    it `at` (microseconds, by its clock) from its sender, the `source`. Those recorded outside of `hours` [first, last)
    are left out: receipts of earlier hours are not among the cells.
    """
    import pyarrow as pa

    table = Columns(cells)
    given = table.numbers("what") == Measure.INBOUND
    hour = table.numbers("time")
    wanted = given & (table.numbers("n") > 0) & (hours[0] <= hour) & (hour < hours[1])
    known = grouped(cells.filter(pa.array(~given)), _BATCH, [])
    found = cells.filter(pa.array(wanted)).join(known, keys=[*_BATCH], join_type="left anti")
    return grouped(found.rename_columns({"low": "at", "total": "batch"}), (*PairKey._fields, "batch", "at"), [])


class _LinkEpoch(NamedTuple):
    """A link in one epoch of its sender, in whose log its batches cover positions."""

    group: str
    sender: str
    peer: str
    epoch: str


class _Received(NamedTuple):
    """A batch in the ledger of a peer: its id, the positions (after, upto] that it covers, and when it was recorded."""

    id: str
    after: int
    upto: int
    at: int


class UnclaimedDiscrepancies(NamedTuple):
    """The discrepancies of unclaimed batches: at least `MOST_NAMED` of a pair that has more, and how many follow.

    Those that follow are counted without being judged: each is read from the ledger of the peer.
    """

    named: list[Discrepancy]
    unnamed: Counter[DiscrepancyKey]


ProgressOf = Callable[[Segment], Sequence[LinkProgress] | None]
"""Returns the progress of the links of a segment of `receipts`; None if it does not cover all rows of the segment."""


def unclaimed_discrepancies(
    tables: Sequence[pa.Table],
    survey: Survey,
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]],
    coverage: Coverage,
    rows: LedgerRows,
    hours: tuple[int, int],
    progress: ProgressOf,
) -> UnclaimedDiscrepancies:
    """Return a DISAGREEMENT for each of these batches of which the ledger of its sender should have a row.

    `tables` are those of `unclaimed_batches`. Left out are those whose answer the sender may still be waiting for,
    and those that it sent outside of `hours`.
    """
    import pyarrow as pa

    if not tables:
        return UnclaimedDiscrepancies([], Counter())
    unclaimed = pa.concat_tables(tables).unify_dictionaries()
    judge = _UnclaimedBatches(survey, summaries, coverage, rows, (hours[0] * HOUR, hours[1] * HOUR), progress)
    named: list[Discrepancy] = []
    counts: Counter[DiscrepancyKey] = Counter()
    unnamed: Counter[DiscrepancyKey] = Counter()
    left = [*_by_pair(unclaimed)]
    while left:
        portion = np.concatenate([each[:MOST_NAMED] for each in left])
        found = [*judge.discrepancies(unclaimed.take(portion).to_pylist())]
        counts.update(DiscrepancyKey.of(one) for one in found)
        named += found
        left = [each[MOST_NAMED:] for each in left if len(each) > MOST_NAMED]
        full = [each for each in left if counts[_key_of(unclaimed, each)] >= MOST_NAMED]
        left = [each for each in left if counts[_key_of(unclaimed, each)] < MOST_NAMED]
        unnamed.update({_key_of(unclaimed, each): len(each) for each in full})
    return UnclaimedDiscrepancies(named, unnamed)


def _by_pair(unclaimed: pa.Table) -> Iterator[Numbers]:
    """Yield the indexes of the rows of each pair, in the order of their times."""
    table = Columns(unclaimed)
    if not table.rows:
        return
    codes = [table.words(name).codes.astype(np.int64) for name in PairKey._fields]
    order = np.lexsort(np.stack([table.numbers("at"), *codes]))
    is_first = np.zeros(table.rows, bool)
    for column in codes:
        is_first[1:] |= column[order][1:] != column[order][:-1]
    yield from np.split(order, np.flatnonzero(is_first))


def _key_of(unclaimed: pa.Table, rows: Numbers) -> DiscrepancyKey:
    """Return what discrepancies of the pair of these rows have in common."""
    (pair,) = unclaimed.select([*PairKey._fields]).take(rows[:1]).to_pylist()
    return DiscrepancyKey(Kind.DISAGREEMENT, detail=UNCLAIMED_BATCH, **pair)


@dataclass
class _UnclaimedBatches:
    """Judges unclaimed batches; `times` are the requested ones [first, last), in microseconds."""

    survey: Survey
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]
    coverage: Coverage
    rows: LedgerRows
    times: tuple[int, int]
    progress: ProgressOf

    def discrepancies(self, unclaimed: Iterable[Mapping[str, Any]]) -> Iterator[Discrepancy]:
        """Yield a discrepancy for each of these rows of `unclaimed_batches` whose sender should have a row of it."""
        by_sender: defaultdict[str, dict[_LinkEpoch, list[_Received]]] = defaultdict(dict)
        for link, batches in self.suspects(unclaimed).items():
            by_sender[link.sender][link] = batches
        for sender, links in by_sender.items():
            for link, one in self.unexplained(sender, links):
                evidence = Evidence(sender, one.at, one.id)
                yield Discrepancy(
                    Kind.DISAGREEMENT, link.group, sender, link.peer, 0, one.id, UNCLAIMED_BATCH, evidence
                )

    def suspects(self, unclaimed: Iterable[Mapping[str, Any]]) -> dict[_LinkEpoch, list[_Received]]:
        """Return, by link, the batches of which the ledger of the sender would have a row, if it had an answer."""
        wanted: defaultdict[str, set[tuple[str, str, int]]] = defaultdict(set)
        times: defaultdict[str, set[int]] = defaultdict(set)
        for row in unclaimed:
            if self.coverage.has_ledgers(row["source"]):
                wanted[row["peer"]].add((row["group"], row["source"], row["batch"]))
                times[row["peer"]].add(row["at"])
        found: defaultdict[_LinkEpoch, list[_Received]] = defaultdict(list)
        for peer, batches in wanted.items():
            for table in self.rows.at(Ledger.INBOUND, peer, np.array(sorted(times[peer]), np.int64), _COLUMNS):
                for link, one in _received(table, peer):
                    if (link.group, link.sender, hash_of(one.id)) in batches and self._is_covered(link, one):
                        found[link].append(one)
        return found

    def _is_covered(self, link: _LinkEpoch, one: _Received) -> bool:
        """Return whether the ledger of the sender has all rows from the time of the batch until its link passed it."""
        state = self._states.get(NodeEpoch(link.sender, link.epoch))
        if state is None:
            return False  # nothing shows how far the ledgers of that epoch went
        first, last = self.coverage.peer_times(link.peer, link.sender, (one.at, one.at))
        end = min(state.complete_until, state.as_of) - 1
        if not (self.times[0] <= first and last < self.times[1] and last < end):
            return False
        # The row may be later than the batch by any time, because the answer may have been lost at first.
        passed = self.coverage.acknowledged_at(link.sender, link.epoch, link.group, link.peer, one.upto)
        end = min(end, max(last, passed + self.coverage.margin))
        return self.coverage.is_whole(link.sender, (first, end)) and not self._is_lost(link, one)

    @cached_property
    def _states(self) -> dict[NodeEpoch, NodeState]:
        return {NodeEpoch(state.node, state.epoch): state for state in self.survey.nodes}

    @cached_property
    def _heads(self) -> dict[NodeEpoch, int]:
        """Return the last position that the log of each node had reached, by its state and its ledger of events."""
        found = {owner: state.head for owner, state in self._states.items()}
        for one in self.survey.segments:
            if one.place.book is Ledger.EVENTS:
                found[owner_of(one)] = max(found.get(owner_of(one), 0), one.upto)
        return found

    @cached_property
    def _cursors(self) -> dict[_LinkEpoch, int]:
        """Return the position that each declared link has passed."""
        return {
            _LinkEpoch(group.group, state.node, peer.peer, state.epoch): peer.cursor
            for state in self.survey.nodes
            for group in state.groups
            for peer in group.peers
        }

    def _is_lost(self, link: _LinkEpoch, one: _Received) -> bool:
        """Return whether the sender reported to the peer later that it had lost some of these positions."""
        return any(after < one.upto and upto > one.after for after, upto in self._gaps.get(link, ()))

    @cached_property
    def _gaps(self) -> dict[_LinkEpoch, list[tuple[int, int]]]:
        found: defaultdict[_LinkEpoch, list[tuple[int, int]]] = defaultdict(list)
        for owner, gap in declared_gaps(self.survey, self.summaries):
            if gap.peer:
                found[_LinkEpoch(gap.group, gap.peer, owner.node, gap.gap_epoch)].append((gap.after, gap.upto))
        return found

    def unexplained(
        self, sender: str, links: Mapping[_LinkEpoch, Collection[_Received]]
    ) -> Iterator[tuple[_LinkEpoch, _Received]]:
        """Yield those batches of a sender's links of whose positions no row of its ledger covers any.

        A link that is declared, and has not passed a batch, still waits for the answer.
        """
        left = {link: {*batches} for link, batches in links.items()}
        passed = {link: self._cursors.get(link, ENDLESS) for link in links}
        since = min(one.at for batches in left.values() for one in batches) - self.coverage.margin
        for segment in self.rows.of(Ledger.RECEIPTS, sender):
            times = segment.manifest.times
            if not any(left.values()) or (times is not None and times[1] < since):
                continue
            if not self._concerns(segment, left, passed):
                continue
            heads = {link: self._heads.get(NodeEpoch(link.sender, link.epoch), 0) for link in left}
            for link, (after, upto) in _ranges(Columns(self.rows.read(segment, _OF_LINKS)), heads).items():
                passed[link] = max(passed[link], int(upto.max()))
                left[link] = _not_covered(left[link], after, upto)
        for link, batches in left.items():
            yield from ((link, one) for one in sorted(batches) if one.upto <= passed[link])

    def _concerns(
        self, segment: Segment, left: Mapping[_LinkEpoch, Collection[_Received]], passed: Mapping[_LinkEpoch, int]
    ) -> bool:
        """Return whether rows of a segment of `receipts` may cover one of these batches, or show that its link passed
        it."""
        progress = self.progress(segment)
        if progress is None:
            return True
        ranges = {(one.group, one.peer): (one.after, one.upto) for one in progress}
        for link, batches in left.items():
            after, upto = ranges.get((link.group, link.peer), (-1, -1))
            if any(after < one.upto and one.after < upto for one in batches):
                return True
            if upto > passed[link] and any(one.upto > passed[link] for one in batches):
                return True
        return False


def _not_covered(batches: Collection[_Received], after: Numbers, upto: Numbers) -> set[_Received]:
    """Return those batches of which no position is in one of the ranges (after, upto]."""
    order = np.argsort(after, kind="stable")
    begins, reach = after[order], np.maximum.accumulate(upto[order])
    found = [*batches]
    earlier = np.searchsorted(begins, np.array([one.upto for one in found], np.int64))
    return {one for one, n in zip(found, earlier.tolist(), strict=True) if not n or reach[n - 1] <= one.after}


def _ranges(table: Columns, links: Mapping[_LinkEpoch, int]) -> dict[_LinkEpoch, tuple[Numbers, Numbers]]:
    """Return the positions (after, upto] of the rows of `receipts` of each of these links that has any.

    `links`: the head of the log of each. Rows of repairs prove nothing about other positions of their range. A row
    without a request, which no receipt confirms, does not count if its range is beyond the head.
    """
    ordinary, unsent = ~table.booleans("repair"), table.numbers("status") == 0
    group, peer, epoch = (table.words(name) for name in ("group", "peer", "link_epoch"))
    found = {}
    for link, head in links.items():
        rows = ordinary & ~(unsent & (table.numbers("upto") > head))
        rows &= group.where(link.group.__eq__) & peer.where(link.peer.__eq__) & epoch.where(link.epoch.__eq__)
        if rows.any():
            found[link] = (table.numbers("after")[rows], table.numbers("upto")[rows])
    return found


def _received(table: Columns, peer: str) -> Iterator[tuple[_LinkEpoch, _Received]]:
    """Yield the batches with events from rows of a peer's `inbound`; those of repairs have no positions."""
    rows = ~table.booleans("repair") & (table.numbers("accepted") + table.numbers("duplicates") > 0)
    words = [table.words(name).at(rows) for name in ("group", "peer", "link_epoch", "batch_id")]
    texts = [[column.values[code] for code in column.codes.tolist()] for column in words]
    numbers = [table.numbers(name)[rows].tolist() for name in ("after", "upto", "recorded_at")]
    for group, sender, epoch, batch, after, upto, at in zip(*texts, *numbers, strict=True):
        yield _LinkEpoch(group, sender, peer, epoch), _Received(batch, after, upto, at)
