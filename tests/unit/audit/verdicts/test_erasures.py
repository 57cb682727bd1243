"""Events that other rows name are assigned to the holes of their ledger, as many as these have room for."""

from __future__ import annotations

from eventd.audit.coverage.holes import Hole
from eventd.audit.report.findings import NO_ORIGIN, NO_ROW, Discrepancy, Kind
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.erasures import find_erasures
from eventd.audit.verdicts.hidden_events import hidden_events
from eventd.audit.verdicts.pair_figures import LocatedDiscrepancy

HOURS = (0, 1000)


def lost(name: str) -> LocatedDiscrepancy:
    """Return an event that `b` holds and the ledger of `a`, its source, does not."""
    return LocatedDiscrepancy(Discrepancy(Kind.ERASED, "g", "a", "b", 0, name, NO_ROW), slot=0, hole=4)


def hole(first: int, last: int, events: int) -> Hole:
    return Hole("a", "e", "g", first, last, events, 0, 99, (0, 1000))


def test_an_event_for_which_no_hole_has_room_is_forged_and_hides_no_other() -> None:
    made = find_erasures({("a", "g"): [hole(4, 5, 2)]}, [lost("e1"), lost("e2"), lost("e3")], HOURS)
    assert [(one.kind, one.ids) for one in made.findings] == [(Kind.ERASED, ("e1", "e2"))]
    assert [(one.kind, one.id, one.detail) for one in made.others] == [(Kind.FORGED, "e3", NO_ORIGIN)]
    assert hidden_events(PairKey("g", "a", "b"), ["a"], {}, made, 0) == []
    assert [one.events for one in hidden_events(PairKey("g", "a", "c"), ["a"], {}, made, 0)] == [2]


def test_a_finding_says_of_how_many_seqs_rows_were_erased_if_the_node_declared_the_loss_of_others() -> None:
    made = find_erasures({("a", "g"): [hole(4, 9, 2)]}, [], HOURS)
    (found,) = made.findings
    assert (found.first, found.last, found.events) == (4, 9, 2)
    assert found.detail.startswith("no segment has rows with 2 of these seqs")


def test_events_fill_the_first_holes_that_may_have_them() -> None:
    holes = [hole(1, 2, 2), hole(4, 4, 1), hole(7, 8, 2)]
    with_seq = lost("e0")._replace(discrepancy=lost("e0").discrepancy._replace(seq=4))
    later = lost("e2")._replace(hole=7)
    made = find_erasures({("a", "g"): holes}, [later, lost("e1"), with_seq, lost("e3")._replace(hole=8)], HOURS)
    assert [(one.first, one.ids) for one in made.findings] == [(1, ()), (4, ("e0",)), (7, ("e1", "e2"))]
    assert [one.id for one in made.others] == ["e3"]
