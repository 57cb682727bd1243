"""Assigns the events that other rows name to the holes in ledgers of `events`, and makes the findings of both.

A row that was erased from `events` may still be named by deliveries, which have its seq, or by the ledger of the other
end of a link, which shows only when it must have been recorded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from eventd.audit.coverage.holes import EARLIEST, Hole, HoleIndex
from eventd.audit.report.figures import nearest_time
from eventd.audit.report.findings import (
    NO_ORIGIN,
    NO_ROW,
    NO_ROW_AT_PEER,
    NOT_HELD,
    Discrepancy,
    Finding,
    Kind,
    erased_rows,
    group_findings,
)
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.pair_figures import LocatedDiscrepancy

LedgerKey = tuple[str, str]
"""A node and a group: its ledger of the group's events."""

_OTHERWISE: Final = {NO_ROW: (Kind.FORGED, NO_ORIGIN), NO_ROW_AT_PEER: (Kind.DISAGREEMENT, NOT_HELD)}
"""Kind and detail of an erased event that does not fit into any hole of its time."""


@dataclass
class Erasures:
    """The findings of erased rows, and what they leave open.

    `others` are all other discrepancies. `unnamed`: by node and group, how many erased events no row names. `own`: how
    many erased events of their source are named, and `shown` in how many of these a pair has a delivery.
    """

    findings: list[Finding] = field(default_factory=list)
    others: list[Discrepancy] = field(default_factory=list)
    unnamed: Counter[LedgerKey] = field(default_factory=Counter)
    own: Counter[LedgerKey] = field(default_factory=Counter)
    shown: Counter[PairKey] = field(default_factory=Counter)


def find_erasures(
    holes: Mapping[LedgerKey, Sequence[Hole]], located: Sequence[LocatedDiscrepancy], hours: tuple[int, int]
) -> Erasures:
    """Return the erasures: a finding for each hole whose time overlaps `hours` (microseconds), with the ids known."""
    made = Erasures()
    named: defaultdict[LedgerKey, dict[str, LocatedDiscrepancy]] = defaultdict(dict)
    for one in located:
        event = one.discrepancy
        if event.kind is not Kind.ERASED or event.detail not in _OTHERWISE:
            made.others.append(event)
            continue
        node = event.source if event.detail == NO_ROW else event.peer
        known = named[node, event.group]
        # Several pairs may name one event; one of them with a seq at the node is the best.
        if event.id not in known or not known[event.id].discrepancy.seq:
            known[event.id] = one
    erased = {
        ledger: _fill(made, ledger, holes.get(ledger, ()), list(named[ledger].values()), hours)
        for ledger in sorted({*holes, *named})
    }
    for event in (one.discrepancy for one in located):
        if event.detail == NO_ROW and event.id in erased[event.source, event.group]:
            made.shown[PairKey(event.group, event.source, event.peer)] += 1
    return made


def _fill(
    made: Erasures,
    ledger: LedgerKey,
    holes: Sequence[Hole],
    named: Sequence[LocatedDiscrepancy],
    hours: tuple[int, int],
) -> set[str]:
    """Add the findings of one ledger's holes; return the ids of the erased events of `named`."""
    index, free = HoleIndex(holes), 0
    inside: list[list[Discrepancy]] = [[] for _ in holes]
    lost: list[Discrepancy] = []
    erased: set[str] = set()
    for one in sorted(named, key=_order):
        event = one.discrepancy
        # Events without a seq are in the order of the first hole that they may be in, so later ones never fit earlier.
        while free < len(holes) and not event.seq and not _may_be_in(one, holes[free], len(inside[free])):
            free += 1
        at = index.with_seq(event.seq) if event.seq else free if free < len(holes) else None
        if at is not None or event.seq:
            erased.add(event.id)
        if at is not None:
            inside[at].append(event)
        elif event.seq:
            lost.append(event._replace(peer=""))
        else:
            kind, detail = _OTHERWISE[event.detail]
            made.others.append(event._replace(kind=kind, detail=detail))
        made.own[ledger] += event.detail == NO_ROW and (at is not None or event.seq > 0)
    made.findings += group_findings(lost)
    for hole, events in zip(holes, inside, strict=True):
        made.unnamed[ledger] += hole.events - len(events)
        if hole.times[0] < hours[1] and hours[0] <= hole.times[1]:
            events.sort(key=lambda event: event.seq)
            made.findings.append(erased_rows(*ledger, (hole.first, hole.last), hole.events, events, _words(hole)))
    return erased


def _order(one: LocatedDiscrepancy) -> tuple[bool, int, int, int]:
    """Sort events with a known seq before the others, and these by time."""
    return not one.discrepancy.seq, one.hole, one.discrepancy.evidence.at, one.slot


def _may_be_in(one: LocatedDiscrepancy, hole: Hole, taken: int) -> bool:
    """Return whether an event without a known seq may be in a hole, given the number of its events that are `taken`
    already."""
    return taken < hole.events and hole.first >= one.hole


def _words(hole: Hole) -> str:
    """Return the detail of a finding: when the erased rows were recorded, and how many of the seqs are erased."""
    return "".join(_sentence(hole))


def _sentence(hole: Hole) -> Iterator[str]:
    some = "" if hole.events == hole.last - hole.first + 1 else f"{hole.events} of "
    yield f"no segment has rows with {some}these seqs"
    since, until = hole.times
    if since == EARLIEST:
        yield f"; they were recorded before {nearest_time(until)}"
    else:
        yield f"; they were recorded between {nearest_time(since)} and {nearest_time(until)}"
