"""Marks the findings of an audit: those that an earlier report does not have, and those that are acknowledged."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from eventd.audit.report.figures import moment
from eventd.audit.report.findings import Finding, in_order
from eventd.audit.report.marks import AcknowledgementUse, Baseline
from eventd.audit.report.report import Limitation
from eventd.audit.review.acknowledgements import CLOCK_MARGIN, Acknowledgements
from eventd.audit.review.earlier import EarlierReport
from eventd.audit.review.faults import FindingPart, KnownFaults, count_events, gone_events, ids_of, parts_of
from eventd.errors import Invalid
from eventd.lake.layout import ACKNOWLEDGEMENTS
from eventd.text.plural import counted
from federation.event import FIRST_TIME, format_time

_NO_MARKS: Final[dict[str, Any]] = {"new": None, "new_ids": (), "acknowledged": 0, "acknowledged_ids": ()}


class MarkResult(NamedTuple):
    """Findings with their marks, the comparison with the baseline, and the acknowledgements that were applied."""

    findings: list[Finding]
    baseline: Baseline | None
    acknowledgements: tuple[AcknowledgementUse, ...]
    problems: tuple[Limitation, ...]

    @property
    def acknowledged(self) -> int:
        """Return the number of acknowledged events."""
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
                f"Compared with the report of {moment(base.made_at)}: {base.new:,} new, {base.known:,} still there, "
                f"{base.gone:,} gone."
            )
        if self.acknowledged:
            known, part = len(self.findings) - len(self.open), sum(one.acknowledged > 0 for one in self.open)
            in_part = f", {part:,} in part" if part else ""
            yield f"Acknowledged: {known:,} of {counted(len(self.findings), 'finding')}{in_part}."


KnownWhen = Callable[[Finding], int]
"""A function that returns the time, in microseconds, before which a finding cannot have been known completely."""


def _always(finding: Finding) -> int:
    return FIRST_TIME


def mark_findings(
    findings: Sequence[Finding], baseline: EarlierReport | None, known: Acknowledgements, since: KnownWhen = _always
) -> MarkResult:
    """Return the findings with their marks; their order is kept.

    An acknowledgement does not cover a finding that, by `since`, may not have been known completely when the
    acknowledgement was made; an acknowledgement of such a finding is among the problems. Clocks may differ by
    `CLOCK_MARGIN`.
    """
    parts = [parts_of(one) for one in findings] if baseline or known.active else []
    marked = list(findings)
    compared = None
    if baseline is not None:
        before = KnownFaults.of(baseline.findings)
        for place, each in enumerate(parts):
            new = before.unknown(each)
            marked[place] = replace(marked[place], new=count_events(new), new_ids=_partial_ids(new, each))
        compared = _compare(marked, baseline, KnownFaults.of(findings))
    made_at = [one.at for one in known.active]
    owner = {
        part.key: place for place, one in enumerate(known.active) for each in one.findings for part in parts_of(each)
    }
    faults = KnownFaults(owner)
    covered: Counter[str] = Counter()
    early: Counter[str] = Counter()
    for place, each in enumerate(parts if known.active else ()):
        first = bisect_left(made_at, since(findings[place]) - CLOCK_MARGIN)
        matches = [*zip(each, faults.match(each, first), strict=True)]
        same = [(part, key) for part, key in matches if key is not None]
        for part, key in same:
            covered[known.active[owner[key]].id] += part.events
        own = [part for part, _ in same]
        if first:
            rest = [part for part, key in matches if key is None]
            early.update({known.active[owner[key]].id for key in faults.match(rest) if key is not None})
        marked[place] = replace(marked[place], acknowledged=count_events(own), acknowledged_ids=_partial_ids(own, each))
    return MarkResult(
        marked,
        compared,
        tuple(
            AcknowledgementUse(id=one.id, by=one.by, reason=one.reason, at=format_time(one.at), ids=covered[one.id])
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
        )
        + tuple(_made_early(id, findings) for id, findings in sorted(early.items())),
    )


def _made_early(id: str, findings: int) -> Limitation:
    return Limitation(
        kind="acknowledgement",
        where=f"{ACKNOWLEDGEMENTS}/{id}.json",
        message=f"of {counted(findings, 'finding')} that it names, some rows may have been recorded after the "
        "acknowledgement: it does not count for them",
        hint="look at the findings, and acknowledge them again",
    )


def _partial_ids(parts: Sequence[FindingPart], of: Sequence[FindingPart]) -> tuple[str, ...]:
    """Return the ids of these parts if they are only some of the finding's events; nothing if they are all of them."""
    return ids_of(parts) if count_events(parts) < count_events(of) else ()


def _compare(marked: Sequence[Finding], baseline: EarlierReport, now: KnownFaults) -> Baseline:
    gone = []
    for one in baseline.findings:
        events, ids = gone_events(parts_of(one), now)
        if events:
            rest = 0 if events == max(1, len(ids)) else events
            gone.append(replace(one, ids=tuple(ids), count=rest, evidence=(), **_NO_MARKS))
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
