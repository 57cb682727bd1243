"""Tells whether two audits have found the same fault."""

from __future__ import annotations

from typing import NamedTuple

from eventd.audit.report.findings import Finding, Kind


class FaultKey(NamedTuple):
    """One id of a finding, as it is recognized in another report; without an id, the range of the finding.

    The words of a finding do not count, because they may contain times. `fingerprints` are those of an altered event:
    if it is altered once more, that is another fault.
    """

    kind: Kind
    group: str
    source: str
    peer: str
    id: str
    first: int
    last: int
    fingerprints: tuple[str, ...]


def faults_of(finding: Finding) -> list[FaultKey]:
    """Return the faults of a finding, one for each id in the order of `ids`, or a single one without ids."""
    fingerprints = {one.id: one.fingerprints for one in finding.evidence} if finding.kind is Kind.ALTERED else {}
    head = (finding.kind, finding.group, finding.source, finding.peer)
    if not finding.ids:
        return [FaultKey(*head, "", finding.first, finding.last, fingerprints.get("", ()))]
    return [FaultKey(*head, one, 0, 0, fingerprints.get(one, ())) for one in finding.ids]
