"""Discrepancies of neighbouring events are one finding."""

from __future__ import annotations

from eventd.audit.report.findings import Discrepancy, Kind, group_findings


def test_discrepancies_of_neighbouring_events_are_one_finding_and_others_are_not() -> None:
    found = [Discrepancy(Kind.MISSING, "g", "a", "b", seq, f"e{seq}") for seq in (7, 5, 6, 9)]
    found += [
        Discrepancy(Kind.MISSING, "g", "a", "c", 8, "e8"),
        Discrepancy(Kind.FORGED, "g", "a", "b", 0, "x"),
        found[0],
    ]
    findings = [(one.kind.value, one.peer, one.first, one.last, one.ids) for one in group_findings(found)]
    assert findings == [
        ("missing", "b", 5, 7, ("e5", "e6", "e7")),
        ("missing", "b", 9, 9, ("e9",)),
        ("missing", "c", 8, 8, ("e8",)),
        ("forged", "b", 0, 0, ("x",)),
    ]


def test_a_finding_with_a_part_of_its_ids_has_the_number_of_all() -> None:
    (found,) = group_findings(Discrepancy(Kind.MISSING, "g", "a", "b", seq, f"e{seq}") for seq in range(1, 6))
    short = found.shortened(2)
    assert (short.ids, short.count, short.events, found.events) == (("e1", "e2"), 5, 5, 5)
