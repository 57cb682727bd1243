"""Joins the two halves of an event whose id, group or source was changed in the ledger of one side.

The rows of such an event look like those of two events, of which one is missing at the peer and the other has no
origin. What shows that they are one is the fingerprint, which both have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from eventd.audit.report.findings import (
    NO_ORIGIN,
    NO_ROW,
    NOT_SENT,
    OTHER_CONTENT,
    OTHER_DELIVERY,
    Discrepancy,
    Kind,
)
from eventd.audit.segments.cells import SLOTS_PER_HOUR
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.event_verdicts import HALVES
from eventd.audit.verdicts.pair_figures import HourKey, LocatedDiscrepancy, RowComparison
from eventd.audit.verdicts.verdicts import DeliveryOutcome

_NAMES: Final = ("group", "source", "id")


def join_renamed(comparison: RowComparison) -> None:
    """Replace the discrepancies of each two halves of one event by one, and correct the counts."""
    alike: dict[tuple[str, str], list[LocatedDiscrepancy]] = defaultdict(list)
    for one in comparison.located:
        fingerprints = one.discrepancy.evidence.fingerprints
        if one.discrepancy.kind in HALVES and any(fingerprints):
            alike[one.discrepancy.peer, fingerprints[0] or fingerprints[-1]].append(one)
    joined: set[LocatedDiscrepancy] = set()
    made: list[LocatedDiscrepancy] = []
    for same in alike.values():
        theirs = [one for one in same if one.discrepancy.detail in (NO_ORIGIN, NO_ROW)]
        names = {_names(one.discrepancy) for one in theirs}
        ours = [one for one in same if _names(one.discrepancy) not in names]
        if len(names) == 1 and len({_names(one.discrepancy) for one in ours}) == 1:
            made.append(_join(comparison, ours[0], theirs[0]))
            joined.update(same)
    if joined:
        comparison.located = [*(one for one in comparison.located if one not in joined), *made]


def _names(one: Discrepancy) -> Sequence[str]:
    return tuple(getattr(one, name) for name in _NAMES)


def _join(comparison: RowComparison, ours: LocatedDiscrepancy, theirs: LocatedDiscrepancy) -> LocatedDiscrepancy:
    """Return the discrepancy of an event that has other names in `theirs`, and correct how it counts."""
    one, other = ours.discrepancy, theirs.discrepancy
    # If only the row of the delivery differs, the peer holds the event as its source has it.
    only_delivery = one.detail == NOT_SENT
    _count(comparison, theirs, -1, theirs.outcome)
    _count(comparison, ours, -1, ours.outcome)
    _count(comparison, ours, 1, (DeliveryOutcome.DELIVERED if only_delivery else DeliveryOutcome.DISPUTED).value)
    text = OTHER_DELIVERY if only_delivery else OTHER_CONTENT
    names = [name for name in _NAMES if getattr(one, name) != getattr(other, name)]
    evidence = one.evidence._replace(
        batch=one.evidence.batch or other.evidence.batch,
        receipt_digest=one.evidence.receipt_digest or other.evidence.receipt_digest,
        key_id=one.evidence.key_id or other.evidence.key_id,
        fingerprints=(one.evidence.fingerprints[0], other.evidence.fingerprints[-1] or one.evidence.fingerprints[-1]),
        values=tuple(f"{name}: {getattr(one, name)!r}, {getattr(other, name)!r}" for name in names),
    )
    detail = text.format(columns=", ".join(names))
    return ours._replace(discrepancy=one._replace(kind=Kind.ALTERED, detail=detail, evidence=evidence), hole=0)


def _count(comparison: RowComparison, one: LocatedDiscrepancy, n: int, outcome: str) -> None:
    """Add `n` events that count as `outcome`, of the pair, type and hour of a discrepancy."""
    if outcome != DeliveryOutcome.FOREIGN.value:
        pair = PairKey(one.discrepancy.group, one.discrepancy.source, one.discrepancy.peer)
        change = comparison.changes[HourKey(pair, one.type, one.slot // SLOTS_PER_HOUR)]
        change["expected"] += n
        change[outcome] += n
