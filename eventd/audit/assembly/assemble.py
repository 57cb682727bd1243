"""Stage 4: the pairs, hours and totals of the report, assembled from the results of the other stages."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

from eventd.audit.coverage.coverage import Coverage
from eventd.audit.coverage.file_tree_findings import FileTreeFindings
from eventd.audit.coverage.mentions import Mentions
from eventd.audit.coverage.receipt_links import LinkKey
from eventd.audit.coverage.rollbacks import DeletedRange
from eventd.audit.report.figures import nearest_time
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.objectives import Objectives, judge_pair, objective_of
from eventd.audit.report.report import Figures, Hour, Latencies, OpenGap, Pair, Skew, Totals
from eventd.audit.segments.cells import HOUR, Measure
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.link_rows import ENDLESS
from eventd.audit.segments.plan import LakePlan, NodeEpoch, states_by_node
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.erasures import Erasures
from eventd.audit.verdicts.hidden_events import HiddenEvents, hidden_events
from eventd.audit.verdicts.pair_figures import (
    COUNTED,
    HIDDEN,
    HourKey,
    OldestPending,
    PairFigures,
    RowComparison,
    changes_by_pair,
    counts_of,
)
from eventd.audit.verdicts.tree_findings import TreeFindings
from eventd.lake.layout import MINUTE
from eventd.lake.manifest import NodeState, PeerState
from eventd.lake.reader import Survey
from eventd.lake.receivers import is_callback
from eventd.runtime.clock import SECOND
from federation.event import format_time

FiguresT = TypeVar("FiguresT", bound=Figures)

_BY_PAYLOAD: Final = (
    "it selects by payloads, by which the audit does not select: events without a delivery may or may not be meant for "
    "it"
)
_OPEN: Final = (Kind.MISSING, Kind.ALTERED, Kind.DISAGREEMENT)
"""The kinds of findings about events that are not at the peer as they should be."""
_SHOWN: Final = 10_000
"""Completeness is rounded down to this fraction of a percent: one ten-thousandth."""
_SPREAD: Final = tuple(name for name in Hour.__struct_fields__ if name.endswith(("_p50", "_p95", "_p99")))


class HistoryUse(NamedTuple):
    """Whether the history, which records what earlier audits saw of the lake, could be used.

    `lost_at`: when the history was found to be lost (microseconds, 0: it is not lost), and `lost` why. `cleared`: it
    was discarded. `deleted`: rows that were deleted too early, as the history shows.
    """

    lost_at: int = 0
    lost: str = ""
    cleared: bool = False
    deleted: Sequence[DeletedRange] = ()


@dataclass
class StageResults:
    """The results of stages 0 to 3: from the survey of the lake to the comparison of rows and the findings."""

    survey: Survey
    plan: LakePlan
    coverage: Coverage
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]
    figures: Mapping[PairKey, PairFigures]
    hours: Sequence[Mapping[str, Any]]
    waiting: Mapping[PairKey, OldestPending]
    """The events that the cells count as pending."""
    senders: Mapping[PairKey, tuple[str, ...]]
    mentions: Mentions = field(default_factory=Mentions)
    comparison: RowComparison = field(default_factory=RowComparison)
    without_ledgers: frozenset[PairKey] = frozenset()
    """See `pairs_without_ledgers`."""
    erasures: Erasures = field(default_factory=Erasures)
    damaged: Mapping[str, int] = field(default_factory=dict)
    """See `count_damaged`."""
    findings: list[Finding] = field(default_factory=list)
    rewritten: Mapping[str, int] = field(default_factory=dict)
    """Segments whose content differs from what an earlier audit read, with the time of discovery (microseconds)."""
    history: HistoryUse = field(default_factory=HistoryUse)
    trees: TreeFindings = field(default_factory=TreeFindings)
    files: FileTreeFindings = field(default_factory=FileTreeFindings)

    @cached_property
    def open_slots(self) -> dict[tuple[Kind, PairKey], Counter[int]]:
        """Return how many events of each slot (minute since 1970) the peer should hold and does not."""
        return self.comparison.slots(*_OPEN)

    @cached_property
    def changes(self) -> Mapping[PairKey, Counter[str]]:
        """Return how the comparison of rows changes the counts of each pair."""
        return changes_by_pair(self.comparison.changes)

    @cached_property
    def absent(self) -> list[PairKey]:
        """Return the pairs whose source has no ledgers although no operator declares that it ships none."""
        return sorted(one for one in self.without_ledgers if one.source not in self.coverage.without_ledgers)

    def senders_of(self, key: PairKey) -> tuple[str, ...]:
        """Return the senders of a pair; the source of one without links."""
        return self.senders.get(key) or (key.source,)

    def unclaimed_senders(self, key: PairKey) -> list[str]:
        """Return the nodes that may have sent the pair's events in batches which their own ledgers do not show.

        These are the source, the senders of the pair, and nodes that have events of the source: a link that the
        ledgers no longer show may have relayed the events.
        """
        senders = {key.source, *self.senders_of(key)}
        links = sorted(one for one in self.coverage.unclaimed if (one.group, one.peer) == (key.group, key.peer))
        return [
            one.sender
            for one in links
            if one.sender in senders or PairKey(key.group, key.source, one.sender) in self.figures
        ]

    def hidden(self, key: PairKey) -> list[HiddenEvents]:
        """Return the events of a pair that were erased, or are in a damaged part of a ledger: see `hidden_events`."""
        delivered = self.changes.get(key, Counter())[HIDDEN]
        return hidden_events(key, self.senders_of(key), self.damaged, self.erasures, delivered)


def completeness_of(figures: Figures, *, sure: bool) -> float | None:
    """Return the completeness in percent, rounded down to four decimals; 100 if nothing was due.

    None if not `sure` (the ledgers do not reach far enough), or if a delivery could not be judged (`unproven`).
    A delivery that only the sender claims counts as delivered.
    """
    due = figures.delivered + figures.missing + figures.disputed
    if not sure or figures.unproven:
        return None
    return 100.0 if not due else math.floor(100 * _SHOWN * figures.delivered / due) / _SHOWN


def make_pairs(results: StageResults, objectives: Objectives) -> list[Pair]:
    """Return, sorted, the report's figures of each pair with expected events or a declared link from source to peer.

    Pairs whose source lacks its ledgers, or has sent batches that these do not show, are among them, too.
    """
    states = {(state.node, group, peer.peer): (state, peer) for state, group, peer in _links(results.survey)}
    declared = {PairKey(group, node, peer) for node, group, peer in states}
    declared |= {*results.absent, *(PairKey(*link) for link in results.coverage.unclaimed)}
    pairs = []
    for key in sorted({*results.figures, *results.changes, *declared}):
        figures = results.figures.get(key, PairFigures())
        counts = counts_of(figures)
        for name, n in results.changes.get(key, Counter()).items():
            counts[name] += n
        if key.peer and (counts["expected"] or key in declared):
            pairs.append(_pair(results, key, figures, counts, results.senders_of(key), states, objectives))
    return pairs


def _links(survey: Survey) -> Iterator[tuple[NodeState, str, PeerState]]:
    """Yield each link of every node's latest state: that state, the group, and the peer's part of the state."""
    for *_, state in states_by_node(survey):
        yield from ((state, group.group, peer) for group in state.groups for peer in group.peers)


def _pair(
    results: StageResults,
    key: PairKey,
    figures: PairFigures,
    counts: Counter[str],
    senders: tuple[str, ...],
    states: Mapping[tuple[str, str, str], tuple[NodeState, PeerState]],
    objectives: Objectives,
) -> Pair:
    link = next((states[at] for at in ((node, key.group, key.peer) for node in senders) if at in states), None)
    hidden = results.hidden(key)
    for name in ("expected", "unproven"):
        counts[name] += sum(one.events for one in hidden)
    notes = (*_notes(results, key, senders), *_silence_notes(results.coverage, key, senders))
    notes += tuple(one.note for one in hidden)
    pair = Pair(
        group=key.group,
        source=key.source,
        peer=key.peer,
        senders=senders,
        bytes=figures.bytes,
        duplicates=counts["duplicates"],
        attempts=figures.attempts,
        latencies=_latencies(results, key, figures),
        skew=_skew(results.plan, senders[0], key.peer),
        state=link[1].state if link else "",
        proof=_proof(results, key, figures, senders),
        notes=notes,
        receiver="callback" if is_callback(key.peer) else "node",
    )
    _count(pair, counts)
    pair.completeness = completeness_of(pair, sure=not notes)
    if pair.unproven and any((group, peer) == (key.group, key.peer) for _, group, peer in results.plan.by_payload):
        pair.notes = (*notes, _BY_PAYLOAD)
    now = link[0].as_of if link else results.coverage.until.get(senders[0], 0)
    pair.lag, pair.oldest_open_gap = _open(results, key, now)
    objective = objective_of(objectives, key.group)
    pair.slo = judge_pair(pair, objective, late=figures.late(objective.fail), sure=pair.completeness is not None)
    return pair


def _latencies(results: StageResults, key: PairKey, figures: PairFigures) -> Latencies:
    """Return the latencies of the four legs of a pair's deliveries; the first depends on the source alone."""
    source = results.figures.get(key._replace(peer=""), PairFigures())
    return Latencies(
        recorded=source.leg(Measure.RECORDED),
        delivered=figures.leg(Measure.ACKNOWLEDGED),
        peer_recorded=figures.leg(Measure.PEER_RECORDED),
        whole=figures.leg(Measure.WHOLE),
    )


def _notes(results: StageResults, key: PairKey, senders: Iterable[str]) -> Iterator[str]:
    """Yield the reasons, apart from silences, why the completeness of a pair is unknown."""
    coverage = results.coverage
    for node in dict.fromkeys((key.source, *senders, key.peer)):
        if node in coverage.contested:
            yield f"the ledgers of {node} are not those of one node, or do not say how far they reach"
        elif reason := coverage.damage_of(node):
            yield reason
    for sender in results.unclaimed_senders(key):
        yield f"{key.peer} recorded batches of {sender} that the ledgers of {sender} do not show"
    if not coverage.has_ledgers(key.source) and key.source not in coverage.without_ledgers:
        yield f"{key.source} has no readable state in this lake: its events are known from other nodes only"
    elif coverage.has_ledgers(key.source) and coverage.ends_before(key.source):
        end = format_time(coverage.until[key.source])
        yield f"the ledgers of {key.source} end at {end}, before the requested period"


def _silence_notes(coverage: Coverage, key: PairKey, senders: Iterable[str]) -> Iterator[str]:
    """Yield, for each node of the pair with a `Silence`, the reason why the completeness is unknown."""
    for node in dict.fromkeys((key.source, *senders, key.peer)):
        if silence := coverage.silences.get(node):
            yield f"{node} is {silence.words}"


def _proof(results: StageResults, key: PairKey, figures: PairFigures, senders: Iterable[str]) -> str:
    """Return the proof of all deliveries of a pair.

    It is `receipts` only if public keys verify every receipt on its senders' links, and the receipts account for all
    deliveries, batch by batch, except those whose receipts are no longer kept. A delivery row that merely names a
    receipt is not enough.
    """
    coverage = results.coverage
    if coverage.has_ledgers(key.peer):
        return "books"
    links = [LinkKey(key.group, sender, key.peer) for sender in senders]
    is_proven = all(link in coverage.verified and not coverage.claims_on(link) for link in links)
    unkept = sum(coverage.unkept_receipts[link] for link in links)
    return "receipts" if is_proven and figures.counts[Measure.DELIVERED] > unkept else "claims"


def _skew(plan: LakePlan, node: str, peer: str) -> Skew | None:
    hours = plan.clocks.get((node, peer))
    if not hours:
        return None
    middles = [one.middle for one in hours]
    moved = max(middles) - min(middles)
    return Skew(ms=hours[-1].middle / 1000, error_ms=hours[-1].error / 1000, moved_ms=moved / 1000)


def _open(results: StageResults, key: PairKey, now: int) -> tuple[float | None, OpenGap | None]:
    """Return the lag of a pair, and the minute and age of its oldest pending, missing or disputed event (or None).

    The lag is how long before `now` the first pending event was recorded, in seconds; 0 without a pending one.
    """
    waiting = [found[key] for found in (results.waiting, results.comparison.waiting) if key in found]
    slots = [slot for kind in _OPEN for slot in results.open_slots.get((kind, key), ())]
    slots += [one.slot for one in waiting]
    lag = max((max(0.0, (now - one.recorded_at) / SECOND) for one in waiting), default=0.0)
    if not slots:
        return lag, None
    since = min(slots) * MINUTE
    return lag, OpenGap(since=nearest_time(since), seconds=max(0.0, (now - since) / SECOND))


def make_hours(results: StageResults) -> list[Hour]:
    """Return a row for each pair, type and hour with expected events, sorted by these."""
    rows: dict[HourKey, Mapping[str, Any]] = {
        HourKey(PairKey(row["group"], row["source"], row["peer"]), row["type"], row["time"]): row
        for row in results.hours
    }
    proven: dict[PairKey, int] = {}
    hours = []
    for hour_key in sorted({*rows, *results.comparison.changes}):
        recorded = hour_key._replace(pair=hour_key.pair._replace(peer=""))
        hour = _hour(
            hour_key, rows.get(hour_key, {}), rows.get(recorded, {}), results.comparison.changes.get(hour_key, {})
        )
        if not (hour.expected and hour_key.pair.peer):
            continue
        if hour_key.pair not in proven:
            proven[hour_key.pair] = _proven_until(results, hour_key.pair)
        hour.completeness = completeness_of(hour, sure=(hour_key.hour + 1) * HOUR <= proven[hour_key.pair])
        hours.append(hour)
    return hours


def _proven_until(results: StageResults, key: PairKey) -> int:
    """Return the time up to which hours of a pair can be judged, in microseconds.

    -ENDLESS if none can, ENDLESS if no node of the pair has a silence.
    """
    senders = results.senders_of(key)
    if results.hidden(key) or any(True for _ in _notes(results, key, senders)):
        return -ENDLESS
    nodes = (key.source, *senders, key.peer)
    ends = [silence.covered for node, silence in results.coverage.silences.items() if node in nodes]
    return min(ends, default=ENDLESS)


def _hour(hour_key: HourKey, row: Mapping[str, Any], source: Mapping[str, Any], change: Mapping[str, int]) -> Hour:
    """Return one row of the hours: `row` with its counts changed by `change`.

    `source` has the latencies of recording, which are the same for all peers.
    """
    counts = Counter({name: row.get(name) or 0 for name in COUNTED})
    counts["expected"] += counts["pending"]
    for name, n in change.items():
        counts[name] += n
    hour = Hour(
        group=hour_key.pair.group,
        source=hour_key.pair.source,
        peer=hour_key.pair.peer,
        type=hour_key.type,
        hour=format_time(hour_key.hour * HOUR),
        bytes=row.get("bytes") or 0,
        duplicates=counts["duplicates"],
    )
    for name in _SPREAD:
        setattr(hour, name, (source if name.startswith("recorded_") else row).get(name))
    return _count(hour, counts)


def _count(figures: FiguresT, counts: Counter[str]) -> FiguresT:
    for name in COUNTED:
        setattr(figures, name, counts[name])
    return figures


def make_totals(results: StageResults, pairs: Sequence[Pair]) -> Totals:
    """Return the totals: sums over all pairs; events, ended deliveries, duplicates and findings of the whole lake."""
    own = sum(one.counts[Measure.OWN] for one in results.figures.values())
    done = (Measure.DELIVERED, Measure.EXPIRED, Measure.IN_PATH, Measure.REFUSED)
    kinds: dict[str, int] = defaultdict(int)
    for finding in results.findings:
        kinds[finding.kind.value] += finding.events
    totals = Totals(
        events=own,
        deliveries=sum(one.counts[what] for one in results.figures.values() for what in done),
        findings=len(results.findings),
        by_kind=dict(kinds),
        bytes=sum(pair.bytes for pair in pairs),
        claimed=sum(pair.claimed for pair in pairs),
        # A delivery to a peer without a link is also a repetition, but belongs to no pair.
        duplicates=sum(change["duplicates"] for change in results.comparison.changes.values()),
    )
    _count(totals, Counter({name: sum(getattr(pair, name) for pair in pairs) for name in COUNTED}))
    # Where no delivery is expected, nothing is proven: the lake may be another one, or the period one before it.
    sure = totals.expected > 0 and all(pair.completeness is not None for pair in pairs)
    # A silent node may have had pairs, a rewritten segment or deleted rows anything, and a lost history may have shown
    # either.
    history = results.history
    sure = sure and not (results.coverage.silences or results.rewritten or history.deleted or history.lost_at)
    sure = sure and not (results.trees.doubts or results.files.doubts)
    totals.completeness = completeness_of(totals, sure=sure)
    return totals
