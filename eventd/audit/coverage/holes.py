"""Finds the seqs that a node assigned and for which its ledger `events` has no row.

A node assigns the seqs of a group without a hole. Rows may be absent where retention removed them, where the node
reported a loss, or where a segment is missing or corrupt, which is a finding of its own. Anywhere else they were
erased, from the database of the node before they were shipped, or from the lake.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary
from eventd.audit.segments.plan import NodeEpoch, declared_gaps, owner_of, states_by_node
from eventd.audit.segments.seq_runs import SeqRun
from eventd.lake.losses import parse_loss
from eventd.lake.manifest import GroupState, NodeState
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

MOST_HOLES: Final = 1_000
"""Maximum number of holes of a group in one epoch of a node; of more, adjacent holes are reported as one."""
EARLIEST: Final = -(1 << 62)
"""A time before all others, in microseconds."""
LATEST: Final = 1 << 62
"""A time after all others, in microseconds."""


class Hole(NamedTuple):
    """`events` of a group, with seqs from `first` to `last`, that a node has no row for: all of them, unless holes were
    joined, or the node declared the loss of some of them.

    Their events have positions in (after, upto] of the node's log in this epoch, and were recorded in `times`, both
    ends included, in microseconds by the node's clock.
    """

    node: str
    epoch: str
    group: str
    first: int
    last: int
    events: int
    after: int
    upto: int
    times: tuple[int, int]


def find_holes(
    survey: Survey,
    runs: Mapping[str, Sequence[SeqRun]],
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]],
    rolled_back: Collection[NodeEpoch] = (),
) -> list[Hole]:
    """Return the holes of all ledgers `events`, by node, epoch, group and seq.

    `runs`: the runs of the segments that were read, by name; the content of other segments is not known. `summaries`
    are those of the ledgers of gaps. `rolled_back`: ledgers whose end is known to be gone.
    """
    states = {NodeEpoch(state.node, state.epoch): state for state in survey.nodes}
    segments: defaultdict[NodeEpoch, list[Segment]] = defaultdict(list)
    for one in survey.segments:
        if one.place.book is Ledger.EVENTS:
            segments[owner_of(one)].append(one)
    gaps: defaultdict[tuple[str, str], list[DeclaredGap]] = defaultdict(list)
    for owner, gap in declared_gaps(survey, summaries):
        loss = parse_loss(gap.reason)
        if loss is not None and loss.book is Ledger.EVENTS:
            gaps[owner.node, gap.gap_epoch].append(gap)
    first = {each[0].node: each[0].epoch for each in states_by_node(survey)}
    found: list[Hole] = []
    for owner in sorted({*states, *segments}):
        is_first = owner.epoch == first.get(owner.node)
        walk = _Walk(owner, states.get(owner), gaps[owner], ends=owner not in rolled_back, is_first=is_first)
        found += walk.all_holes(sorted(segments[owner], key=lambda one: one.place.after), runs)
    return found


class _LastEvent(NamedTuple):
    """The last event of a group that was seen: its seq, position and time. Without one, seq and position are 0."""

    seq: int = 0
    position: int = 0
    at: int = EARLIEST


@dataclass
class HoleIndex:
    """Finds holes among those of one node and group, which are in the order of their epochs and positions.

    Seqs begin at 1 again with a group that was declared again, and times go back with the clock.
    """

    holes: Sequence[Hole]

    def with_seq(self, seq: int) -> int | None:
        """Return the index of the first hole that includes a seq; None if there is none."""
        for begin, firsts in self._ascending:
            at = begin + bisect_right(firsts, seq) - 1
            if at >= begin and seq <= self.holes[at].last:
                return at
        return None

    def during(self, times: tuple[int, int]) -> Hole | None:
        """Return the first hole whose times overlap these (first and last, microseconds); None if there is none."""
        latest, earliest = self._bounds
        for at in range(bisect_left(latest, times[0]), len(self.holes)):
            if earliest[at] > times[1]:
                break
            hole = self.holes[at]
            if hole.times[0] <= times[1] and times[0] <= hole.times[1]:
                return hole
        return None

    @cached_property
    def _ascending(self) -> list[tuple[int, list[int]]]:
        """Return each part of the holes with ascending seqs: the index of its first hole, and the first seq of each."""
        parts: list[tuple[int, list[int]]] = []
        last = 0
        for at, hole in enumerate(self.holes):
            if not parts or hole.first <= last:
                parts.append((at, []))
            parts[-1][1].append(hole.first)
            last = hole.last
        return parts

    @cached_property
    def _bounds(self) -> tuple[list[int], list[int]]:
        """Return, for each hole, the latest end up to it, and the earliest begin from it on."""
        latest = [*accumulate((hole.times[1] for hole in self.holes), max)]
        earliest = [*accumulate((hole.times[0] for hole in reversed(self.holes)), min)]
        return latest, earliest[::-1]


class _Candidate(NamedTuple):
    """A hole that may turn out to have a legitimate cause.

    `former`: the group was deleted later and declared again, so that the node's state describes other events of it.
    """

    hole: Hole
    former: bool = False


@dataclass
class _Walk:
    """A walk over the segments of one epoch's `events`, in order.

    `seen`: the groups whose events are known without interruption up to the last one. `begun`: everything from the
    first position on is known, so that a group that was not seen yet has no event so far. `ends`: whether the last
    event of the ledger is the last that the node recorded. `is_first`: the epoch is the node's first. `met`: all runs.
    """

    owner: NodeEpoch
    state: NodeState | None
    gaps: Sequence[DeclaredGap]
    ends: bool
    is_first: bool
    seen: dict[str, _LastEvent] = field(default_factory=dict)
    begun: bool = False
    met: list[SeqRun] = field(default_factory=list)
    found: list[_Candidate] = field(default_factory=list)

    def all_holes(self, segments: Sequence[Segment], runs: Mapping[str, Sequence[SeqRun]]) -> Iterator[Hole]:
        """Yield the holes without a legitimate cause."""
        promised = self.state.segments.get(Ledger.EVENTS) if self.state is not None else None
        reach = min([one.place.after for one in segments] + ([] if promised is None else [promised.after]), default=0)
        # A restored node ships only what follows its backup: nothing yet says where its ledger begins.
        self.begun = reach == 0 and (self.is_first or bool(segments))
        for segment in segments:
            if segment.place.after != reach or segment.place.name not in runs:
                self._interrupt()
            for run in sorted(runs.get(segment.place.name, ()), key=lambda run: run.first_position):
                self._meet(run)
            reach = segment.place.upto
        if self.ends and (promised is None or reach >= promised.upto):
            self._end()
        by_group: defaultdict[str, list[Hole]] = defaultdict(list)
        for one in self.found:
            if (hole := self._unexcused(one)) is not None:
                by_group[hole.group].append(hole)
        for group in sorted(by_group):
            yield from _merge_holes(by_group[group])

    def _interrupt(self) -> None:
        self.seen.clear()
        self.begun = False

    def _meet(self, run: SeqRun) -> None:
        seen = self._seen(run.group)
        if seen is not None and run.first <= seen.seq:
            # A group that was deleted and declared again begins at 1 again.
            seen = seen._replace(seq=0)
            self.found = [one._replace(former=one.former or one.hole.group == run.group) for one in self.found]
        if seen is not None and run.first > seen.seq + 1:
            self._add(run.group, seen, run.first - 1, run.first_position - 1, run.first_at)
        self.seen[run.group] = _LastEvent(run.last, run.last_position, run.last_at)
        self.met.append(run)

    def _seen(self, group: str) -> _LastEvent | None:
        """Return the last event of a group before the next one; None if that is not known."""
        return self.seen.get(group) or (_LastEvent() if self.begun else None)

    def _end(self) -> None:
        """Add the holes between the last events in the ledger and those that the node says it has recorded."""
        for group in self.state.groups if self.state is not None else ():
            seen = self._seen(group.group)
            if self.state is not None and seen is not None and group.last_seq > seen.seq:
                self._add(group.group, seen, group.last_seq, self.state.head, self.state.complete_until)

    def _add(self, group: str, seen: _LastEvent, last: int, upto: int, at: int) -> None:
        times = (min(seen.at, at), max(seen.at, at))  # the clock may have been set back
        hole = Hole(*self.owner, group, seen.seq + 1, last, last - seen.seq, seen.position, upto, times)
        self.found.append(_Candidate(hole))

    def _unexcused(self, found: _Candidate) -> Hole | None:
        """Return a hole without the events that retention may have removed before they were shipped.

        None if no other events are left. Retention removes the events up to a seq, and the node declares between which
        positions the removed ones are. Other groups may have events among these positions.
        """
        hole = found.hole
        group = None if found.former else self._group(hole)
        evicted = hole.last
        if group is not None and group.evicted_seq >= 0 and hole.last <= group.last_seq:
            evicted = min(group.evicted_seq, hole.last)
        most = evicted - hole.first + 1
        if most <= 0:
            return hole
        for gap in self._gaps_with(hole):
            after, upto = max(gap.after, hole.after), min(gap.upto, hole.upto)
            if after >= upto or most <= 0:
                continue
            lost = min(upto - after - self._others(hole.group, after, upto), most)
            rest = _without(hole, lost, begins=gap.after <= hole.after, ends=gap.upto >= hole.upto, after=upto)
            if rest is None:
                return None
            hole, most = rest, most - lost
        return hole

    def _others(self, group: str, after: int, upto: int) -> int:
        """Return how many events of other groups the ledger has at positions in (after, upto]."""
        others = (runs for name, runs in self._runs_by_group.items() if name != group)
        return sum(runs.events_within(after, upto) for runs in others)

    @cached_property
    def _runs_by_group(self) -> dict[str, _GroupRuns]:
        """Return the runs of each group; to be called when all are known."""
        found: defaultdict[str, list[SeqRun]] = defaultdict(list)
        for run in self.met:
            found[run.group].append(run)
        return {group: _GroupRuns.of(runs) for group, runs in found.items()}

    def _gaps_with(self, hole: Hole) -> Iterator[DeclaredGap]:
        """Yield the gaps of the hole's group that have some of its positions, in order."""
        gaps, ends = self._gaps_by_group.get(hole.group, ((), ()))
        first = bisect_right(ends, hole.after)
        last = bisect_left(gaps, hole.upto, key=lambda gap: gap.after)
        yield from gaps[first:last]

    @cached_property
    def _gaps_by_group(self) -> dict[str, tuple[list[DeclaredGap], list[int]]]:
        """Return the gaps of each group in order, and for each the highest position of it and those before it."""
        found: defaultdict[str, list[DeclaredGap]] = defaultdict(list)
        for gap in sorted(self.gaps, key=lambda gap: gap.after):
            found[gap.group].append(gap)
        return {group: (gaps, [*accumulate((gap.upto for gap in gaps), max)]) for group, gaps in found.items()}

    def _group(self, hole: Hole) -> GroupState | None:
        groups = self.state.groups if self.state is not None else ()
        return next((group for group in groups if group.group == hole.group), None)


class _GroupRuns(NamedTuple):
    """The runs of one group in order: the positions of first and last event of each, and the events before each."""

    firsts: list[int]
    lasts: list[int]
    before: list[int]

    @classmethod
    def of(cls, runs: Sequence[SeqRun]) -> _GroupRuns:
        before = [*accumulate((run.last - run.first + 1 for run in runs), initial=0)]
        return cls([run.first_position for run in runs], [run.last_position for run in runs], before)

    def events_within(self, after: int, upto: int) -> int:
        """Return how many events are in the runs that lie at positions in (after, upto] as a whole."""
        first, last = bisect_right(self.firsts, after), bisect_right(self.lasts, upto)
        return max(self.before[last] - self.before[first], 0)


def _without(hole: Hole, lost: int, *, begins: bool, ends: bool = False, after: int | None = None) -> Hole | None:
    """Return a hole without `lost` of its events: without the first ones if `begins`, without the last ones if `ends`.

    None if no events are left. `after`: the position of the last event that is removed at the beginning.
    """
    if lost >= hole.events:
        return None
    rest = hole._replace(events=hole.events - lost)
    if begins:
        return rest._replace(first=hole.first + lost, after=hole.after if after is None else after)
    return rest._replace(last=hole.last - lost) if ends else rest


def _merge_holes(holes: Sequence[Hole]) -> Iterator[Hole]:
    """Yield at most `MOST_HOLES` holes that cover all of these, which are of one group and in order."""
    size = -(-len(holes) // MOST_HOLES)
    for begin in range(0, len(holes), size):
        some = holes[begin : begin + size]
        head, tail = some[0], some[-1]
        yield head._replace(
            last=tail.last,
            events=sum(hole.events for hole in some),
            upto=tail.upto,
            times=(min(hole.times[0] for hole in some), max(hole.times[1] for hole in some)),
        )


def holes_by_ledger(holes: Iterable[Hole]) -> dict[tuple[str, str], list[Hole]]:
    """Return the holes by node and group."""
    found: defaultdict[tuple[str, str], list[Hole]] = defaultdict(list)
    for hole in holes:
        found[hole.node, hole.group].append(hole)
    return dict(found)
