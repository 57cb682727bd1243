"""Computes which rows the ledgers in the lake certainly hold if they ever existed.

Only the absence of such a row proves anything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from eventd.audit.coverage.clock_shifts import ClockShift
from eventd.audit.coverage.holes import EARLIEST, LATEST, Hole, HoleIndex
from eventd.audit.coverage.receipt_links import LinkKey
from eventd.audit.coverage.silence import Silence
from eventd.audit.segments.cells import HOUR
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import LakePlan, LostRange, NodeEpoch, lost_ranges, states_by_node
from eventd.lake.copies import copies
from eventd.lake.reader import Survey, TroubleKind
from eventd.lake.schema import Ledger
from eventd.runtime.clock import SECOND

_ALWAYS = (EARLIEST, LATEST)
_OF_EVENTS = (Ledger.EVENTS, Ledger.DELIVERIES, Ledger.INBOUND)
"""The ledgers from whose missing rows the audit would conclude that an event or a receipt is wrong."""
_OF_SENDER = (Ledger.EVENTS, Ledger.DELIVERIES, Ledger.RECEIPTS)
"""The ledgers that show what a node sent."""


class BlindSpot(NamedTuple):
    """Rows that may be missing in a ledger of a node: rows of events in these slots, recorded in these times by the
    node's clock.

    Both ends of `slots` and of `times` (microseconds) are included. `positions` in (after, upto] of the node's log
    narrow the range further. `why` is the reason as shown to operators; empty if retention has removed these rows.
    """

    slots: tuple[int, int] = _ALWAYS
    times: tuple[int, int] = _ALWAYS
    positions: tuple[int, int] = _ALWAYS
    why: str = ""

    def hides(self, slot: int, times: tuple[int, int], position: int | None) -> bool:
        """Return whether the blind spot may hide an event of this slot that was recorded between two times.

        `position` is None if unknown.
        """
        return (
            self.slots[0] <= slot <= self.slots[1]
            and self.times[0] <= times[1]
            and times[0] <= self.times[1]
            and (position is None or self.positions[0] < position <= self.positions[1])
        )


class RefusedRow(NamedTuple):
    """A row of `deliveries` of an event that the peer refused: the position is in the log of `owner`."""

    owner: NodeEpoch
    group: str
    peer: str
    position: int


@dataclass
class Coverage:
    """The coverage of the ledgers of every node. Times are in microseconds.

    `until`: the time before which a node's ledgers are complete, by its clock, apart from `blind_spots`. `contested`:
    nodes under whose name two databases ship, or whose database ships under two names, or of whose ledgers the reach is
    unknown. `since`: the begin of the requested period. `silences`: see `find_silences`. `closed`: the nodes whose
    ledgers an operator closed. `holes`: the erased rows of `events`, by node and group. `shifts`: by node, the error of
    its clock, see `clock_shifts`. `verified`: see `verified_links`. `without_receipt`: see
    `deliveries_without_receipt`. `unkept_receipts`: see `deliveries_with_unkept_receipts`. `unanswered`: refused events
    of batches whose answers do not count them. `without_ledgers`: the nodes that an operator declares to ship none.
    `unclaimed`: the links with batches that the ledger of the peer has, and that of the sender does not show.
    """

    plan: LakePlan
    until: dict[str, int] = field(default_factory=dict)
    blind_spots: dict[tuple[str, Ledger], list[BlindSpot]] = field(default_factory=lambda: defaultdict(list))
    contested: set[str] = field(default_factory=set)
    since: int = _ALWAYS[0]
    silences: Mapping[str, Silence] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    shifts: Mapping[str, ClockShift] = field(default_factory=dict)
    holes: Mapping[tuple[str, str], Sequence[Hole]] = field(default_factory=dict)
    verified: frozenset[LinkKey] = frozenset()
    without_receipt: Counter[LinkKey] = field(default_factory=Counter)
    unkept_receipts: Counter[LinkKey] = field(default_factory=Counter)
    unanswered: frozenset[RefusedRow] = frozenset()
    without_ledgers: frozenset[str] = frozenset()
    unclaimed: frozenset[LinkKey] = frozenset()
    _clock_changes: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _indexes: dict[tuple[str, str], HoleIndex] = field(default_factory=dict, init=False, repr=False, compare=False)

    def hole_with(self, node: str, group: str, seq: int) -> Hole | None:
        """Return the hole in a node's ledger that includes a seq of the node; None if there is none."""
        holes = self._index_of(node, group)
        at = holes.with_seq(seq)
        return None if at is None else holes.holes[at]

    def hole_during(self, node: str, group: str, times: tuple[int, int]) -> Hole | None:
        """Return the first hole that may hold an event that the node recorded between two times, by its clock."""
        return self._index_of(node, group).during(times)

    def _index_of(self, node: str, group: str) -> HoleIndex:
        holes = self.holes.get((node, group), ())
        known = self._indexes.get((node, group))
        if known is None or known.holes is not holes:
            known = self._indexes[node, group] = HoleIndex(holes)
        return known

    def claims_on(self, link: LinkKey) -> int:
        """Return how many deliveries of a link no receipt shows, not counting those whose receipts are no longer
        kept."""
        return self.without_receipt[link] - self.unkept_receipts[link]

    def has_ledgers(self, node: str) -> bool:
        """Return whether the lake has a readable state of the node, which says how far its ledgers reach."""
        return node in self.until

    def proven_until(self, nodes: Iterable[str] | None = None) -> int:
        """Return up to when the ledgers of these nodes (None: all) are complete, corrected by clocks; 0 if unknown.

        Nodes that ship no ledgers are left out. Closed nodes that shipped everything that other nodes have from them
        are left out, too, unless no node in service remains.
        """
        named = dict.fromkeys([*self.until, *self.contested] if nodes is None else nodes)
        if self.contested.intersection(named):
            return 0
        known = [node for node in named if self.has_ledgers(node)]
        open_ = [node for node in known if node not in self.closed or node in self.silences]
        ends = [self.silences[node].covered if node in self.silences else self._end(node) for node in open_ or known]
        return max(min(ends, default=0), 0)

    def _end(self, node: str) -> int:
        shift = self.shifts.get(node)
        return self.until[node] - (shift.correction if shift else 0)

    def ends_before(self, node: str) -> bool:
        """Return whether the ledgers of the node end before the requested period and this must be reported.

        It need not be reported if a silence reports it already, or if the node was closed and another node's ledgers
        reach into the period.
        """
        # A node that was closed has no events of a later time.
        is_past = node in self.closed and max(self.until.values()) > self.since
        return self.until[node] <= self.since and node not in self.silences and not is_past

    def covers(
        self, node: str, book: Ledger, slot: int, times: tuple[int, int], *, position: int | None = None
    ) -> bool:
        """Return whether the ledger certainly holds the row of an event of the slot, recorded between two times, if
        there was one.

        The times are by the node's clock. `position` is the event's in the node's log, None if unknown.
        """
        if not self.has_ledgers(node) or node in self.contested or times[1] >= self.until[node]:
            return False
        return not any(spot.hides(slot, times, position) for spot in self.blind_spots.get((node, book), ()))

    def is_whole(self, node: str, times: tuple[int, int]) -> bool:
        """Return whether the ledgers of the node's deliveries have all rows that the node recorded between two
        times."""
        if not self.has_ledgers(node) or node in self.contested or times[1] >= self.until[node]:
            return False
        spots = (spot for book in _OF_SENDER for spot in self.blind_spots.get((node, book), ()))
        return not any(spot.times[0] <= times[1] and times[0] <= spot.times[1] for spot in spots)

    def is_damaged(self, node: str, book: Ledger, slot: int, times: tuple[int, int]) -> bool:
        """Return whether the row of an event of the slot, recorded between two times, may be in a damaged part."""
        return any(spot.why and spot.hides(slot, times, None) for spot in self.blind_spots.get((node, book), ()))

    def with_damage(self, book: Ledger) -> set[str]:
        """Return the nodes of whose ledger `book` a part is missing or corrupt."""
        return {node for (node, of), spots in self.blind_spots.items() if of is book and any(one.why for one in spots)}

    def damage_of(self, node: str) -> str:
        """Return a reason of the blind spots of the node's ledgers `events` and `deliveries`; empty for none."""
        blind_spots = (
            spot for book in (Ledger.EVENTS, Ledger.DELIVERIES) for spot in self.blind_spots.get((node, book), ())
        )
        return next((spot.why for spot in blind_spots if spot.why), "")

    def acknowledged_at(self, node: str, epoch: str, group: str, peer: str, position: int) -> int:
        """Return the time by which the peer had acknowledged a link's events up to a position, in microseconds by the
        node's clock.

        The result is at most the last time that the node's ledgers cover, which also stands for an unknown time.
        """
        until = self.until.get(node, 0) - 1
        acknowledged = self.plan.acknowledged.get((NodeEpoch(node, epoch), group, peer), [])
        at = bisect_left(acknowledged, position, key=lambda one: one[0])
        return min(until, acknowledged[at][1]) if at < len(acknowledged) else until

    def peer_times(self, node: str, peer: str, times: tuple[int, int]) -> tuple[int, int]:
        """Convert the first and last of some times by the node's clock to the earliest and latest by the peer's."""
        first = self.plan.skew_between(node, peer, times[0] // HOUR)
        last = self.plan.skew_between(node, peer, times[1] // HOUR)
        return times[0] + min(first.low, first.high), times[1] + max(last.low, last.high)

    def ends_by_sender(self) -> dict[tuple[str, str], int]:
        """Return, by sender and peer, when the peer's ledgers end, at the earliest, by the clock of the sender.

        Peers without ledgers are left out. Times are in microseconds.
        """
        ends = {}
        for owner, links in self.plan.links.items():
            for peer in (link.peer for link in links if self.has_ledgers(link.peer)):
                until = self.until[peer]
                offset = self.plan.skew_between(peer, owner.node, until // HOUR)
                ends[owner.node, peer] = until + min(offset.low, offset.high)
        return ends

    @cached_property
    def margin(self) -> int:
        """Return the largest known upper bound of the difference between any two clocks, plus one second, in
        microseconds."""
        bounds = [bound for hours in self.plan.clocks.values() for one in hours for bound in (one.low, one.high)]
        return max(map(abs, bounds), default=0) + SECOND

    def clock_change(self, node: str) -> int:
        """Return how far the node's clock may have been set forward or back, plus one second, in microseconds.

        That is the largest change of the difference to one of its peers' clocks, whichever of the two was set.
        """
        if node not in self._clock_changes:
            of_peers = [hours for (one, _), hours in self.plan.clocks.items() if one == node and hours]
            bounds = [[bound for hour in hours for bound in (hour.low, hour.high)] for hours in of_peers]
            self._clock_changes[node] = max((max(one) - min(one) for one in bounds), default=0) + SECOND
        return self._clock_changes[node]


def find_coverage(
    survey: Survey,
    plan: LakePlan,
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]],
    unreadable: Mapping[str, str],
) -> Coverage:
    """Return the coverage of a lake; the caller adds `since` and `silences`.

    `unreadable`: by name of the segment, why it could not be read.
    """
    coverage, times = Coverage(plan), _SegmentTimes(survey, unreadable)
    for states in states_by_node(survey):
        coverage.until[states[-1].node] = min(states[-1].complete_until, states[-1].as_of)
        if states[-1].closed_at:
            coverage.closed.add(states[-1].node)
        for before, after in pairwise(states):
            if before.complete_until >= after.began_at:
                continue
            why = f"the ledgers of {before.node} do not cover the time between two of its epochs"
            between = BlindSpot(times=(before.complete_until, after.began_at), why=why)
            for book in _OF_EVENTS:
                coverage.blind_spots[before.node, book].append(between)
    coverage.contested = {one.node for one in survey.troubles if one.kind is TroubleKind.TWO_NODES}
    coverage.contested |= {state.node for pair in copies(survey.nodes) for state in pair}
    _add_beginnings(coverage, survey, times)
    _add_troubles(coverage, survey, times)
    for lost in lost_ranges(survey, summaries):
        spot = _blind_spot(lost, times)
        if lost.book in _OF_EVENTS:
            coverage.blind_spots[lost.owner.node, lost.book].append(spot)
        elif lost.book is Ledger.RECEIPTS:  # no damage of its links: see `unkept_numbers`
            coverage.blind_spots[lost.owner.node, lost.book].append(spot._replace(why=""))
    return coverage


def _blind_spot(lost: LostRange, times: _SegmentTimes) -> BlindSpot:
    """Return the blind spot of rows that a node could not ship."""
    # The positions of the log number the rows of `events`, so that its segments show since when they are lost.
    numbered = lost.by_number or lost.book is Ledger.EVENTS
    since = times.around(*lost.owner, lost.book, lost.after, lost.upto)[0] if numbered else _ALWAYS[0]
    done = "deleted" if lost.by_number else "evicted"
    return BlindSpot(
        times=(min(since, lost.noted), lost.noted),
        positions=_ALWAYS if lost.by_number else (lost.after, lost.upto),
        why=f"{lost.owner.node} had {done} some of its {lost.book} before they were shipped",
    )


class _SegmentTimes:
    """The times of segments, by node, epoch and ledger.

    The manifests of `unreadable` segments may have been forged, so these segments count as missing.
    """

    def __init__(self, survey: Survey, unreadable: Collection[str]) -> None:
        self.unreadable = [one for one in survey.segments if one.place.name in unreadable]
        self._spans: defaultdict[tuple[str, str, Ledger], list[tuple[int, int, tuple[int, int]]]] = defaultdict(list)
        for one in survey.segments:
            if one.manifest.times and one.place.name not in unreadable:
                key = one.manifest.node, one.place.epoch, one.place.book
                self._spans[key].append((one.place.after, one.place.upto, one.manifest.times))

    def first(self, node: str, book: Ledger) -> int | None:
        """Return the time of the first row of a ledger in any epoch (microseconds); None if none has a segment."""
        spans = [spans for (of, _, kept), spans in self._spans.items() if (of, kept) == (node, book)]
        return min((times[0] for each in spans for _, _, times in each), default=None)

    def around(self, node: str, epoch: str, book: Ledger, after: int, upto: int) -> tuple[int, int]:
        """Return the times between which the missing rows (after, upto] were recorded, by the segments around them.

        A side without a segment has no bound.
        """
        beside = self._spans.get((node, epoch, book), ())
        before = [times[1] for _, end, times in beside if end <= after]
        behind = [times[0] for start, _, times in beside if start >= upto]
        return max(before, default=_ALWAYS[0]), min(behind, default=_ALWAYS[1])


def _add_beginnings(coverage: Coverage, survey: Survey, times: _SegmentTimes) -> None:
    """Add a blind spot without a reason before the first segment of each ledger whose beginning retention removed.

    If it removed all segments, the ledger shows nothing up to the end that its state names.
    """
    for states in states_by_node(survey):
        first = states[0]
        for book, reach in first.segments.items():
            if reach.after <= 0:
                continue
            begin = times.first(first.node, book)
            end = min(first.complete_until, first.as_of) if begin is None else begin
            coverage.blind_spots[first.node, book].append(BlindSpot(times=(_ALWAYS[0], end)))


def _add_troubles(coverage: Coverage, survey: Survey, times: _SegmentTimes) -> None:
    missing = [(one.manifest.node, *one.place.ledger[1:], one.after, one.upto) for one in times.unreadable]
    slugs = survey.node_names
    for trouble in survey.troubles:
        if trouble.kind is not TroubleKind.CORRUPT:
            continue
        node = slugs.get(trouble.node, trouble.node)
        if trouble.book is None:
            coverage.contested.add(node)
        else:
            missing.append((node, trouble.epoch, trouble.book, trouble.after, trouble.upto))
    for node, epoch, book, after, upto in missing:
        spot = BlindSpot(times=times.around(node, epoch, book, after, upto), why=_damaged(node, book))
        coverage.blind_spots[node, book].append(spot)


def _damaged(node: str, book: Ledger) -> str:
    return f"a part of the {book} of {node} is missing or corrupt"
