"""Stage 4: the report, put together from what the stages found."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

from eventd.audit.engine.cells import What
from eventd.audit.engine.coverage import Sight
from eventd.audit.engine.link_figures import COUNTED, HourKey, Judged, LineFigures, changes_by_line, counts_of
from eventd.audit.engine.links import ENDLESS
from eventd.audit.engine.plan import Keeper, Plan, histories
from eventd.audit.engine.rows import Line
from eventd.audit.engine.small_ledgers import Facts
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.objectives import Objectives, judge_pair, objective_of
from eventd.audit.report.report import Figures, Hour, Latencies, OpenGap, Pair, Skew, Totals
from eventd.lake.layout import MINUTE
from eventd.lake.manifest import NodeState, PeerState
from eventd.lake.reader import Survey
from eventd.runtime.clock import SECOND
from federation.event import format_time

FiguresT = TypeVar("FiguresT", bound=Figures)

HOUR: Final = 60 * MINUTE
_SHOWN: Final = 10_000
"""A share is shown, rounded down, to so many parts of a percent."""
_SPREAD: Final = tuple(name for name in Hour.__struct_fields__ if name.endswith(("_p50", "_p95", "_p99")))


@dataclass
class Found:
    """Everything the stages found."""

    survey: Survey
    plan: Plan
    sight: Sight
    facts: Mapping[Keeper, Sequence[Facts]]
    lines: Mapping[Line, LineFigures]
    hours: Sequence[Mapping[str, Any]]
    waiting: Mapping[Line, tuple[int, int]]
    """For each line that has something to come: when the first of it was recorded, and its slot."""
    senders: Mapping[Line, tuple[str, ...]]
    judged: Judged = field(default_factory=Judged)
    findings: list[Finding] = field(default_factory=list)
    rewritten: Mapping[str, int] = field(default_factory=dict)
    """Segments whose digest changed after an audit had read them, and when that was noticed (microseconds)."""

    @cached_property
    def open_slots(self) -> dict[tuple[Kind, Line], list[int]]:
        """Where events are missing or disputed."""
        return self.judged.slots(Kind.MISSING, Kind.DISAGREEMENT)


def share(figures: Figures, *, sure: bool) -> float | None:
    """The completeness in percent, rounded down; None where it cannot be told."""
    due = figures.delivered + figures.missing + figures.disputed
    if not sure or figures.unproven:
        return None
    return 100.0 if not due else math.floor(100 * _SHOWN * figures.delivered / due) / _SHOWN


def make_pairs(found: Found, objectives: Objectives) -> list[Pair]:
    """A pair for each line that anything was or is to go along."""
    changes = changes_by_line(found.judged.changes)
    states = {(state.node, group, peer.peer): (state, peer) for state, group, peer in _links(found.survey)}
    declared = {Line(group, node, peer) for node, group, peer in states}
    pairs = []
    for line in sorted({*found.lines, *changes, *declared}):
        figures = found.lines.get(line, LineFigures())
        counts = counts_of(figures)
        for name, n in changes.get(line, Counter()).items():
            counts[name] += n
        if line.peer and (counts["expected"] or line in declared):
            senders = found.senders.get(line) or (line.source,)
            pairs.append(_pair(found, line, figures, counts, senders, states, objectives))
    return pairs


def _links(survey: Survey) -> Iterator[tuple[NodeState, str, PeerState]]:
    """The links of every node as it last saw them."""
    for *_, state in histories(survey):
        yield from ((state, group.group, peer) for group in state.groups for peer in group.peers)


def _pair(
    found: Found,
    line: Line,
    figures: LineFigures,
    counts: Counter[str],
    senders: tuple[str, ...],
    states: Mapping[tuple[str, str, str], tuple[NodeState, PeerState]],
    objectives: Objectives,
) -> Pair:
    link = next((states[key] for key in ((node, line.group, line.peer) for node in senders) if key in states), None)
    notes = (*_notes(found.sight, line, senders), *_ends(found.sight, line, senders))
    pair = Pair(
        group=line.group,
        source=line.source,
        peer=line.peer,
        senders=senders,
        bytes=figures.bytes,
        duplicates=counts["duplicates"],
        attempts=figures.attempts,
        latencies=_latencies(found, line, figures),
        skew=_skew(found.plan, senders[0], line.peer),
        state=link[1].state if link else "",
        proof=_proof(found, line, figures),
        notes=notes,
    )
    _count(pair, counts)
    pair.completeness = share(pair, sure=not notes)
    now = link[0].as_of if link else found.sight.until.get(senders[0], 0)
    pair.lag, pair.oldest_open_gap = _open(found, line, now)
    objective = objective_of(objectives, line.group)
    pair.slo = judge_pair(pair, objective, late=figures.late(objective.fail), sure=pair.completeness is not None)
    return pair


def _latencies(found: Found, line: Line, figures: LineFigures) -> Latencies:
    """The four legs; the first is of the source alone."""
    source = found.lines.get(line._replace(peer=""), LineFigures())
    return Latencies(
        recorded=source.leg(What.RECORDED),
        delivered=figures.leg(What.ACKNOWLEDGED),
        peer_recorded=figures.leg(What.PEER_RECORDED),
        whole=figures.leg(What.WHOLE),
    )


def _notes(sight: Sight, line: Line, senders: Iterable[str]) -> Iterator[str]:
    """Why the completeness of a pair cannot be told."""
    for node in dict.fromkeys((line.source, *senders, line.peer)):
        if node in sight.contested:
            yield f"the books of {node} are not those of one node, or do not say how far they reach"
        elif reason := sight.dims(node):
            yield reason
    if not sight.keeps(line.source):
        yield f"{line.source} keeps no books in this lake: what it stated is known from others only"
    elif sight.ends_before(line.source):
        end = format_time(sight.until[line.source])
        yield f"the books of {line.source} end at {end}, before the time that was asked for"


def _ends(sight: Sight, line: Line, senders: Iterable[str]) -> Iterator[str]:
    """Whose ledgers end before the time that was asked for."""
    for node in dict.fromkeys((line.source, *senders, line.peer)):
        if silence := sight.silences.get(node):
            yield f"{node} is {silence.words}"


def _proof(found: Found, line: Line, figures: LineFigures) -> str:
    if found.sight.keeps(line.peer):
        return "books"
    return "receipts" if figures.bins.get(What.WHOLE) else "claims"


def _skew(plan: Plan, node: str, peer: str) -> Skew | None:
    hours = plan.clocks.get((node, peer))
    if not hours:
        return None
    middles = [one.middle for one in hours]
    moved = max(middles) - min(middles)
    return Skew(ms=hours[-1].middle / 1000, error_ms=hours[-1].error / 1000, moved_ms=moved / 1000)


def _open(found: Found, line: Line, now: int) -> tuple[float | None, OpenGap | None]:
    """How long the first event that is to come has been waiting, and the oldest that is not there, by their time."""
    waiting = found.waiting.get(line)
    slots = [slot for kind in (Kind.MISSING, Kind.DISAGREEMENT) for slot in found.open_slots.get((kind, line), ())]
    if waiting is not None:
        slots.append(waiting[1])
    lag = 0.0 if waiting is None else max(0.0, (now - waiting[0]) / SECOND)
    if not slots:
        return lag, None
    since = min(slots) * MINUTE
    return lag, OpenGap(since=format_time(since), seconds=max(0.0, (now - since) / SECOND))


def make_hours(found: Found) -> list[Hour]:
    """A row for each line, type and hour in which anything was to go along it."""
    rows: dict[HourKey, Mapping[str, Any]] = {
        HourKey(Line(row["group"], row["source"], row["peer"]), row["type"], row["time"]): row for row in found.hours
    }
    proven: dict[Line, int] = {}
    hours = []
    for key in sorted({*rows, *found.judged.changes}):
        stated = key._replace(line=key.line._replace(peer=""))
        hour = _hour(key, rows.get(key, {}), rows.get(stated, {}), found.judged.changes.get(key, {}))
        if not (hour.expected and key.line.peer):
            continue
        if key.line not in proven:
            proven[key.line] = _proven_until(found, key.line)
        hour.completeness = share(hour, sure=(key.hour + 1) * HOUR <= proven[key.line])
        hours.append(hour)
    return hours


def _proven_until(found: Found, line: Line) -> int:
    """The time up to which hours of a line can be judged (microseconds): never, to the end of a ledger, or always."""
    senders = found.senders.get(line) or (line.source,)
    if any(True for _ in _notes(found.sight, line, senders)):
        return -ENDLESS
    nodes = (line.source, *senders, line.peer)
    ends = [silence.covered for node, silence in found.sight.silences.items() if node in nodes]
    return min(ends, default=ENDLESS)


def _hour(key: HourKey, row: Mapping[str, Any], source: Mapping[str, Any], change: Mapping[str, int]) -> Hour:
    """One row of the hours; `source` has what is the same for all peers."""
    counts = Counter({name: row.get(name) or 0 for name in COUNTED})
    counts["expected"] += counts["pending"]
    for name, n in change.items():
        counts[name] += n
    hour = Hour(
        group=key.line.group,
        source=key.line.source,
        peer=key.line.peer,
        type=key.type,
        hour=format_time(key.hour * HOUR),
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


def make_totals(found: Found, pairs: Sequence[Pair]) -> Totals:
    """The sums over all pairs."""
    own = sum(one.counts[What.OWN] for one in found.lines.values())
    done = (What.DELIVERED, What.EXPIRED, What.IN_PATH, What.REFUSED)
    kinds: dict[str, int] = defaultdict(int)
    for finding in found.findings:
        kinds[finding.kind.value] += finding.events
    totals = Totals(
        events=own,
        deliveries=sum(one.counts[what] for one in found.lines.values() for what in done),
        findings=len(found.findings),
        by_kind=dict(kinds),
        bytes=sum(pair.bytes for pair in pairs),
        # A delivery to where nothing was to go is a repetition, too, and belongs to no pair.
        duplicates=sum(change["duplicates"] for change in found.judged.changes.values()),
    )
    _count(totals, Counter({name: sum(getattr(pair, name) for pair in pairs) for name in COUNTED}))
    sure = bool(pairs) and all(pair.completeness is not None for pair in pairs)  # a lake without books proves nothing
    # What a node without pairs would have told is not known either, nor who has rewritten evidence.
    sure = sure and not found.sight.silences and not found.rewritten
    totals.completeness = share(totals, sure=sure)
    return totals
