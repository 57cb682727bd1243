"""The verdict on one event and one peer, from the rows of all ledgers. Free of input and output.

Only events that are not plainly in order are judged. A missing row counts as evidence only where the coverage says that
the ledger is sure to hold it. Elsewhere, no event counts as missing or disputed because a row is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from eventd.audit.arrays.alterations import (
    LedgerRow,
    content_differences,
    evidence_of,
    outline_differences,
    values_of,
)
from eventd.audit.arrays.columns import NEVER
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.coverage.receipt_links import LinkKey
from eventd.audit.report.findings import (
    EXPIRED_LATER,
    NO_ORIGIN,
    NO_ROW,
    NO_ROW_AT_PEER,
    NOT_EXPIRED,
    NOT_HELD,
    NOT_IN_PATH,
    NOT_REFUSED,
    NOT_SELECTED,
    NOT_SENT,
    OTHER_CONTENT,
    OTHER_DELIVERY,
    OWN_IN_PATH,
    TO_SOURCE,
    TWO_SENDERS,
    Discrepancy,
    Kind,
)
from eventd.audit.segments.link_rows import may_select
from eventd.audit.segments.plan import NodeEpoch
from eventd.audit.verdicts.trail import Trail
from eventd.lake.layout import MINUTE
from eventd.lake.receivers import is_callback
from eventd.lake.schema import Ledger


class DeliveryOutcome(StrEnum):
    """How an event counts at one peer, by the names of a report; FOREIGN does not count: no link selected it."""

    DELIVERED = "delivered"
    MISSING = "missing"
    DISPUTED = "disputed"
    EXPIRED = "expired"
    IN_PATH = "in_path"
    REFUSED = "dead_lettered"
    PENDING = "pending"
    UNPROVEN = "unproven"
    FOREIGN = "foreign"


class Verdict(NamedTuple):
    """How an event counts at one peer, and its discrepancies.

    An ERASED event without a seq may lie in the hole that begins with the seq `hole` of the node that lost the row.
    `hidden`: its delivery shows that a sender had it for the peer; the row that says so is in a damaged part.
    """

    outcome: DeliveryOutcome
    discrepancies: tuple[Discrepancy, ...]
    hole: int = 0
    hidden: bool = False


def judge(trail: Trail, coverage: Coverage) -> Verdict:
    """Judge one event at one peer: how it counts, and which discrepancies its rows show."""
    found = [*_repeats(trail)]
    unrecorded, hole = _unrecorded(trail, coverage)
    found += [unrecorded] if unrecorded is not None else []
    erased = unrecorded is not None and unrecorded.kind is Kind.ERASED and unrecorded.seq > 0
    hidden = not trail.selected and not erased and _is_hidden(trail, coverage)
    outcome, disputed = _outcome(trail, coverage, selected=trail.selected or erased or hidden)
    if outcome is DeliveryOutcome.MISSING:
        found.append(_discrepancy(trail, Kind.MISSING))
    if disputed == NO_ROW_AT_PEER:
        found.append(_discrepancy(trail, Kind.ERASED, disputed, seq=0))
        lost = coverage.hole_during(trail.peer, trail.group, _arrival(trail, coverage))
        hole = lost.first if lost is not None else 0
    elif disputed:
        found.append(_discrepancy(trail, Kind.DISAGREEMENT, disputed))
    if content := _other_content(trail):
        found.append(content)
        outcome = DeliveryOutcome.DISPUTED if outcome is DeliveryOutcome.DELIVERED else outcome
    elif delivery := _other_delivery(trail):
        found.append(delivery)
    if outcome is DeliveryOutcome.FOREIGN and _is_outside_selection(trail, coverage):
        found.append(_discrepancy(trail, Kind.DISAGREEMENT, NOT_SELECTED))
    return Verdict(outcome, tuple(found), hole, hidden)


def _unrecorded(trail: Trail, coverage: Coverage) -> tuple[Discrepancy | None, int]:
    """Return the discrepancy of an event that its source's ledger does not hold, and the first seq of a hole for it.

    If the source itself delivered the event, or lost rows of that time, its row was erased; otherwise it is forged.
    """
    if trail.origin or not (trail.held or trail.seq):
        return None, 0
    times = _origin_times(trail, coverage)
    would_hold = coverage.covers(trail.source, Ledger.EVENTS, trail.slot, times)
    if trail.seq:  # from the source's own delivery
        hole = coverage.hole_with(trail.source, trail.group, trail.seq)
        erased = hole is not None or would_hold
        return (_discrepancy(trail, Kind.ERASED, NO_ROW) if erased else None), 0
    if not would_hold:
        return None, 0  # its row may be in a part that is damaged, or be one that the node declared as lost
    if hole := coverage.hole_during(trail.source, trail.group, times):
        return _discrepancy(trail, Kind.ERASED, NO_ROW), hole.first
    return _discrepancy(trail, Kind.FORGED, NO_ORIGIN), 0


def _discrepancy(trail: Trail, kind: Kind, detail: str = "", *, seq: int | None = None) -> Discrepancy:
    number = trail.seq if seq is None else seq
    unsent = kind is Kind.MISSING or detail == NOT_SENT  # a row of another sender is no evidence of it
    delivery = None if unsent else trail.delivery_row
    evidence = evidence_of(trail.source_row or trail.due_row, trail.peer_row, delivery, sender=trail.due_node)
    return Discrepancy(kind, trail.group, trail.source, trail.peer, number, trail.id, detail, evidence)


def _other_content(trail: Trail) -> Discrepancy | None:
    """Return a discrepancy if the rows of source and peer differ."""
    one, other = trail.source_row, trail.peer_row
    if one is None or other is None or not (names := content_differences(one, other)):
        return None
    return altered(trail, OTHER_CONTENT, names, one, other, trail.delivery_row)


def _other_delivery(trail: Trail) -> Discrepancy | None:
    """Return a discrepancy if a sender's row of the delivery differs from its row of the event."""
    due, delivery = trail.due_row, trail.delivery_row
    if due is None or delivery is None or not delivery.is_of(due):
        return None
    names = outline_differences(due, delivery)
    # A relay's row of the event that is not the source's is reported for the relay as the peer.
    if not names or (trail.source_row is not None and content_differences(trail.source_row, due)):
        return None
    return altered(trail, OTHER_DELIVERY, names, due, delivery, delivery)


def altered(
    trail: Trail, text: str, names: tuple[str, ...], one: LedgerRow, other: LedgerRow, delivery: LedgerRow | None
) -> Discrepancy:
    """Return the discrepancy of an event whose rows differ in the columns `names`, with `text` as its detail."""
    evidence = evidence_of(one, other, delivery, sender=trail.due_node, values=values_of(names, one, other))
    detail = text.format(columns=", ".join(names))
    return Discrepancy(Kind.ALTERED, trail.group, trail.source, trail.peer, trail.seq, trail.id, detail, evidence)


def _repeats(trail: Trail) -> Iterator[Discrepancy]:
    # A callback is sent an event again because an operator requests it; its endpoint must expect repetitions anyway.
    if trail.again and not is_callback(trail.peer):
        yield _discrepancy(trail, Kind.DUPLICATE)
    if trail.sent and trail.source == trail.peer:
        yield _discrepancy(trail, Kind.LOOP, TO_SOURCE)
    elif trail.senders > 1:
        yield _discrepancy(trail, Kind.LOOP, TWO_SENDERS)


def _outcome(trail: Trail, coverage: Coverage, *, selected: bool) -> tuple[DeliveryOutcome, str]:
    """Return how the event counts, and the detail of a disagreement between sender and peer; empty without one.

    `selected`: a sender had the event for the peer.
    """
    if trail.sent:
        outcome, detail = _outcome_at_peer(trail, coverage)
        return outcome if selected else DeliveryOutcome.FOREIGN, detail
    silent = trail.silent > 0 and _would_have_sent(trail, coverage)
    if trail.expired or trail.in_path or trail.refused:
        outcome, detail = _outcome_unsent(trail, coverage)
        if detail or not silent:  # the reason of one sender does not excuse another one
            return outcome if selected else DeliveryOutcome.FOREIGN, detail
    if silent and trail.held:
        return DeliveryOutcome.DISPUTED, NOT_SENT
    if trail.ahead or trail.restored:
        return DeliveryOutcome.PENDING, ""
    if not trail.due:
        return DeliveryOutcome.FOREIGN, ""
    if not silent:
        # The delivery is not known, but the peer is proven to hold the event.
        return DeliveryOutcome.DELIVERED if trail.held else DeliveryOutcome.UNPROVEN, ""
    if coverage.has_ledgers(trail.peer) and not _would_show(trail, coverage):
        return DeliveryOutcome.UNPROVEN, ""
    return DeliveryOutcome.MISSING, ""


def _outcome_unsent(trail: Trail, coverage: Coverage) -> tuple[DeliveryOutcome, str]:
    """Return how an event counts that senders did not deliver for a reason that they give, and what refutes the
    reason.

    The detail is that of a disagreement; empty if nothing refutes the reason.
    """
    if detail := _refuted(trail, coverage):
        return DeliveryOutcome.DISPUTED, detail
    if trail.refused:
        return DeliveryOutcome.REFUSED, ""
    return _outcome_in_path(trail, coverage) if trail.in_path else (DeliveryOutcome.EXPIRED, "")


def _refuted(trail: Trail, coverage: Coverage) -> str:
    """Return how the senders' own ledgers and receipts refute the reason for which the event was not delivered.

    Empty if they do not.
    """
    if trail.expired and trail.due_row is not None:
        expires_at = trail.due_row.expires_at
        if expires_at == NEVER:
            return NOT_EXPIRED
        # The clock of the sender may have been set back since it read the event.
        if trail.expired_at < expires_at and trail.expired_at + coverage.clock_change(trail.expired_node) < expires_at:
            return EXPIRED_LATER
    if trail.own_in_path and trail.source != trail.peer:
        return OWN_IN_PATH
    return NOT_REFUSED if trail.refused and trail.unanswered == trail.refused else ""


def _outcome_in_path(trail: Trail, coverage: Coverage) -> tuple[DeliveryOutcome, str]:
    """Return how an event counts that a sender did not deliver because it had come through the peer.

    If that is true, the peer recorded it earlier.
    """
    if trail.held or trail.source == trail.peer or not coverage.has_ledgers(trail.peer):
        return DeliveryOutcome.IN_PATH, ""
    _, last = coverage.peer_times(trail.in_path_node, trail.peer, (trail.in_path_at, trail.in_path_at))
    times = (min(trail.slot * MINUTE, last), last)
    if coverage.covers(trail.peer, Ledger.EVENTS, trail.slot, times):
        in_hole = coverage.hole_during(trail.peer, trail.group, times) is not None
        return (DeliveryOutcome.UNPROVEN, "") if in_hole else (DeliveryOutcome.DISPUTED, NOT_IN_PATH)
    # Where the peer's ledger has not begun or has ended, the sender's claim counts.
    damaged = coverage.is_damaged(trail.peer, Ledger.EVENTS, trail.slot, times)
    return (DeliveryOutcome.UNPROVEN if damaged else DeliveryOutcome.IN_PATH), ""


def _outcome_at_peer(trail: Trail, coverage: Coverage) -> tuple[DeliveryOutcome, str]:
    """Return how a delivered event counts, and the detail of a disagreement with the peer, if there is one."""
    if trail.held or trail.source == trail.peer:
        return DeliveryOutcome.DELIVERED, ""
    times = _arrival(trail, coverage)
    if coverage.covers(trail.peer, Ledger.EVENTS, trail.slot, times):
        if coverage.hole_during(trail.peer, trail.group, times):
            return DeliveryOutcome.UNPROVEN, NO_ROW_AT_PEER
        return DeliveryOutcome.DISPUTED, NOT_HELD
    # Where the peer's ledger is damaged, the proof is lost; where it has not begun or has ended, receipts count.
    damaged = coverage.is_damaged(trail.peer, Ledger.EVENTS, trail.slot, times) and not is_verified(trail, coverage)
    return DeliveryOutcome.UNPROVEN if damaged else DeliveryOutcome.DELIVERED, ""


def _is_outside_selection(trail: Trail, coverage: Coverage) -> bool:
    """Return whether a link delivered the event by a selection that cannot match it, of which the texts are known.

    Whether the event entered the federation at the node is not considered: the node may have had another name then.
    """
    if trail.source == trail.peer or not trail.link_node or trail.delivery_row is None:
        return False
    link = NodeEpoch(trail.link_node, trail.link_epoch), trail.group, trail.peer
    texts = coverage.plan.selections.get(link, {}).get(trail.link_version, ())
    subjects = {row.subject for row in (trail.due_row, trail.source_row, trail.peer_row) if row is not None}
    kind = trail.delivery_row.type
    matched = (may_select(text, type=kind, source=trail.source, subjects=subjects) for text in texts)
    return bool(texts) and not any(matched)


def is_verified(trail: Trail, coverage: Coverage) -> bool:
    """Return whether a receipt of the peer that a public key verifies stands for a delivery of the event."""
    link = LinkKey(trail.group, trail.sent_node, trail.peer)
    return trail.arrived_at is not None and link in coverage.verified and not coverage.without_receipt[link]


def is_after_end(trail: Trail, coverage: Coverage) -> bool:
    """Return whether a delivery began, by the clock of the peer, when the peer's ledger had ended."""
    begun, _ = coverage.peer_times(trail.sent_node, trail.peer, (trail.sent_at, trail.sent_at))
    return begun >= coverage.until[trail.peer]


def _is_hidden(trail: Trail, coverage: Coverage) -> bool:
    """Return whether the event's row at its sender is in a damaged part, so that what the sender had is not known."""
    if not (trail.sent or trail.expired or trail.in_path or trail.refused):
        return False
    node = trail.sent_node or trail.source
    times = (trail.slot * MINUTE, max(trail.slot * MINUTE, trail.sent_at))
    return coverage.is_damaged(node, Ledger.EVENTS, trail.slot, times)


def _arrival(trail: Trail, coverage: Coverage) -> tuple[int, int]:
    """Return the times, by the peer's clock, between which the peer recorded an event that was delivered to it."""
    times = coverage.peer_times(trail.sent_node, trail.peer, (trail.sent_at, trail.done_at))
    if trail.arrived_at is None:
        return times
    # Of several deliveries, the time of the last one is known, and the peer recorded the event with one of them.
    return min(times[0], trail.arrived_at) if trail.repeated else trail.arrived_at, trail.arrived_at


def _would_have_sent(trail: Trail, coverage: Coverage) -> bool:
    """Return whether the ledger of the sender that had to deliver the event certainly holds the delivery, if there was
    one.

    It may not if the sender selects by payloads, because then the event may not be meant for the receiver.
    """
    if (NodeEpoch(trail.due_node, trail.due_epoch), trail.group, trail.peer) in coverage.plan.by_payload:
        return False
    acknowledged = _acknowledged_at(trail, coverage)
    return trail.due_at <= acknowledged and coverage.covers(
        trail.due_node, Ledger.DELIVERIES, trail.slot, (trail.due_at, acknowledged), position=trail.due_position
    )


def _acknowledged_at(trail: Trail, coverage: Coverage) -> int:
    return coverage.acknowledged_at(trail.due_node, trail.due_epoch, trail.group, trail.peer, trail.due_position)


def _would_show(trail: Trail, coverage: Coverage) -> bool:
    """Return whether the peer's ledger certainly holds the event if it arrived without a recorded delivery."""
    times = coverage.peer_times(
        trail.due_node, trail.peer, (trail.due_at, max(trail.due_at, _acknowledged_at(trail, coverage)))
    )
    # In the regular way it can only have arrived before the ledgers end.
    last = min(times[1], max(times[0], coverage.until[trail.peer] - 1))
    if coverage.hole_during(trail.peer, trail.group, (times[0], last)):
        return False
    return coverage.covers(trail.peer, Ledger.EVENTS, trail.slot, (times[0], last))


def _origin_times(trail: Trail, coverage: Coverage) -> tuple[int, int]:
    """Return the times, by the source's clock, between which the source recorded an event, if it emitted it."""
    if trail.held:
        _, last = coverage.peer_times(trail.peer, trail.source, (trail.held_at, trail.held_at))
    else:
        _, last = coverage.peer_times(trail.sent_node, trail.source, (trail.sent_at, trail.sent_at))
    # Events are emitted soon after they occur: one from before the ledger begins may lie in its evicted part.
    return min(trail.slot * MINUTE, last), last
