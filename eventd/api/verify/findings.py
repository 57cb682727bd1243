"""The findings of a comparison: events that the peer lacks, with reasons.

Ids that only the peer has, or has for other events.
"""

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
"""Maximum number of gaps that are reported, each by its bounds."""
MOST_IDS = 100_000
"""Maximum number of ids of missing events that are reported, in all gaps together."""
MOST_OTHERS = 1_000
"""Maximum number of ids that are reported, both of events only the peer holds and of events it holds differently."""


class Verdict(StrEnum):
    """Why the peer does not name an event of this node as one that it has over this link."""

    MISSING = "missing"
    PENDING = "pending"
    EXPIRED = "expired"
    REFUSED = "refused"
    IN_PATH = "in_path"
    NOT_MEANT = "not_meant"  # the selection of that time left it out
    BY_ANOTHER_PATH = "by_another_path"  # the peer holds it, and got it from another node first
    HELD_ONCE = "held_once"  # the peer had it, and its retention has evicted it
    EVICTED = "evicted"  # this node's retention has evicted it meanwhile
    UNPROVEN = "unproven"  # the peer's retention may have evicted it: the evidence of its delivery is gone


class Judgement(NamedTuple):
    """An event of the comparison that the peer does not hold, and why: not each reason is a fault."""

    record: ListedRecord
    verdict: Verdict


_ASIDE = {
    DeliveryState.EXPIRED: Verdict.EXPIRED,
    DeliveryState.REFUSED: Verdict.REFUSED,
    DeliveryState.IN_PATH: Verdict.IN_PATH,
    DeliveryState.PENDING: Verdict.PENDING,
    DeliveryState.FAILED: Verdict.PENDING,
}


def judge(conn: Connection, scope: Scope, absent: Sequence[ListedRecord], now: int) -> list[Judgement]:
    """Return why the peer does not hold each of the `absent` records, according to this node's delivery ledger.

    `absent` must be in order of position; the result is in the same order.
    """
    stored = {record.position: record for record in read_at(conn, [listed.position for listed in absent])}
    records = [stored[listed.position] for listed in absent if listed.position in stored]
    deliveries = dict(zip(stored, derive(conn, scope.ledger.link, records, now=now), strict=True))
    found: list[Judgement] = []
    for listed in absent:
        record, delivery = stored.get(listed.position), deliveries.get(listed.position)
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
        found.append(Judgement(listed, verdict))
    return found


@dataclass(slots=True)
class MissingRange:
    """Missing events that follow each other directly among the compared records.

    `events` is their number; `ids` has fewer once all ranges list `MOST_IDS`.
    """

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
    """All findings, as numbers and the first ids.

    `compared`: this node's records in the scope. `waiting`: events for the peer beyond the scope. `aside`: events that
    do not count as missing, by reason: a verdict or, of events not `compared`, the exception of a batch. `extras` and
    `extra`: ids that the peer holds as events of this node, and that this log does not know. `others` and `other`: ids
    under which the peer holds another event. `unresolved`: how many buckets and events differ without an explanation.
    `listed`: the number of ids in all `gaps`.
    """

    compared: int = 0
    waiting: int = 0
    missing: int = 0
    gaps: list[MissingRange] = field(default_factory=list)
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

    @property
    def pending(self) -> int:
        """Return the number of events on their way."""
        return self.waiting + self.aside[Verdict.PENDING]

    def add(self, judged: Sequence[Judgement]) -> None:
        """Count judgements, which are in order of position; missing events are also listed."""
        for record, verdict in judged:
            if verdict is Verdict.MISSING:
                self.miss(record)
            else:
                self.aside[verdict] += 1

    def miss(self, record: ListedRecord) -> None:
        """Count a missing event, and add it to the last gap if it directly follows, or else to a new gap.

        Beyond `MOST_GAPS`, it is only counted.
        """
        self.missing += 1
        last = self.gaps[-1] if self.gaps else None
        if last is not None and last.last.number + 1 == record.number:
            last.last = record
            last.events += 1
        elif len(self.gaps) < MOST_GAPS:
            last = MissingRange(record, record, 1, [])
            self.gaps.append(last)
        else:
            return
        if self.listed < MOST_IDS:
            last.ids.append(record.event_id)
            self.listed += 1

    def add_extra(self, event_id: str) -> None:
        """Count an event that the peer holds and this node's log does not know; the first `MOST_OTHERS` are listed."""
        self.extras += 1
        if len(self.extra) < MOST_OTHERS:
            self.extra.append(event_id)

    def add_other(self, event_id: str) -> None:
        """Count an id under which the peer holds another event; the first `MOST_OTHERS` are listed."""
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
            "pending": self.pending,
            "setAside": {
                name: number for name, number in sorted(self.aside.items()) if number and name != Verdict.PENDING
            },
        }
