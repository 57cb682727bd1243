"""The findings of a comparison: gaps, disagreements, and dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from eventd.api.verify.scope import Scope
from eventd.log.core.scan import read_at
from eventd.log.delivery.digests import ListedRecord
from eventd.log.delivery.states import DeliveryState, derive
from eventd.store.engine.database import Connection
from federation.event import is_alive

MOST_GAPS = 10_000
"""Gaps that are reported, each by its bounds."""
MOST_IDS = 100_000
"""Ids that are reported, over all gaps."""
MOST_OTHERS = 1_000
"""Ids of events that only the peer holds, or holds with other content."""


class Verdict(StrEnum):
    """The meaning of an event that the peer does not hold."""

    MISSING = "missing"
    PENDING = "pending"
    EXPIRED = "expired"
    REFUSED = "refused"
    IN_PATH = "in_path"
    NOT_MEANT = "not_meant"  # by the selector of that time
    HELD_ONCE = "held_once"  # the peer had it, and its retention has evicted it
    EVICTED = "evicted"  # this node's retention has evicted it meanwhile
    UNPROVEN = "unproven"  # the peer's retention may have evicted it: the evidence of its delivery is gone


class Judgement(NamedTuple):
    """A record that the peer does not hold, and the verdict."""

    held: ListedRecord
    verdict: Verdict


_ASIDE = {
    DeliveryState.EXPIRED: Verdict.EXPIRED,
    DeliveryState.REFUSED: Verdict.REFUSED,
    DeliveryState.IN_PATH: Verdict.IN_PATH,
    DeliveryState.PENDING: Verdict.PENDING,
    DeliveryState.FAILED: Verdict.PENDING,
}


def judge(conn: Connection, scope: Scope, absent: Sequence[ListedRecord], now: int) -> list[Judgement]:
    """Return the verdicts on records that the peer does not know, by this node's delivery ledger; ordered by
    position."""
    stored = {record.position: record for record in read_at(conn, [held.position for held in absent])}
    records = [stored[held.position] for held in absent if held.position in stored]
    deliveries = dict(zip(stored, derive(conn, scope.books.books, records, now=now), strict=True))
    found: list[Judgement] = []
    for held in absent:
        record, delivery = stored.get(held.position), deliveries.get(held.position)
        if record is None:
            verdict = Verdict.EVICTED
        elif delivery is None:
            verdict = Verdict.NOT_MEANT
        elif delivery.state in _ASIDE:
            verdict = _ASIDE[delivery.state]
        elif not is_alive(record.expires_at, now):
            verdict = Verdict.EXPIRED
        elif delivery.state is DeliveryState.UNKNOWN and scope.state.since is not None:
            verdict = Verdict.UNPROVEN
        else:
            verdict = Verdict.MISSING
        found.append(Judgement(held, verdict))
    return found


@dataclass(slots=True)
class Gap:
    """A run of events meant for the peer that it does not hold, with none that it holds in between."""

    first: ListedRecord
    last: ListedRecord
    events: int
    ids: list[str]

    def show(self) -> dict[str, Any]:
        return {
            "fromSeq": self.first.seq,
            "toSeq": self.last.seq,
            "fromPosition": self.first.position,
            "toPosition": self.last.position,
            "events": self.events,
            "ids": self.ids,
        }


@dataclass(slots=True)
class Findings:
    """All findings. `extra` are ids from this node that only the peer holds, `other` ids under which it holds another
    event."""

    compared: int = 0
    waiting: int = 0
    missing: int = 0
    gaps: list[Gap] = field(default_factory=list)
    aside: Counter[str] = field(default_factory=Counter)
    extras: int = 0
    extra: list[str] = field(default_factory=list)
    others: int = 0
    other: list[str] = field(default_factory=list)
    unresolved: int = 0
    listed: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.extras or self.others or self.unresolved)

    def add(self, judged: Sequence[Judgement]) -> None:
        """Add verdicts; missing events in order of position."""
        for held, verdict in judged:
            if verdict is Verdict.MISSING:
                self.miss(held)
            else:
                self.aside[verdict] += 1

    def miss(self, held: ListedRecord) -> None:
        """Add a missing event."""
        self.missing += 1
        last = self.gaps[-1] if self.gaps else None
        if last is not None and last.last.number + 1 == held.number:
            last.last = held
            last.events += 1
        elif len(self.gaps) < MOST_GAPS:
            last = Gap(held, held, 1, [])
            self.gaps.append(last)
        else:
            return
        if self.listed < MOST_IDS:
            last.ids.append(held.event_id)
            self.listed += 1

    def add_extra(self, event_id: str) -> None:
        """Add an event that the peer holds and this node's log does not know."""
        self.extras += 1
        if len(self.extra) < MOST_OTHERS:
            self.extra.append(event_id)

    def add_other(self, event_id: str) -> None:
        """Add an id under which the peer holds another event."""
        self.others += 1
        if len(self.other) < MOST_OTHERS:
            self.other.append(event_id)

    def show(self) -> dict[str, Any]:
        reported = sum(gap.events for gap in self.gaps)
        return {
            "compared": self.compared,
            "missing": self.missing,
            "gaps": [gap.show() for gap in sorted(self.gaps, key=lambda gap: gap.first.position)],
            "untold": self.missing - reported,
            "extra": self.extras,
            "extraIds": sorted(self.extra),
            "other": self.others,
            "otherIds": sorted(self.other),
            "unresolved": self.unresolved,
            "pending": self.waiting + self.aside[Verdict.PENDING],
            "setAside": {
                name: number for name, number in sorted(self.aside.items()) if number and name != Verdict.PENDING
            },
        }
