"""Finds batches that are in the ledger of a peer but not in the ledger of their sender, and judges them.

The ids of batches are not sufficient: if an answer is lost, a restarted sender sends the same events in a batch with
another id. But a link that passes a selected event leaves a row in the sender's ledger, so a batch that was really
sent overlaps some row by its positions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from eventd.audit.arrays.columns import Columns, Mask, Numbers, Words, grouped
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.report.findings import MOST_NAMED, UNCLAIMED_BATCH, Discrepancy, DiscrepancyKey, Evidence, Kind
from eventd.audit.segments.batch_hashes import batch_hashes
from eventd.audit.segments.cells import HOUR, Measure
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.link_progress import LinkProgress
from eventd.audit.segments.link_rows import ENDLESS
from eventd.audit.segments.plan import NodeEpoch, declared_gaps, owner_of
from eventd.audit.segments.row_marks import PAIR, PairKey
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH: Final = (*PAIR, "total")
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
    return grouped(found.rename_columns({"low": "at", "total": "batch"}), (*PAIR, "batch", "at"), [])


class _LinkEpoch(NamedTuple):
    """A link in one epoch of its sender, in whose log its batches cover positions."""

    group: str
    sender: str
    peer: str
    epoch: str


class _Batches(NamedTuple):
    """Batches in the ledger of a peer: their ids (Arrow), the positions (after, upto] of each, and its time there.

    They are arrays, because a lake may have millions of such batches.
    """

    ids: Any
    after: Numbers
    upto: Numbers
    at: Numbers

    def where(self, rows: Mask | Numbers) -> _Batches:
        """Return the batches at these indexes, or under this mask."""
        import pyarrow as pa

        places = np.flatnonzero(rows) if rows.dtype == bool else rows
        return _Batches(self.ids.take(pa.array(places)), self.after[places], self.upto[places], self.at[places])

    def without(self, ids: Collection[str]) -> _Batches:
        """Return the batches with other ids than these."""
        import pyarrow as pa
        from pyarrow import compute

        known = compute.is_in(self.ids, pa.array(sorted(ids), pa.string()))
        return self.where(~known.to_numpy(zero_copy_only=False))

    @classmethod
    def joined(cls, parts: Sequence[_Batches]) -> _Batches:
        """Return the batches of all parts, each once, in the order of their times."""
        import pyarrow as pa

        ids = pa.chunked_array([part.ids for part in parts], pa.string()).combine_chunks()
        after, upto, at = (np.concatenate([part[column] for part in parts]) for column in (1, 2, 3))
        names = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        order = np.lexsort((names, upto, after, at))
        rows = np.stack([at, after, upto, names])[:, order]
        is_new = np.ones(len(order), bool)
        is_new[1:] = (rows[:, 1:] != rows[:, :-1]).any(axis=0)
        return cls(ids, after, upto, at).where(order[is_new])


class UnclaimedDiscrepancies(NamedTuple):
    """The discrepancies of unclaimed batches: the first `MOST_NAMED` of each pair, and how many others it has.

    The others are judged like those that are named. `pairs`: all pairs with such batches, those included whose batches
    another finding names.
    """

    named: list[Discrepancy]
    unnamed: Counter[DiscrepancyKey]
    pairs: frozenset[PairKey] = frozenset()


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
    others: Iterable[Discrepancy] = (),
) -> UnclaimedDiscrepancies:
    """Return a DISAGREEMENT for each of these batches of which the ledger of its sender should have a row.

    `tables` are those of `unclaimed_batches`. Left out are those whose answer the sender may still be waiting for,
    and those that it sent outside of `hours`; and the batches that `others` name: one fault is one finding.
    """
    import pyarrow as pa

    if not tables:
        return UnclaimedDiscrepancies([], Counter())
    judge = _UnclaimedBatches(survey, summaries, coverage, rows, (hours[0] * HOUR, hours[1] * HOUR), progress)
    by_pair: defaultdict[PairKey, list[_Batches]] = defaultdict(list)
    for link, batches in judge.unexplained(Columns(pa.concat_tables(tables))):
        by_pair[PairKey(link.group, link.sender, link.peer)].append(batches)
    reported: defaultdict[PairKey, set[str]] = defaultdict(set)
    for one in others:
        reported[PairKey(one.group, one.source, one.peer)].add(one.id)
    named: list[Discrepancy] = []
    unnamed: Counter[DiscrepancyKey] = Counter()
    for pair, parts in sorted(by_pair.items()):
        found = _Batches.joined(parts).without(reported[pair])
        key = DiscrepancyKey(Kind.DISAGREEMENT, *pair, UNCLAIMED_BATCH)
        first = zip(found.ids[:MOST_NAMED].to_pylist(), found.at[:MOST_NAMED].tolist(), strict=True)
        named += [Discrepancy(key.kind, *pair, 0, id, key.detail, Evidence(pair.source, at, id)) for id, at in first]
        if (rest := len(found.at) - MOST_NAMED) > 0:
            unnamed[key] = rest
    pairs = frozenset(pair for pair, parts in by_pair.items() if any(len(part.at) for part in parts))
    return UnclaimedDiscrepancies(named, unnamed, pairs)


@dataclass
class _UnclaimedBatches:
    """Judges unclaimed batches; `times` are the requested ones [first, last), in microseconds."""

    survey: Survey
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]
    coverage: Coverage
    rows: LedgerRows
    times: tuple[int, int]
    progress: ProgressOf

    def unexplained(self, unclaimed: Columns) -> Iterator[tuple[_LinkEpoch, _Batches]]:
        """Yield, by link, those of the rows of `unclaimed_batches` of which the ledger of the sender should have a row.

        The segments of `inbound` of a peer and those of `receipts` of a sender are read once each, however many
        batches there are.
        """
        by_sender: defaultdict[str, dict[_LinkEpoch, _Batches]] = defaultdict(dict)
        for link, batches in self._suspects(unclaimed).items():
            by_sender[link.sender][link] = batches
        for sender, links in by_sender.items():
            yield from self._not_claimed(sender, links)

    def _suspects(self, unclaimed: Columns) -> dict[_LinkEpoch, _Batches]:
        """Return, by link, the batches of which the ledger of the sender would have a row, if it had an answer."""
        parts: defaultdict[_LinkEpoch, list[_Batches]] = defaultdict(list)
        source, peer, group = (unclaimed.words(name) for name in ("source", "peer", "group"))
        known = source.where(self.coverage.has_ledgers)
        for receiver in sorted({*peer.values}):
            rows = known & peer.where(receiver.__eq__)
            if not rows.any():
                continue
            wanted = {
                (sender, of): np.unique(unclaimed.numbers("batch")[chosen])
                for sender in source.values
                for of in group.values
                if (chosen := rows & source.where(sender.__eq__) & group.where(of.__eq__)).any()
            }
            times = np.unique(unclaimed.numbers("at")[rows])
            for table in self.rows.at(Ledger.INBOUND, receiver, times, _COLUMNS):
                for link, batches in _received(table, receiver, wanted):
                    if (covered := batches.where(self._are_covered(link, batches))).at.size:
                        parts[link].append(covered)
        return {link: _Batches.joined(each) for link, each in parts.items()}

    def _are_covered(self, link: _LinkEpoch, batches: _Batches) -> Mask:
        """Return the batches for which the sender's ledger is complete from the time of the batch until the link had
        passed it."""
        state = self._states.get(NodeEpoch(link.sender, link.epoch))
        if state is None:
            return np.zeros(batches.at.size, bool)  # nothing shows how far the ledgers of that epoch went
        each = zip(batches.upto.tolist(), batches.at.tolist(), strict=True)
        covered = np.array([self._is_covered(link, state, upto, at) for upto, at in each], bool)
        lost = self._gaps.get(link)  # what the sender reported later to the peer as lost
        return covered & ~_overlapped(batches, *np.array(lost).T) if lost else covered

    def _is_covered(self, link: _LinkEpoch, state: NodeState, upto: int, at: int) -> bool:
        first, last = self.coverage.peer_times(link.peer, link.sender, (at, at))
        end = min(state.complete_until, state.as_of) - 1
        if not (self.times[0] <= first and last < self.times[1] and last < end):
            return False
        # The row may be later than the batch by any time, because the answer may have been lost at first.
        passed = self.coverage.acknowledged_at(link.sender, link.epoch, link.group, link.peer, upto)
        end = min(end, max(last, passed + self.coverage.margin))
        return self.coverage.is_whole(link.sender, (first, end))

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

    @cached_property
    def _gaps(self) -> dict[_LinkEpoch, list[tuple[int, int]]]:
        found: defaultdict[_LinkEpoch, list[tuple[int, int]]] = defaultdict(list)
        for owner, gap in declared_gaps(self.survey, self.summaries):
            if gap.peer:
                found[_LinkEpoch(gap.group, gap.peer, owner.node, gap.gap_epoch)].append((gap.after, gap.upto))
        return found

    def _not_claimed(self, sender: str, links: Mapping[_LinkEpoch, _Batches]) -> Iterator[tuple[_LinkEpoch, _Batches]]:
        """Yield those batches of a sender's links that overlap no row of the sender's ledger by their positions.

        A link that is declared, and has not passed a batch, still waits for the answer.
        """
        left = {link: _Unclaimed(batches) for link, batches in links.items()}
        passed = {link: self._cursors.get(link, ENDLESS) for link in links}
        since = min(int(batches.at.min()) for batches in links.values()) - self.coverage.margin
        heads = {link: self._heads.get(NodeEpoch(link.sender, link.epoch), 0) for link in left}
        for segment in self.rows.of(Ledger.RECEIPTS, sender):
            times = segment.manifest.times
            if times is not None and times[1] < since:
                continue
            if not self._concerns(segment, left, passed):
                continue
            for link, (after, upto) in _ranges(Columns(self.rows.read(segment, _OF_LINKS)), heads).items():
                passed[link] = max(passed[link], int(upto.max()))
                left[link].claim(after, upto)
        for link, one in left.items():
            if (found := one.rest(passed[link])).at.size:
                yield link, found

    def _concerns(
        self, segment: Segment, left: Mapping[_LinkEpoch, _Unclaimed], passed: Mapping[_LinkEpoch, int]
    ) -> bool:
        """Return whether rows of a segment of `receipts` may cover one of these batches, or show that its link passed
        it."""
        progress = self.progress(segment)
        if progress is None:
            return any(one.overlaps(-1, ENDLESS) for one in left.values())
        ranges = {(one.group, one.peer): (one.after, one.upto) for one in progress}
        for link, one in left.items():
            after, upto = ranges.get((link.group, link.peer), (-1, -1))
            if one.overlaps(after, upto) or (upto > passed[link] and one.reaches_beyond(passed[link])):
                return True
        return False


class _Unclaimed:
    """The batches of a link of which no row of the ledger of its sender was found yet.

    They are sorted by position, so that a segment of that ledger is compared only with batches near its own.
    """

    def __init__(self, batches: _Batches) -> None:
        self._batches = batches.where(np.argsort(batches.after, kind="stable"))
        self._reach = np.maximum.accumulate(self._batches.upto)
        self._is_left = np.ones(batches.at.size, bool)

    def overlaps(self, after: int, upto: int) -> bool:
        """Return whether a batch has any of the positions (after, upto]."""
        near = self._near(after, upto)
        return bool((self._is_left[near] & (self._batches.upto[near] > after)).any())

    def reaches_beyond(self, position: int) -> bool:
        """Return whether a batch ends after this position."""
        near = self._near(position, ENDLESS)
        return bool((self._is_left[near] & (self._batches.upto[near] > position)).any())

    def claim(self, after: Numbers, upto: Numbers) -> None:
        """Leave out the batches that have a position in one of these ranges (after, upto]."""
        near = self._near(int(after.min()), int(upto.max()))
        places = np.arange(near.start, near.stop)[self._is_left[near]]
        if places.size:
            self._is_left[places] = ~_overlapped(self._batches.where(places), after, upto)

    def rest(self, passed: int) -> _Batches:
        """Return the batches that are left, of those that end at this position or before."""
        return self._batches.where(self._is_left & (self._batches.upto <= passed))

    def _near(self, after: int, upto: int) -> slice:
        """Return where all batches with a position in (after, upto] are, perhaps with others."""
        first = int(np.searchsorted(self._reach, after, side="right"))
        return slice(first, max(first, int(np.searchsorted(self._batches.after, upto))))


def _overlapped(batches: _Batches, after: Numbers, upto: Numbers) -> Mask:
    """Return which batches have a position in one of the ranges (after, upto]."""
    order = np.argsort(after, kind="stable")
    reach = np.maximum.accumulate(upto[order])
    earlier = np.searchsorted(after[order], batches.upto)
    found: Mask = (earlier > 0) & (reach[np.maximum(earlier, 1) - 1] > batches.after)
    return found


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


def _received(
    table: Columns, peer: str, wanted: Mapping[tuple[str, str], Numbers]
) -> Iterator[tuple[_LinkEpoch, _Batches]]:
    """Yield by link the batches with events from rows of a peer's `inbound`; those of repairs have no positions.

    `wanted`: by sender and group, the hashes of the ids of these batches, in ascending order.
    """
    rows = ~table.booleans("repair") & (table.numbers("accepted") + table.numbers("duplicates") > 0)
    group, source, epoch = (table.words(name) for name in ("group", "peer", "link_epoch"))
    for (sender, of), hashes in wanted.items():
        chosen = rows & source.where(sender.__eq__) & group.where(of.__eq__)
        chosen &= np.isin(batch_hashes(table), hashes)
        for code in np.unique(epoch.codes[chosen]).tolist():
            places = np.flatnonzero(chosen & (epoch.codes == code))
            numbers = (table.numbers(name)[places] for name in ("after", "upto", "recorded_at"))
            ids = _texts(table.words("batch_id"), places)
            yield _LinkEpoch(of, sender, peer, epoch.values[code]), _Batches(ids, *numbers)


def _texts(words: Words, places: Numbers) -> pa.StringArray:
    """Return the texts of a column in the rows at these indexes."""
    import pyarrow as pa

    return words.at(places).to_arrow().cast(pa.string())
