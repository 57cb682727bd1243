"""Tells whether two audits have found the same fault."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from eventd.audit.report.findings import Finding, Kind


class FaultKey(NamedTuple):
    """One id of a finding, as it is recognized in another report; without an id, the range of the finding.

    The words of a finding do not count, because they may contain times. `fingerprints` are those of an altered event:
    if it is altered once more, that is another fault. `rows`: of a range, the number of its events; a hole that grew is
    another fault, even if the same ids are known of it, and so are events that are only counted if there are more.
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


def match_parts(parts: Sequence[FindingPart], known: Container[FaultKey]) -> list[FaultKey | None]:
    """Return for each part of a finding the known fault that it is; None if it is none of them.

    If the range of erased rows is known, so are all events in it: the hole is the same, whichever of its events other
    rows name.
    """
    span = next((part.key for part in parts if part.key.rows and part.key in known), None)
    return [part.key if part.key in known else span for part in parts]


def unknown_parts(parts: Sequence[FindingPart], known: Container[FaultKey]) -> list[FindingPart]:
    """Return the parts of a finding that are none of the known faults."""
    return [part for part, same in zip(parts, match_parts(parts, known), strict=True) if same is None]


def count_events(parts: Iterable[FindingPart]) -> int:
    """Return how many events these parts are."""
    return sum(part.events for part in parts)
