"""Plans the reading of the large ledgers: the links of every node, and the offsets of the clocks.

The plan is made from the survey of the lake and the summaries of the small ledgers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import astuple

from eventd.audit.arrays.columns import NEVER
from eventd.audit.segments.cells import HOUR
from eventd.audit.segments.hourly_skew import HourlySkew
from eventd.audit.segments.ledger_summaries import ClockBounds, DeclaredGap, LedgerSummary
from eventd.audit.segments.link_progress import MOST_TEXTS, LinkProgress
from eventd.audit.segments.link_rows import ENDLESS, LinkRow, SelectionVersion, distinct_selections
from eventd.lake.losses import parse_loss
from eventd.lake.manifest import NodeState, PeerState, decode_selection
from eventd.lake.reader import Survey, TroubleKind
from eventd.lake.receivers import is_callback
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment


class NodeEpoch(NamedTuple):
    """A node in one epoch, within which its positions and row numbers are valid."""

    node: str
    epoch: str


def owner_of(segment: Segment) -> NodeEpoch:
    """Return the node and epoch of a segment's rows."""
    return NodeEpoch(segment.manifest.node, segment.manifest.epoch)


class ClockOffset(NamedTuple):
    """How far a peer's clock is ahead of the node's in one hour since 1970: `low` to `high` microseconds."""

    hour: int
    low: int
    high: int

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    @property
    def error(self) -> int:
        """Return half the distance of the bounds; not negative even if a clock was set and `low` exceeds `high`."""
        return abs(self.high - self.low + 1) // 2


ClockOffsets = Mapping[tuple[str, str], Sequence[ClockOffset]]
"""By (node, peer): how far the peer's clock is ahead of the node's, in each hour with a known bound, ascending."""


@dataclass
class LakePlan:
    """The plan of a lake. Times are in microseconds.

    `links`: those of each node and epoch. `acknowledged`: by link (owner, group and peer), see `LinkProgress`.
    `clocks`: see `ClockOffsets`. `since`: rows of a node and epoch that were recorded earlier do not count, because
    the ledgers of the node's previous epoch hold them. `by_payload`: the links (owner, group and receiver) that select
    by payloads, by which the audit does not select: which events they have to deliver is not known. `selections`: by
    link (owner, group and receiver) and version, the different texts of its selection; several contradict each other.
    `undeclared`: the versions of these that receipts name and the later state of the node does not know; they also have
    the texts of its last version. `former`: by link (owner, group and receiver) that the last state of its node does
    not declare, and of which there are receipts, the last position of these.
    """

    links: dict[NodeEpoch, tuple[LinkRow, ...]] = field(default_factory=dict)
    acknowledged: dict[tuple[NodeEpoch, str, str], list[tuple[int, int]]] = field(default_factory=dict)
    clocks: dict[tuple[str, str], list[ClockOffset]] = field(default_factory=dict)
    since: dict[NodeEpoch, int] = field(default_factory=dict)
    by_payload: set[tuple[NodeEpoch, str, str]] = field(default_factory=set)
    selections: dict[tuple[NodeEpoch, str, str], dict[int, tuple[str, ...]]] = field(default_factory=dict)
    undeclared: set[tuple[NodeEpoch, str, str, int]] = field(default_factory=set)
    former: dict[tuple[NodeEpoch, str, str], int] = field(default_factory=dict)

    def skews(self, node: str) -> dict[str, HourlySkew]:
        """Return, by peer, how far the peer's clock is ahead of the node's: the middle of the bounds of each hour."""
        return {
            peer: HourlySkew(tuple(one.hour for one in hours), tuple(one.middle for one in hours))
            for (sender, peer), hours in self.clocks.items()
            if sender == node
        }

    def skew_between(self, node: str, peer: str, hour: int) -> ClockOffset:
        """Return the peer's clock offset in the known hour nearest to `hour`; 0 to 0 without a known hour."""
        hours = self.clocks.get((node, peer), ())
        at = bisect_left(hours, hour, key=lambda one: one.hour)
        near = hours[max(at - 1, 0) : at + 1]
        return min(near, key=lambda one: abs(one.hour - hour), default=ClockOffset(hour, 0, 0))


def make_plan(survey: Survey, summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]) -> LakePlan:
    """Return the plan of a lake. `summaries` are those of its small ledgers."""
    plan = LakePlan(clocks=_clocks(summaries))
    contested = {(one.node, one.epoch) for one in survey.troubles if one.kind is TroubleKind.TWO_NODES}
    for states in states_by_node(survey):
        for place, state in enumerate(states):
            owner = NodeEpoch(state.node, state.epoch)
            _add_links(plan, owner, summaries.get(owner, ()), state, ended=state is not states[-1])
            clear = place > 0 and owner not in contested
            before = states[place - 1]
            # No ledger holds rows of a time after its state was written, or after the next epoch began.
            plan.since[owner] = min(before.complete_until, before.as_of, state.began_at) if clear else NEVER
    for owner in sorted({*summaries} - {*plan.links}):
        _add_links(plan, owner, summaries[owner], None)
    return plan


def _add_links(
    plan: LakePlan,
    owner: NodeEpoch,
    summaries: Iterable[LedgerSummary],
    state: NodeState | None,
    *,
    ended: bool = False,
) -> None:
    """Add the links of a node and epoch. Without a state, receipts show which it had, and what they have passed."""
    progress = _progress(summaries)
    groups = () if state is None else state.groups
    declared = {(group.group, peer.peer): peer for group in groups for peer in group.peers}
    # What a state says of repairs counts only if the lake is complete up to the state. Its cursors always do: it is
    # never later than the ledgers.
    whole = state is not None and state.complete_until >= state.as_of
    links = []
    for link in sorted({*progress, *declared}):
        by_state, by_receipts = declared.get(link), progress.get(link)
        undeclared = set() if state is None else _undeclared(state, by_state, by_receipts)
        if state is not None and not ended and by_state is None and by_receipts is not None:
            plan.former[owner, *link] = by_receipts.upto
        plan.undeclared |= {(owner, *link, version) for version in undeclared}
        plan.selections[owner, *link] = _texts(by_state, by_receipts, undeclared)
        versions = _versions(by_state, by_receipts, plan.selections[owner, *link], whole=whole)
        links.append(_link(*link, by_state, by_receipts, versions, ended=ended))
    plan.links[owner] = tuple(links)
    plan.by_payload |= {(owner, one.group, one.peer) for one in plan.links[owner] if one.selects_by_payload}
    plan.acknowledged |= {(owner, *link): one.acknowledged for link, one in progress.items()}


def states_by_node(survey: Survey) -> list[list[NodeState]]:
    """Return one list for each node, in order of name: its states, one per epoch, the latest epoch last."""
    found: defaultdict[str, list[NodeState]] = defaultdict(list)
    for state in sorted(survey.nodes, key=lambda state: (state.began_at, state.epoch)):
        found[state.node].append(state)
    return [found[node] for node in sorted(found)]


def _progress(summaries: Iterable[LedgerSummary]) -> dict[tuple[str, str], LinkProgress]:
    """Return the progress of each link of one node and epoch, by (group, peer), over all segments of its receipts."""
    found: dict[tuple[str, str], LinkProgress] = {}
    for one in (progress for each in summaries for progress in each.progress):
        before = found.get((one.group, one.peer))
        found[one.group, one.peer] = one if before is None else _merge_progress(before, one)
    return found


def _merge_progress(one: LinkProgress, other: LinkProgress) -> LinkProgress:
    starts = [each.after for each in (one, other) if each.after >= 0]
    repaired = {
        version: max(one.repaired.get(version, 0), other.repaired.get(version, 0))
        for version in {*one.repaired, *other.repaired}
    }
    return LinkProgress(
        one.group,
        one.peer,
        min(starts, default=-1),
        max(one.upto, other.upto),
        sorted([*one.versions, *other.versions]),
        {
            version: _joined_texts(one.selections.get(version, ()), other.selections.get(version, ()))
            for version in {*one.selections, *other.selections}
        },
        {
            version: min(each.first_used[version] for each in (one, other) if version in each.first_used)
            for version in {*one.first_used, *other.first_used}
        },
        repaired,
        sorted([*one.acknowledged, *other.acknowledged]),
    )


def _joined_texts(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other})[:MOST_TEXTS])


def _link(
    group: str,
    peer: str,
    declared: PeerState | None,
    progress: LinkProgress | None,
    versions: tuple[SelectionVersion, ...],
    *,
    ended: bool,
) -> LinkRow:
    went = -1 if progress is None else progress.upto
    cursor = declared.cursor if declared is not None else -1
    begins = progress.after if progress is not None and progress.after >= 0 else max(cursor, 0)
    settled = ENDLESS if ended else max(went, cursor, 0)
    if is_callback(peer):
        # Nothing before its beginning counts, whenever that was recorded.
        begins = begins if declared is None else _beginning(declared, progress)
        return LinkRow(group, peer, versions, settled, begins, ENDLESS, looks_back=False)
    return LinkRow(group, peer, versions, settled, begins, declared.created_at if declared is not None else 0)


def _beginning(declared: PeerState, progress: LinkProgress | None) -> int:
    """Return the position after which a callback gets events: by its state, or earlier if its receipts begin earlier.

    Receipts from before it was declared, or by earlier versions of the selection, are of another callback, which had
    its name.
    """
    if progress is None or progress.after < 0:
        return declared.begins
    first = min((one.version for one in declared.selections), default=0)
    is_another = min(progress.first_used) < first or min(progress.first_used.values()) < declared.created_at
    return declared.begins if is_another else min(declared.begins, progress.after)


def _undeclared(state: NodeState, declared: PeerState | None, progress: LinkProgress | None) -> set[int]:
    """Return the versions of a link that receipts name and the later state of the node should know, and does not.

    Versions that are no longer needed may be absent from a state; the last one never is.
    """
    if declared is None or not declared.selections or progress is None:
        return set()
    last, end = max(one.version for one in declared.selections), min(state.complete_until, state.as_of)
    return {version for version, at in progress.first_used.items() if version > last and at < end}


def _texts(
    declared: PeerState | None, progress: LinkProgress | None, undeclared: Collection[int]
) -> dict[int, tuple[str, ...]]:
    """Return the different texts of each version of a link's selection, the state's text first.

    An unknown version has none. A node never uses the number of a version again in an epoch, nor when a link is
    deleted and declared again.
    """
    found: dict[int, list[str]] = defaultdict(list)
    for one in () if declared is None else declared.selections:
        found[one.version].append(one.selection.text)
    for version, texts in ({} if progress is None else progress.selections).items():
        found[version] += [decode_selection(text).text for text in texts]
    if declared is not None:
        for version in undeclared:
            found[version].append(max(declared.selections, key=lambda one: one.version).selection.text)
    return {version: distinct_selections(texts) for version, texts in found.items()}


def _versions(
    declared: PeerState | None,
    progress: LinkProgress | None,
    selections: Mapping[int, Sequence[str]],
    *,
    whole: bool,
) -> tuple[SelectionVersion, ...]:
    """Return the versions of a link's selection. `selections` are their texts, see `_texts`.

    A peer that is no longer declared gets nothing after its last receipt. A version was declared before the first batch
    by it, whatever the state says.
    """
    last: dict[int, int] = {}
    repaired: Mapping[int, int] = {}
    declared_at = {one.version: one.declared_at for one in (() if declared is None else declared.selections)}
    if progress is not None:
        repaired = progress.repaired
        for upto, version in progress.versions:
            last[version] = max(upto, last.get(version, 0))
        declared_at = {version: min(at, progress.first_used.get(version, at)) for version, at in declared_at.items()}
    if not selections:
        return (SelectionVersion("{}"),) if declared is not None else (SelectionVersion("{}", upto=0),)
    versions, upto = [], 0
    under_way = _under_way(declared)
    for version in sorted(selections):
        text, *also = selections[version] or ("{}",)
        current = version == max(selections) and declared is not None
        upto = ENDLESS if current else max(upto, last.get(version, 0))
        sent = max((end for one, end in repaired.items() if one >= version), default=0)
        reached = sent if under_way is None or not whole else under_way
        versions.append(SelectionVersion(text, declared_at.get(version, 0), upto, reached, tuple(also)))
    return tuple(versions)


def _under_way(declared: PeerState | None) -> int | None:
    """Return the position that all running repairs have reached.

    ENDLESS without running repairs, None for an undeclared link.
    """
    repairs = getattr(declared, "repairs", None)
    return None if repairs is None else min((after for after, _ in repairs), default=ENDLESS)


def _clocks(summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]) -> dict[tuple[str, str], list[ClockOffset]]:
    """Return the hourly bounds of each pair of clocks, by (node, peer), narrowed by the receipts of both directions."""
    bounds: dict[tuple[str, str, int], tuple[int, int]] = {}

    def narrow(node: str, peer: str, hour: int, low: int, high: int) -> None:
        before = bounds.get((node, peer, hour))
        bounds[node, peer, hour] = (low, high) if before is None else (max(low, before[0]), min(high, before[1]))

    for owner, each in summaries.items():
        for one in (clocks for summary in each for clocks in summary.clocks):
            narrow(owner.node, one.peer, one.hour, one.low, one.high)
            narrow(one.peer, owner.node, _hour_there(one), -one.high, -one.low)
    found: dict[tuple[str, str], list[ClockOffset]] = defaultdict(list)
    for (node, peer, hour), (low, high) in sorted(bounds.items()):
        found[node, peer].append(ClockOffset(hour, low, high))
    return dict(found)


def _hour_there(clocks: ClockBounds) -> int:
    """Return the hour of these bounds by the peer's clock, rounded to the nearest hour."""
    return clocks.hour + round((clocks.low + clocks.high) / 2 / HOUR)


NumberRanges = Mapping[NodeEpoch, Sequence[tuple[int, int]]]
"""Ranges (after, upto] of row numbers of a ledger, by its owner."""


def unkept_numbers(
    survey: Survey, summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]], book: Ledger
) -> dict[NodeEpoch, list[tuple[int, int]]]:
    """Return the numbers of rows that were removed by the lake's retention, or by the node's retention before they
    were shipped."""
    found: defaultdict[NodeEpoch, list[tuple[int, int]]] = defaultdict(list)
    for state in survey.nodes:
        reach = state.segments.get(book)
        if reach is not None and reach.after > 0:
            found[NodeEpoch(state.node, state.epoch)].append((0, reach.after))
    for lost in lost_ranges(survey, summaries):
        if lost.by_number and lost.book is book:
            found[lost.owner].append((lost.after, lost.upto))
    return {owner: sorted({*ranges}) for owner, ranges in found.items()}


def declared_gaps(
    survey: Survey, summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]
) -> Iterator[tuple[NodeEpoch, DeclaredGap]]:
    """Yield the gaps that nodes declare, each with the owner of the ledger.

    A segment names the losses that were found when it was written: they may be added to `gaps`, and shipped, later.
    """
    known: set[tuple[object, ...]] = set()
    for owner, each in summaries.items():
        for gap in (gap for summary in each for gap in summary.gaps):
            known.add((owner, gap.group, gap.peer, gap.gap_epoch, gap.after, gap.upto, gap.reason))
            yield owner, gap
    for segment in survey.segments:
        owner, at = owner_of(segment), segment.manifest.written_at
        for group, peer, epoch, after, upto, _, reason in map(astuple, segment.manifest.lost):
            if (owner, group, peer, epoch, after, upto, reason) not in known:
                yield owner, DeclaredGap(group, peer, epoch, after, upto, reason, at)


class LostRange(NamedTuple):
    """A range (after, upto] of a node's ledger with rows that were deleted before they were shipped.

    These are positions of the log if the node evicted the events, and numbers of rows (`by_number`) if it deleted the
    rows themselves. The node noted the loss at `noted`, in microseconds.
    """

    owner: NodeEpoch
    book: Ledger
    after: int
    upto: int
    noted: int
    by_number: bool


def lost_ranges(survey: Survey, summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]) -> Iterator[LostRange]:
    """Yield the ranges of rows that nodes could not ship, as they declare them."""
    for owner, gap in declared_gaps(survey, summaries):
        if (loss := parse_loss(gap.reason)) is not None:
            yield LostRange(owner, loss.book, gap.after, gap.upto, gap.recorded_at, by_number=loss.by_number)
