"""Marks the findings of an audit: those that an earlier report does not have, and those that are acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from eventd.audit.report.findings import Finding, in_order
from eventd.audit.report.marks import Acknowledged, Baseline
from eventd.audit.report.report import Limitation
from eventd.audit.review.acknowledgements import Acknowledgements
from eventd.audit.review.earlier import EarlierReport
from eventd.audit.review.faults import FaultKey, faults_of
from eventd.errors import Invalid
from eventd.text.plural import counted
from federation.event import format_time


class MarkedFindings(NamedTuple):
    """Findings with their marks, the comparison with the baseline, and the acknowledgements that were applied."""

    findings: list[Finding]
    baseline: Baseline | None
    acknowledgements: tuple[Acknowledged, ...]
    problems: tuple[Limitation, ...]

    @property
    def acknowledged(self) -> int:
        """Return the number of acknowledged ids."""
        return sum(one.acknowledged for one in self.findings)

    @property
    def open(self) -> list[Finding]:
        """Return the findings that are not acknowledged, or only in part."""
        return [one for one in self.findings if one.acknowledged < one.events]

    @property
    def sentences(self) -> Iterator[str]:
        """Yield sentences about the marks for the headline."""
        if base := self.baseline:
            yield (
                f"Compared with the report of {base.made_at}: {base.new:,} new, {base.known:,} still there, "
                f"{base.gone:,} gone."
            )
        if self.acknowledged:
            known, part = len(self.findings) - len(self.open), sum(one.acknowledged > 0 for one in self.open)
            in_part = f", {part:,} in part" if part else ""
            yield f"Acknowledged: {known:,} of {counted(len(self.findings), 'finding')}{in_part}."


def mark_findings(
    findings: Sequence[Finding], baseline: EarlierReport | None, known: Acknowledgements
) -> MarkedFindings:
    """Return the findings with their marks; their order is kept."""
    faults = [faults_of(one) for one in findings] if baseline or known.active else []
    marked = list(findings)
    compared = None
    if baseline is not None:
        before = {fault for one in baseline.findings for fault in faults_of(one)}
        for place, each in enumerate(faults):
            new = [fault.id for fault in each if fault not in before]
            marked[place] = replace(marked[place], new=len(new), new_ids=_part(new, each))
        compared = _compare(marked, baseline, {fault for each in faults for fault in each})
    owner = {fault: one.id for one in known.active for finding in one.findings for fault in faults_of(finding)}
    covered: Counter[str] = Counter()
    for place, each in enumerate(faults if owner else ()):
        covered.update(owner[fault] for fault in each if fault in owner)
        ids = [fault.id for fault in each if fault in owner]
        marked[place] = replace(marked[place], acknowledged=len(ids), acknowledged_ids=_part(ids, each))
    return MarkedFindings(
        marked,
        compared,
        tuple(
            Acknowledged(id=one.id, by=one.by, reason=one.reason, at=format_time(one.at), ids=covered[one.id])
            for one in known.active
        ),
        tuple(
            Limitation(
                kind="acknowledgement",
                where=path,
                message=f"the acknowledgement {reason}: it does not count",
                hint="acknowledge the findings again, and remove the file",
            )
            for path, reason in sorted(known.unreadable.items())
        ),
    )


def _part(ids: Sequence[str], of: Sequence[FaultKey]) -> tuple[str, ...]:
    """Return the ids if they are a part of all ids; nothing if they are all."""
    return tuple(ids) if len(ids) < len(of) else ()


def _compare(marked: Sequence[Finding], baseline: EarlierReport, now: set[FaultKey]) -> Baseline:
    gone = []
    for one in baseline.findings:
        left = [fault.id for fault in faults_of(one) if fault not in now]
        if left:
            gone.append(replace(one, ids=tuple(filter(None, left)), count=0, evidence=(), new=None, acknowledged=0))
    new = sum(one.new or 0 for one in marked)
    return Baseline(
        url=baseline.url,
        sha256=baseline.sha256,
        made_at=baseline.report.made_at,
        lake_state=baseline.report.lake.state,
        new=new,
        known=sum(one.events for one in marked) - new,
        gone=sum(one.events for one in gone),
        gone_findings=tuple(one.shortened() for one in in_order(gone)),
    )


def check_baseline(baseline: EarlierReport, lake_id: str) -> None:
    """Check that the report is about the lake with this id. Raises Invalid."""
    if baseline.report.lake.id not in ("", lake_id):  # earlier versions did not report the id
        raise Invalid(
            f"the report in {baseline.url} is about another lake: {baseline.report.lake.url}",
            hint="name a report of this lake",
        )
