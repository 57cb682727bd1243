"""The verdicts on all records of one event at one peer. Free of input and output.

An event may have several records, which differ in their digests: an event is refreshed by a record with a later
expiry. A record that only the source has, and a record of the same event that only the peer has, are the two halves of
an event that was altered: they are one finding, not two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from eventd.audit.arrays.alterations import LedgerRow, content_differences, outline_differences
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.report.findings import NO_ORIGIN, NO_ROW, OTHER_CONTENT, OTHER_DELIVERY, Discrepancy, Kind
from eventd.audit.verdicts.trail import Trail
from eventd.audit.verdicts.verdicts import DeliveryOutcome, Verdict, altered, judge

_LACKED: Final = frozenset(
    {DeliveryOutcome.MISSING, DeliveryOutcome.DISPUTED, DeliveryOutcome.DELIVERED, DeliveryOutcome.UNPROVEN}
)
HALVES: Final = frozenset({Kind.MISSING, Kind.DISAGREEMENT, Kind.FORGED, Kind.ERASED})
"""The kinds of discrepancies that an altered event has if each of its halves is judged alone."""


def judge_records(trails: Sequence[Trail], coverage: Coverage) -> list[Verdict]:
    """Judge the records of one event at one peer; return a verdict for each trail."""
    verdicts = [judge(trail, coverage) for trail in trails]
    if len(trails) > 1:
        for at, other in _pairs(trails, verdicts, _lacks_content, _has_no_origin):
            verdicts[at], verdicts[other] = _other_content(trails, verdicts, at, other)
        for at, trail in enumerate(trails):
            judged = any(one.kind is Kind.ALTERED for one in verdicts[at].discrepancies)
            if trail.due_row and not (trail.delivery_row or judged) and verdicts[at].outcome in _LACKED:
                _find_delivery(trails, verdicts, at, trail.due_row)
    return verdicts


def _pairs(
    trails: Sequence[Trail],
    verdicts: Sequence[Verdict],
    one: Callable[[Trail, Verdict], bool],
    other: Callable[[Trail, Verdict], bool],
) -> Iterator[tuple[int, int]]:
    """Yield the indexes of a record that `one` accepts and of one that `other` accepts, in pairs, in the order of
    time.
    """
    order = sorted(range(len(trails)), key=lambda at: trails[at].slot)
    ones, others = ([at for at in order if sort(trails[at], verdicts[at])] for sort in (one, other))
    yield from zip(ones, others, strict=False)


def _lacks_content(trail: Trail, verdict: Verdict) -> bool:
    return bool(trail.source_row or trail.due_row) and not trail.held and verdict.outcome in _LACKED


def _has_no_origin(trail: Trail, verdict: Verdict) -> bool:
    return trail.peer_row is not None and any(one.detail in (NO_ORIGIN, NO_ROW) for one in verdict.discrepancies)


def _other_content(
    trails: Sequence[Trail], verdicts: Sequence[Verdict], at: int, other: int
) -> tuple[Verdict, Verdict]:
    """Return the verdicts on a record that the peer lacks, and on the one that it has instead."""
    ours, theirs = trails[at], trails[other]
    row = ours.source_row or ours.due_row
    if row is None or theirs.peer_row is None:
        return verdicts[at], verdicts[other]
    delivery = ours.delivery_row or theirs.delivery_row
    found = altered(ours, OTHER_CONTENT, content_differences(row, theirs.peer_row), row, theirs.peer_row, delivery)
    return (
        Verdict(DeliveryOutcome.DISPUTED, (*_others(verdicts[at]), found)),
        Verdict(DeliveryOutcome.FOREIGN, tuple(_others(verdicts[other]))),
    )


def _find_delivery(trails: Sequence[Trail], verdicts: list[Verdict], at: int, due: LedgerRow) -> None:
    """Correct the verdicts on a due record without a delivery, if the sender has one of it under another digest."""
    for other, trail in enumerate(trails):
        row = trail.delivery_row
        if other == at or row is None or not row.is_of(due):
            continue
        found: tuple[Discrepancy, ...] = ()
        # If the delivery is that of the source's record, a relay's row of the event was altered. That is reported for
        # the relay as the peer.
        if trails[at].source_row or not trail.source_row:
            found = (altered(trails[at], OTHER_DELIVERY, outline_differences(due, row), due, row, row),)
        outcome = _outcome_of(trail) if not trail.selected else DeliveryOutcome.FOREIGN
        verdicts[at] = Verdict(outcome, (*_others(verdicts[at]), *found))
        if not trail.selected:
            verdicts[other] = Verdict(DeliveryOutcome.FOREIGN, tuple(_others(verdicts[other])))
        return
    if trails[at].source_row is None and any(one.source_row for one in trails):
        # A relay's row again, whose delivery is not the last one of the record.
        verdicts[at] = Verdict(DeliveryOutcome.FOREIGN, tuple(_others(verdicts[at])))


def _outcome_of(trail: Trail) -> DeliveryOutcome:
    if trail.sent:
        return DeliveryOutcome.DELIVERED
    if trail.refused:
        return DeliveryOutcome.REFUSED
    return DeliveryOutcome.IN_PATH if trail.in_path else DeliveryOutcome.EXPIRED


def _others(verdict: Verdict) -> Iterator[Discrepancy]:
    return (one for one in verdict.discrepancies if one.kind not in HALVES)
