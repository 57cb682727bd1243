"""Findings are new, known or gone by their ids, and acknowledged as long as they are the same fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from eventd.audit.report.findings import (
    DiscrepancyKey,
    EventEvidence,
    Finding,
    Kind,
    corrupt_segment,
    epoch_change,
    rolled_back,
    unnamed_findings,
)
from eventd.audit.report.report import Lake
from eventd.audit.review import marks
from eventd.audit.review.acknowledgements import CLOCK_MARGIN, Acknowledgement, Acknowledgements, known_by
from eventd.audit.review.earlier import EarlierReport, ReadReport
from eventd.audit.review.faults import FaultKey, FindingPart, parts_of
from eventd.audit.review.marks import check_baseline, mark_findings
from eventd.errors import Invalid
from eventd.runtime.clock import SECOND

NONE = Acknowledgements((), (), {})
LOST = Finding(Kind.MISSING, "edge", "a", "b", 4, 6, ("e4", "e5", "e6"))
HOLE = Finding(Kind.ERASED, "edge", "a", "", 10, 12, (), count=3)
NAMED = Finding(Kind.ERASED, "edge", "a", "", 20, 24, ("e20", "e21", "e23"), count=5)
"""A hole of five rows, of which other rows name three."""
EDITED = Finding(
    Kind.ALTERED, "edge", "a", "b", 7, 7, ("e7",), evidence=(EventEvidence(id="e7", fingerprints=("1" * 16, "2" * 16)),)
)


def earlier(*findings: Finding, lake: str = "l") -> EarlierReport:
    about = Lake(url="/lake", segments=1, rows=1, bytes=1, schema=1, id=lake, state="5" * 64)
    report = ReadReport(schema=1, made_at="2026-11-20T12:00:00Z", verdict="incomplete", lake=about, findings=findings)
    return EarlierReport("/out", "0" * 64, report, findings)


def known(*findings: Finding) -> Acknowledgements:
    made = Acknowledgement(id="0a", by="ann", reason="a test", at=0, findings=findings)
    return Acknowledgements([made], (), {})


def compared(now: Sequence[Finding], before: Sequence[Finding]) -> tuple[int, int, int]:
    base = mark_findings(now, earlier(*before), NONE).baseline
    assert base is not None
    return base.new, base.known, base.gone


@pytest.mark.parametrize(
    "finding", [LOST, HOLE, NAMED, EDITED, corrupt_segment("a", "s", 0, 4, "x"), epoch_change("a", "e", "x")]
)
def test_the_same_finding_is_known_and_another_one_is_new(finding: Finding) -> None:
    others = [
        replace(finding, kind=Kind.LOOP),
        replace(finding, group="other"),
        replace(finding, source="c"),
        replace(finding, peer="c"),
    ]
    n = finding.events
    assert compared([finding], [finding]) == (0, n, 0)
    assert compared([finding], [replace(finding, detail="in other words")]) == (0, n, 0)
    for other in others:
        assert compared([finding], [other]) == (n, 0, n)


def test_a_run_of_events_is_compared_id_by_id() -> None:
    before = Finding(Kind.MISSING, "edge", "a", "b", 3, 5, ("e3", "e4", "e5"))
    marked = mark_findings([LOST], earlier(before), NONE)
    assert marked.findings == [replace(LOST, new=1, new_ids=("e6",))]
    assert marked.baseline is not None
    assert (marked.baseline.new, marked.baseline.known, marked.baseline.gone) == (1, 2, 1)
    assert marked.baseline.gone_findings == (replace(before, ids=("e3",)),)
    assert [*marked.sentences] == [
        "Compared with the report of 2026-11-20 12:00:00 UTC: 1 new, 2 still there, 1 gone.",
    ]


def test_a_hole_that_grew_is_new() -> None:
    assert compared([replace(HOLE, last=13, count=4)], [HOLE]) == (4, 0, 0)
    assert compared([replace(HOLE, first=12, last=14)], [HOLE]) == (3, 0, 3), "another hole, which overlaps"


@pytest.mark.parametrize("left", [{"first": 11, "count": 2}, {"last": 11, "count": 2}, {"count": 2}])
def test_a_hole_that_shrank_is_known_and_only_its_other_rows_are_gone(left: dict[str, int]) -> None:
    shrunk = replace(HOLE, **left)
    assert compared([shrunk], [HOLE]) == (0, 2, 1)
    assert mark_findings([shrunk], None, known(HOLE)).open == []
    assert compared([replace(HOLE, last=10, count=1), replace(HOLE, first=12, count=1)], [HOLE]) == (0, 2, 1)


def test_of_a_hole_that_shrank_the_ids_are_gone_that_nothing_names_any_more() -> None:
    marked = mark_findings([replace(NAMED, last=22, ids=("e20", "e21"), count=3)], earlier(NAMED), NONE)
    assert marked.baseline is not None
    assert (marked.baseline.new, marked.baseline.known) == (0, 3)
    assert marked.baseline.gone_findings == (replace(NAMED, ids=("e23",), count=2),)
    unnamed = mark_findings([replace(NAMED, last=22, ids=(), count=3)], earlier(NAMED), NONE)
    assert unnamed.baseline is not None
    assert unnamed.baseline.gone_findings == (replace(NAMED, ids=(), count=2),)


def test_an_acknowledgement_covers_no_hole_of_rows_that_were_recorded_after_it() -> None:
    early, late = (replace(known(HOLE).active[0], id=name, at=at) for name, at in (("0a", 0), ("0b", 2 * CLOCK_MARGIN)))
    for made, at, uses in (
        ([early], CLOCK_MARGIN, [3]),
        ([early], CLOCK_MARGIN + 1, [0]),
        ([early, late], CLOCK_MARGIN + 1, [0, 3]),
    ):
        marked = mark_findings([HOLE], None, Acknowledgements(made, (), {}), {HOLE: at}.__getitem__)
        assert [one.ids for one in marked.acknowledgements] == uses
        assert (marked.open == []) is any(uses)
        named = [] if any(uses) else ["acknowledgements/0a.json"]
        assert [one.where for one in marked.problems] == named


def test_of_an_acknowledgement_that_was_made_again_the_last_one_counts() -> None:
    first, second = (replace(known(HOLE, LOST).active[0], id=name, at=at) for name, at in (("0a", 1), ("0b", 2)))
    marked = mark_findings([HOLE, LOST], None, Acknowledgements([first, second], (), {}))
    assert [(one.id, one.ids) for one in marked.acknowledgements] == [("0a", 0), ("0b", 6)]


@pytest.mark.parametrize("wide", [False, True], ids=["holes alone", "holes in one that is too small to cover them"])
def test_each_hole_is_compared_with_few_of_ten_thousand_acknowledgements(
    monkeypatch: pytest.MonkeyPatch, wide: bool
) -> None:
    many = 10_000
    holes = [replace(HOLE, first=10 * at, last=10 * at + 5, count=6) for at in range(many)]
    shrunk = [replace(one, last=one.last - 1, count=5) for one in holes]
    first = known(HOLE).active[0]
    made = [replace(first, id=f"{at:06x}", at=at * SECOND, findings=(one,)) for at, one in enumerate(holes, 1)]
    if wide:
        made.insert(0, replace(first, findings=(replace(HOLE, first=0, last=10 * many, count=1),)))
    compared: list[FaultKey] = []
    covers = FaultKey.covers

    def counted(key: FaultKey, other: FaultKey) -> bool:
        compared.append(other)
        return covers(key, other)

    asked: list[Finding] = []

    def parts(finding: Finding) -> list[FindingPart]:
        asked.append(finding)
        return parts_of(finding)

    monkeypatch.setattr(FaultKey, "covers", counted)
    monkeypatch.setattr(marks, "parts_of", parts)
    recorded = {one: at * SECOND + CLOCK_MARGIN for at, one in enumerate(shrunk, 1)}
    marked = mark_findings(shrunk, None, Acknowledgements(made, (), {}), recorded.__getitem__)
    assert (marked.open, marked.problems) == ([], ())
    assert len(compared) <= 4 * many
    assert len(asked) <= 2 * many + 1
    assert sum(one.ids for one in marked.acknowledgements) == 5 * many


def test_acknowledgements_are_not_compared_with_each_other_to_leave_out_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = known(HOLE).active[0]
    made = [replace(first, id=f"{at:06x}", at=at * SECOND) for at in range(10_000)]
    equal: list[object] = []

    def is_same(one: object, other: object) -> bool:
        equal.append(other)
        return one is other

    monkeypatch.setattr(Acknowledgement, "__eq__", is_same)
    kept = known_by(Acknowledgements(made, (), {}), 5_000 * SECOND - CLOCK_MARGIN)
    assert (len(kept.active), len(kept.unreadable), equal) == (5_001, 4_999, [])


def test_an_acknowledgement_that_is_dated_after_the_audit_does_not_count_yet() -> None:
    made = known(HOLE).active[0]
    at = made.at - CLOCK_MARGIN
    assert known_by(known(HOLE), at).active == [made]
    assert known_by(known(HOLE), at - 1) == ([], (), {"acknowledgements/0a.json": "is dated after the audit"})


def test_a_range_that_is_not_erased_rows_is_the_same_only_as_a_whole() -> None:
    assert compared([rolled_back("a", 4, 8, "x")], [rolled_back("a", 2, 8, "x")]) == (1, 0, 1)


def test_more_events_that_are_only_counted_are_new() -> None:
    (many,) = unnamed_findings({DiscrepancyKey(Kind.ALTERED, "edge", "a", "b", "x"): 5_000})
    assert compared([many], [many]) == (0, 5_000, 0)
    assert compared([replace(many, count=50_000)], [many]) == (50_000, 0, 0)
    assert compared([many], [replace(many, count=50_000)]) == (0, 5_000, 45_000)
    assert mark_findings([many], None, known(many)).open == []
    grown = replace(many, count=50_000)
    assert mark_findings([grown], None, known(many)).open == [grown]


def test_of_a_hole_that_grew_the_ids_are_known_and_the_other_rows_are_new() -> None:
    grown = replace(NAMED, last=69, count=50)
    marked = mark_findings([grown], earlier(NAMED), NONE)
    assert marked.findings == [replace(grown, new=47)]
    assert [*marked.sentences] == [
        "Compared with the report of 2026-11-20 12:00:00 UTC: 47 new, 3 still there, 0 gone.",
    ]
    more = replace(grown, ids=(*NAMED.ids, "e30"))
    assert mark_findings([more], earlier(NAMED), NONE).findings == [replace(more, new=47, new_ids=("e30",))]


def test_a_hole_is_the_same_whichever_of_its_events_other_rows_name() -> None:
    for ids in ((), ("e22",), ("e20", "e21", "e22", "e23", "e24")):
        assert compared([replace(NAMED, ids=ids)], [NAMED]) == (0, 5, 0)
    all_named = replace(NAMED, ids=("e20", "e21", "e22", "e23", "e24"), count=0)
    assert compared([all_named], [NAMED]) == compared([NAMED], [all_named]) == (0, 5, 0)


def test_a_hole_that_is_gone_is_listed_with_its_rows_and_without_earlier_marks() -> None:
    before = replace(NAMED, new=1, new_ids=("e20",), acknowledged=1, acknowledged_ids=("e21",))
    marked = mark_findings([], earlier(HOLE, before), NONE)
    assert marked.baseline is not None
    assert (marked.baseline.gone, marked.baseline.gone_findings) == (8, (HOLE, NAMED))


def test_an_event_that_is_altered_once_more_is_new() -> None:
    again = replace(EDITED, evidence=(EventEvidence(id="e7", fingerprints=("1" * 16, "3" * 16)),))
    assert compared([again], [EDITED]) == (1, 0, 1)


def test_each_epoch_of_a_node_is_a_finding_of_its_own() -> None:
    assert compared([epoch_change("a", "e2", "x"), epoch_change("a", "e3", "x")], [epoch_change("a", "e2", "x")]) == (
        *(1, 1),
        0,
    )


def test_without_a_baseline_nothing_is_new() -> None:
    marked = mark_findings([LOST], None, NONE)
    assert marked.findings == [LOST]
    assert (marked.findings[0].new, marked.baseline, [*marked.sentences]) == (None, None, [])


def test_a_baseline_of_another_lake_is_refused() -> None:
    check_baseline(earlier(lake="l"), "l")
    check_baseline(earlier(lake=""), "l")
    with pytest.raises(Invalid, match="is about another lake: /lake"):
        check_baseline(earlier(lake="m"), "l")


def test_an_acknowledged_finding_is_marked_and_not_open() -> None:
    marked = mark_findings([LOST, HOLE], None, known(LOST))
    assert marked.findings == [replace(LOST, acknowledged=3), HOLE]
    assert marked.open == [HOLE]
    assert [(one.by, one.reason, one.ids) for one in marked.acknowledgements] == [("ann", "a test", 3)]
    assert [*marked.sentences] == ["Acknowledged: 1 of 2 findings."]


def test_a_finding_that_is_acknowledged_in_part_is_open() -> None:
    marked = mark_findings([LOST], None, known(replace(LOST, ids=("e4", "e6"))))
    assert marked.findings == [replace(LOST, acknowledged=2, acknowledged_ids=("e4", "e6"))]
    assert marked.open == marked.findings
    assert [*marked.sentences] == ["Acknowledged: 0 of 1 finding, 1 in part."]


@pytest.mark.parametrize("hole", [HOLE, NAMED])
def test_an_acknowledged_hole_is_not_open_until_it_grows(hole: Finding) -> None:
    marked = mark_findings([hole], None, known(hole))
    assert (marked.open, marked.acknowledged) == ([], hole.events)
    assert [one.ids for one in marked.acknowledgements] == [hole.events]
    assert [*marked.sentences] == ["Acknowledged: 1 of 1 finding."]
    grown = replace(hole, last=hole.last + 45, count=hole.count + 45)
    later = mark_findings([grown], None, known(hole))
    assert later.open == later.findings == [replace(grown, acknowledged=len(hole.ids), acknowledged_ids=hole.ids)]


def test_one_acknowledged_id_of_a_hole_leaves_the_hole_open() -> None:
    marked = mark_findings([NAMED], None, known(replace(NAMED, ids=("e21",), count=0)))
    assert marked.open == [replace(NAMED, acknowledged=1, acknowledged_ids=("e21",))]


def test_an_acknowledgement_does_not_cover_another_alteration_of_the_event() -> None:
    again = replace(EDITED, evidence=(EventEvidence(id="e7", fingerprints=("1" * 16, "3" * 16)),))
    assert mark_findings([again], None, known(EDITED)).open == [again]


def test_an_acknowledgement_of_what_is_gone_covers_nothing() -> None:
    marked = mark_findings([HOLE], None, known(LOST))
    assert (marked.open, [one.ids for one in marked.acknowledgements]) == ([HOLE], [0])


def test_an_unreadable_acknowledgement_is_reported() -> None:
    marked = mark_findings([HOLE], None, Acknowledgements((), (), {"acknowledgements/a.json": "is not JSON"}))
    assert [(one.kind, one.where) for one in marked.problems] == [("acknowledgement", "acknowledgements/a.json")]
    assert marked.open == [HOLE]
