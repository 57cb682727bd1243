"""Tells whether two audits have found the same fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eventd.audit.report.findings import Finding, Kind


class FaultKey(NamedTuple):
    """One id of a finding, as it is recognized in another report; without an id, the range of the finding.

    The words of a finding do not count, because they may contain times. `fingerprints` are those of an altered event:
    if it is altered once more, that is another fault. `rows`: of a range, the number of its events. A hole that grew is
    another fault, even if the same ids are known of it, and so are events that are only counted if there are more. A
    hole that shrank, because retention removed its beginning or a repair a part of it, is the same, and so are fewer
    events that are only counted.
    """

    kind: Kind
    group: str
    source: str
    peer: str
    id: str
    first: int = 0
    last: int = 0
    rows: int = 0
    fingerprints: tuple[str, ...] = ()

    @property
    def subject(self) -> tuple[object, ...]:
        """Return what two ranges have in common if one of them may be a part of the other."""
        return self.kind, self.group, self.source, self.peer, self.fingerprints

    def covers(self, other: FaultKey) -> bool:
        """Return whether another range of the same subject is this one, or what is left of it."""
        if other.rows > self.rows:
            return False
        if (self.first, self.last) == (other.first, other.last):
            return True
        erased = self.kind is Kind.ERASED and not self.peer
        return erased and self.first <= other.first and other.last <= self.last


class FindingPart(NamedTuple):
    """A fault in a finding, and how many of its events it is: 1 for an id, and for a range all that have no id."""

    key: FaultKey
    events: int = 1


def parts_of(finding: Finding) -> list[FindingPart]:
    """Return the parts of a finding: one for each id in the order of `ids`, and one for the events without an id.

    Their `events` add up to those of the finding. A range of erased rows always has a part of its own, of 0 events if
    all of them have ids.
    """
    fingerprints = {one.id: one.fingerprints for one in finding.evidence} if finding.kind is Kind.ALTERED else {}
    head = (finding.kind, finding.group, finding.source, finding.peer)
    parts = [FindingPart(FaultKey(*head, one, fingerprints=fingerprints.get(one, ()))) for one in finding.ids]
    erased = finding.kind is Kind.ERASED and not finding.peer
    if erased or finding.events > len(finding.ids):
        span = FaultKey(*head, "", finding.first, finding.last, finding.events, fingerprints.get("", ()))
        parts.append(FindingPart(span, finding.events - len(finding.ids)))
    return parts


class KnownFaults:
    """Faults of another report or of acknowledgements, among which those of findings are looked up."""

    def __init__(self, keys: Iterable[FaultKey]) -> None:
        self._keys = set(keys)
        self._ranges: defaultdict[tuple[object, ...], list[FaultKey]] = defaultdict(list)
        for key in self._keys:
            if not key.id:
                self._ranges[key.subject].append(key)

    def match(self, parts: Sequence[FindingPart]) -> list[FaultKey | None]:
        """Return for each part of a finding the known fault that it is; None if it is none of them.

        If the range of erased rows is known, so are all events in it: the hole is the same, whichever of its events
        other rows name.
        """
        span = next((self._find(part.key) for part in parts if part.key.rows), None)
        return [self._find(part.key) or span for part in parts]

    def unknown(self, parts: Sequence[FindingPart]) -> list[FindingPart]:
        """Return the parts of a finding that are none of the known faults."""
        return [part for part, same in zip(parts, self.match(parts), strict=True) if same is None]

    def count_within(self, key: FaultKey) -> int:
        """Return the number of events in the known ranges that are what is left of another one."""
        return sum(one.rows for one in self._ranges.get(key.subject, ()) if key.covers(one))

    def _find(self, key: FaultKey) -> FaultKey | None:
        if key in self._keys:
            return key
        ranges = () if key.id else self._ranges.get(key.subject, ())
        return next((known for known in ranges if known.covers(key)), None)


class GoneEvents(NamedTuple):
    """Events of a finding that another report does not have: how many, and their ids as far as they are known."""

    events: int
    ids: Sequence[str]


def gone_events(parts: Sequence[FindingPart], now: KnownFaults) -> GoneEvents:
    """Return the events of a finding that are in no fault of `now`; of a range that shrank, those that it lost."""
    left = now.unknown(parts)
    events, ids = count_events(left), ids_of(left)
    if (span := next((part.key for part in left if part.key.rows), None)) is not None:
        events = min(events, max(0, span.rows - now.count_within(span)))
    return GoneEvents(events, ids if len(ids) <= events else ())


def ids_of(parts: Iterable[FindingPart]) -> tuple[str, ...]:
    """Return the ids of these parts, in their order."""
    return tuple(part.key.id for part in parts if part.key.id)


def count_events(parts: Iterable[FindingPart]) -> int:
    """Return how many events these parts are."""
    return sum(part.events for part in parts)
