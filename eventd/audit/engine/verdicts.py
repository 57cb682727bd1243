"""What became of one event on its way to one peer, judged from what every book says of it. Pure.

Only events that are not plainly in order come here. Silence of a book is held against somebody only where the book
reaches: otherwise the event is pending or unproven, never missing and never delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from eventd.audit.engine.coverage import Sight
from eventd.audit.report.findings import NO_ORIGIN, NOT_HELD, NOT_SENT, TO_SOURCE, TWO_SENDERS, Fact, Kind
from eventd.lake.layout import MINUTE
from eventd.lake.schema import Book


class Outcome(StrEnum):
    """How an event counts, by the names a report has for it; FOREIGN does not count, for nobody was to send it."""

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
    """All that the books say of one event and one peer. Times are microseconds by the clock of who recorded it.

    `seq` is the event's at its source, 0 if unknown. `due` and `ahead` count the senders that had it for the peer and
    are past it, or not yet. `sent` are acknowledged deliveries by so many `senders`, `repeated` those of one sender
    beyond its first. `due_*` is of a sender that had to send it, `sent_*` of the first delivery, `held_at` when the
    peer recorded it.
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


class Verdict(NamedTuple):
    """How the event counts, and what is wrong with it."""

    outcome: Outcome
    facts: tuple[Fact, ...]


def judge(trail: Trail, sight: Sight) -> Verdict:
    """Judge one event."""
    facts = [*_repeats(trail)]
    if trail.held and not trail.origin and _has_no_origin(trail, sight):
        facts.append(_fact(trail, Kind.FORGED, NO_ORIGIN, seq=0))
    outcome, disputed = _outcome(trail, sight)
    if outcome is Outcome.MISSING:
        facts.append(_fact(trail, Kind.MISSING))
    if disputed:
        facts.append(_fact(trail, Kind.DISAGREEMENT, disputed))
    return Verdict(outcome, tuple(facts))


def _fact(trail: Trail, kind: Kind, detail: str = "", *, seq: int | None = None) -> Fact:
    number = trail.seq if seq is None else seq
    return Fact(kind, trail.group, trail.source, trail.peer, number, trail.id, detail)


def _repeats(trail: Trail) -> Iterator[Fact]:
    if trail.repeated:
        yield _fact(trail, Kind.DUPLICATE)
    if trail.sent and trail.source == trail.peer:
        yield _fact(trail, Kind.LOOP, TO_SOURCE)
    elif trail.senders > 1:
        yield _fact(trail, Kind.LOOP, TWO_SENDERS)


def _outcome(trail: Trail, sight: Sight) -> tuple[Outcome, str]:
    """How the event counts, and which disagreement there is about it."""
    if trail.sent:
        denied = not trail.held and trail.source != trail.peer and _would_hold(trail, sight)
        if not (trail.due or trail.ahead):
            return Outcome.FOREIGN, NOT_HELD if denied else ""
        return (Outcome.DISPUTED, NOT_HELD) if denied else (Outcome.DELIVERED, "")
    for said, outcome in _ASIDE:
        if getattr(trail, said):
            return outcome if trail.due or trail.ahead else Outcome.FOREIGN, ""
    if trail.ahead:
        return Outcome.PENDING, ""
    if not trail.due:
        return Outcome.FOREIGN, ""
    if not _would_have_sent(trail, sight):
        # Nobody can tell how it went; that it is there is proven all the same.
        return Outcome.DELIVERED if trail.held else Outcome.UNPROVEN, ""
    if trail.held:
        return Outcome.DISPUTED, NOT_SENT
    if sight.keeps(trail.peer) and not _would_show(trail, sight):
        return Outcome.UNPROVEN, ""
    return Outcome.MISSING, ""


_ASIDE: Final = (("refused", Outcome.REFUSED), ("in_path", Outcome.IN_PATH), ("expired", Outcome.EXPIRED))


def _would_hold(trail: Trail, sight: Sight) -> bool:
    """Whether the peer's books would hold what was delivered to it."""
    if trail.arrived_at is not None:
        times = (trail.arrived_at, trail.arrived_at)
    else:
        times = sight.there(trail.sent_node, trail.peer, (trail.sent_at, trail.done_at))
    return sight.sees(trail.peer, Book.EVENTS, trail.slot, times)


def _would_have_sent(trail: Trail, sight: Sight) -> bool:
    """Whether a delivery by the sender that had to make it would be known."""
    passed = _passed_by(trail, sight)
    return trail.due_at <= passed and sight.sees(
        trail.due_node, Book.DELIVERIES, trail.slot, (trail.due_at, passed), position=trail.due_position
    )


def _passed_by(trail: Trail, sight: Sight) -> int:
    return sight.passed_by(trail.due_node, trail.due_epoch, trail.group, trail.peer, trail.due_position)


def _would_show(trail: Trail, sight: Sight) -> bool:
    """Whether the peer's books would hold the event if it had come some other way."""
    times = sight.there(trail.due_node, trail.peer, (trail.due_at, max(trail.due_at, _passed_by(trail, sight))))
    # Nothing more can have come by the ordinary way than what had come when the books end.
    last = min(times[1], max(times[0], sight.until[trail.peer] - 1))
    return sight.sees(trail.peer, Book.EVENTS, trail.slot, (times[0], last))


def _has_no_origin(trail: Trail, sight: Sight) -> bool:
    """Whether the source would know of the event if it had stated it."""
    _, last = sight.there(trail.peer, trail.source, (trail.held_at, trail.held_at))
    # A source states what it has just observed: an event of before its books begin may be in what is gone.
    first = min(trail.slot * MINUTE, last)
    return sight.sees(trail.source, Book.EVENTS, trail.slot, (first, last))
