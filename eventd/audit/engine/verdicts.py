"""The verdict on one event and one peer, from the rows of all ledgers. Free of input and output.

Only events that are not plainly in order are judged. A missing row counts as evidence only where the coverage says that
the ledger is sure to hold it. Elsewhere, no event counts as missing or disputed because a row is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from eventd.audit.engine.coverage import Coverage
from eventd.audit.engine.plan import NodeEpoch
from eventd.audit.report.findings import NO_ORIGIN, NOT_HELD, NOT_SENT, TO_SOURCE, TWO_SENDERS, Discrepancy, Kind
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


class Trail(NamedTuple):
    """The rows of all ledgers on one event and one peer, summed up.

    Times are microseconds by the clock of the node of the row; without a row, 0 (`arrived_at`: None). `slot` is the
    minute of the event's own time, `seq` its seq at its source, 0 if unknown. These count rows: `origin` of the source;
    `due` and `ahead` of senders that had the event for the peer and whose link has passed it, or not yet; `restored`
    those like `ahead` of a sender's new epoch that the cells leave out (the first was recorded at `restored_at`);
    `sent` acknowledged deliveries; `expired`, `in_path` and `refused` deliveries that ended so; `held` of the peer.
    `senders` counts the nodes that delivered it, `repeated` the deliveries of a sender after its first. `due_*` is of
    the first sender that had to send it, and recorded it at `due_at`. `sent_node` is a node that delivered it,
    `sent_at` the first attempt, `done_at` the last acknowledgement. The peer recorded it at `arrived_at` by a receipt,
    and at `held_at` by its own ledger.
    """

    group: str
    source: str
    peer: str
    type: str
    slot: int
    id: str
    seq: int
    origin: int
    due: int
    ahead: int
    restored: int
    sent: int
    senders: int
    repeated: int
    expired: int
    in_path: int
    refused: int
    held: int
    due_node: str
    due_epoch: str
    due_at: int
    due_position: int
    sent_node: str
    sent_at: int
    done_at: int
    arrived_at: int | None
    held_at: int
    restored_at: int

    @property
    def selected(self) -> bool:
        """Return whether a sender had the event for the peer."""
        return bool(self.due or self.ahead or self.restored)


class Verdict(NamedTuple):
    """How an event counts at one peer, and its discrepancies."""

    outcome: DeliveryOutcome
    discrepancies: tuple[Discrepancy, ...]


def judge(trail: Trail, coverage: Coverage) -> Verdict:
    """Judge one event at one peer: how it counts, and which discrepancies its rows show."""
    found = [*_repeats(trail)]
    if trail.held and not trail.origin and _source_would_hold(trail, coverage):
        found.append(_discrepancy(trail, Kind.FORGED, NO_ORIGIN, seq=0))
    outcome, disputed = _outcome(trail, coverage)
    if outcome is DeliveryOutcome.MISSING:
        found.append(_discrepancy(trail, Kind.MISSING))
    if disputed:
        found.append(_discrepancy(trail, Kind.DISAGREEMENT, disputed))
    return Verdict(outcome, tuple(found))


def _discrepancy(trail: Trail, kind: Kind, detail: str = "", *, seq: int | None = None) -> Discrepancy:
    number = trail.seq if seq is None else seq
    return Discrepancy(kind, trail.group, trail.source, trail.peer, number, trail.id, detail)


def _repeats(trail: Trail) -> Iterator[Discrepancy]:
    # A callback is sent an event again because an operator requests it; its endpoint must expect repetitions anyway.
    if trail.repeated and not is_callback(trail.peer):
        yield _discrepancy(trail, Kind.DUPLICATE)
    if trail.sent and trail.source == trail.peer:
        yield _discrepancy(trail, Kind.LOOP, TO_SOURCE)
    elif trail.senders > 1:
        yield _discrepancy(trail, Kind.LOOP, TWO_SENDERS)


def _outcome(trail: Trail, coverage: Coverage) -> tuple[DeliveryOutcome, str]:
    """Return how the event counts, and the detail of a disagreement between sender and peer; empty without one."""
    if trail.sent:
        denied = not trail.held and trail.source != trail.peer and _would_hold(trail, coverage)
        if not trail.selected:
            return DeliveryOutcome.FOREIGN, NOT_HELD if denied else ""
        return (DeliveryOutcome.DISPUTED, NOT_HELD) if denied else (DeliveryOutcome.DELIVERED, "")
    for count, outcome in _ASIDE:
        if getattr(trail, count):
            return outcome if trail.selected else DeliveryOutcome.FOREIGN, ""
    if trail.ahead or trail.restored:
        return DeliveryOutcome.PENDING, ""
    if not trail.due:
        return DeliveryOutcome.FOREIGN, ""
    if not _would_have_sent(trail, coverage):
        # The delivery is not known, but the peer is proven to hold the event.
        return DeliveryOutcome.DELIVERED if trail.held else DeliveryOutcome.UNPROVEN, ""
    if trail.held:
        return DeliveryOutcome.DISPUTED, NOT_SENT
    if coverage.has_ledgers(trail.peer) and not _would_show(trail, coverage):
        return DeliveryOutcome.UNPROVEN, ""
    return DeliveryOutcome.MISSING, ""


_ASIDE: Final = (
    ("refused", DeliveryOutcome.REFUSED),
    ("in_path", DeliveryOutcome.IN_PATH),
    ("expired", DeliveryOutcome.EXPIRED),
)


def _would_hold(trail: Trail, coverage: Coverage) -> bool:
    """Return whether the peer's ledger is sure to hold the event if the deliveries that senders recorded took place."""
    if trail.arrived_at is not None:
        times = (trail.arrived_at, trail.arrived_at)
    else:
        times = coverage.peer_times(trail.sent_node, trail.peer, (trail.sent_at, trail.done_at))
    return coverage.covers(trail.peer, Ledger.EVENTS, trail.slot, times)


def _would_have_sent(trail: Trail, coverage: Coverage) -> bool:
    """Return whether the ledger of the sender that was due is sure to hold the delivery, if there was one.

    It need not, if the sender selects by payloads: the event may not be meant for the receiver.
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
    """Return whether the peer's ledger is sure to hold the event, if it arrived without a recorded delivery."""
    times = coverage.peer_times(
        trail.due_node, trail.peer, (trail.due_at, max(trail.due_at, _acknowledged_at(trail, coverage)))
    )
    # In the regular way it can only have arrived before the ledgers end.
    last = min(times[1], max(times[0], coverage.until[trail.peer] - 1))
    return coverage.covers(trail.peer, Ledger.EVENTS, trail.slot, (times[0], last))


def _source_would_hold(trail: Trail, coverage: Coverage) -> bool:
    """Return whether the ledger of the source is sure to hold the event, if the source emitted it."""
    _, last = coverage.peer_times(trail.peer, trail.source, (trail.held_at, trail.held_at))
    # Events are emitted soon after they occur: one from before the ledger begins may lie in its evicted part.
    first = min(trail.slot * MINUTE, last)
    return coverage.covers(trail.source, Ledger.EVENTS, trail.slot, (first, last))
