"""Tells whether two audits have found the same fault."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from eventd.audit.report.findings import Finding, Kind


class FaultKey(NamedTuple):
    """One id of a finding, as it is recognized in another report; without an id, the range of the finding.

    The words of a finding do not count, because they may contain times. `fingerprints` are those of an altered event:
    if it is altered once more, that is another fault. `rows`: of a range, the number of its events. A hole that grew
    is another fault, even if the same ids of it are known; so are events that are only counted, if their number grew.
    A hole that shrank, because retention removed its beginning or a repair filled a part of it, is the same fault; so
    are events that are only counted, if their number fell.
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
        """Return whether another range of the same subject is this range, or the rest of it."""
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


class _Ranges:
    """Known ranges of one subject, in the order of their beginnings, each with its place among the known faults.

    The ranges that contain a given range are found without searching all others, as long as few ranges contain each
    other.
    """

    def __init__(self, ranges: Iterable[tuple[FaultKey, int]]) -> None:
        self._ranges = sorted(ranges, key=lambda one: (one[0].first, one[0].last, one[0].rows, one[1]))
        self._firsts = [key.first for key, _ in self._ranges]
        self._longer: list[int] = []
        """For each range, the index of the last earlier range with a later end; -1 if there is none."""
        for at, (key, _) in enumerate(self._ranges):
            before = at - 1
            while before >= 0 and self._ranges[before][0].last <= key.last:
                before = self._longer[before]
            self._longer.append(before)

    def covering(self, key: FaultKey, since: int) -> FaultKey | None:
        """Return a range at the place `since` or later that covers this one; None if there is none."""
        at = bisect_right(self._firsts, key.first) - 1
        while at >= 0:
            known, place = self._ranges[at]
            if place >= since and known.covers(key):
                return known
            at = at - 1 if known.last >= key.last else self._longer[at]
        return None

    def within(self, key: FaultKey) -> Iterator[FaultKey]:
        """Yield the ranges that this one covers."""
        first, last = bisect_left(self._firsts, key.first), bisect_right(self._firsts, key.last)
        return (known for known, _ in self._ranges[first:last] if key.covers(known))


class KnownFaults:
    """Faults of another report or of acknowledgements, among which those of findings are looked up.

    `places` has the place of each, such as that of its acknowledgement in the order of their times.
    """

    def __init__(self, places: Mapping[FaultKey, int]) -> None:
        self._places = places
        ranges: defaultdict[tuple[object, ...], list[tuple[FaultKey, int]]] = defaultdict(list)
        for key, place in places.items():
            if not key.id:
                ranges[key.subject].append((key, place))
        self._ranges = {subject: _Ranges(some) for subject, some in ranges.items()}

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> KnownFaults:
        """Return the faults of these findings, all of them at the place 0."""
        return cls({part.key: 0 for one in findings for part in parts_of(one)})

    def match(self, parts: Sequence[FindingPart], since: int = 0) -> list[FaultKey | None]:
        """Return for each part of a finding the known fault that it is; None if it is none of them.

        Only faults at the place `since` or later count. If the range of erased rows is known, so are all events in it:
        the hole is the same, whichever of its events other rows name.
        """
        span = next((self._find(part.key, since) for part in parts if part.key.rows), None)
        return [self._find(part.key, since) or span for part in parts]

    def unknown(self, parts: Sequence[FindingPart]) -> list[FindingPart]:
        """Return the parts of a finding that are none of the known faults."""
        return [part for part, same in zip(parts, self.match(parts), strict=True) if same is None]

    def count_within(self, key: FaultKey) -> int:
        """Return the number of events in those known ranges that are the rest of another known range."""
        known = self._ranges.get(key.subject)
        return sum(one.rows for one in known.within(key)) if known else 0

    def _find(self, key: FaultKey, since: int) -> FaultKey | None:
        if self._places.get(key, -1) >= since:
            return key
        known = None if key.id else self._ranges.get(key.subject)
        return known.covering(key, since) if known else None


class GoneEvents(NamedTuple):
    """Events of a finding that another report does not have: how many, and their ids as far as they are known."""

    events: int
    ids: Sequence[str]


def gone_events(parts: Sequence[FindingPart], now: KnownFaults) -> GoneEvents:
    """Return the events of a finding that are in no fault of `now`.

    For a range that shrank, the events that are no longer in it.
    """
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
