"""The verdict on one event at one peer: an absent row proves something only where the ledger is sure to hold it."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.audit.arrays.alterations import LedgerRow
from eventd.audit.arrays.columns import NEVER
from eventd.audit.coverage.coverage import BlindSpot, Coverage
from eventd.audit.coverage.holes import Hole
from eventd.audit.report.findings import NOT_SELECTED, Kind
from eventd.audit.segments.plan import ClockOffset, LakePlan, NodeEpoch
from eventd.audit.verdicts.pair_figures import CLAIMED_LATER, UNSEEN, VERIFIED_LATER, RowComparison
from eventd.audit.verdicts.trail import Trail
from eventd.audit.verdicts.verdicts import DeliveryOutcome, judge
from eventd.lake.schema import Ledger

EXPIRING = LedgerRow("a", "e", 7, "e1", "t", 5, 100, 3, expires_at=15)
DELIVERED = {"sent": 1, "senders": 1, "sent_node": "a"}


def coverage(**spots: BlindSpot) -> Coverage:
    """Return the coverage of `a` and `b`, whose ledgers end at 1000; a spot is given as `node_ledger`."""
    plan = LakePlan(clocks={("a", "b"): [ClockOffset(0, 0, 0)], ("b", "a"): [ClockOffset(0, 0, 0)]})
    made = Coverage(plan, until={"a": 1000, "b": 1000})
    for name, spot in spots.items():
        node, ledger = name.split("_")
        made.blind_spots[node, Ledger(ledger)].append(spot)
    return made


def trail(**changes: Any) -> Trail:
    """Return the rows of an event that `a` recorded and had for `b`, by default without a delivery."""
    empty = dict.fromkeys(Trail._fields, 0) | {
        "arrived_at": None,
        "sent_node": "a",
        "due_node": "a",
        "due_epoch": "e",
        "link_node": "",
        "link_epoch": "",
        **dict.fromkeys(("due_row", "delivery_row", "source_row", "peer_row")),
    }
    ends = {"group": "g", "source": "a", "peer": "b", "type": "t", "id": "e1", "seq": 7, "origin": 1, "due": 1}
    times = {"due_at": 10, "sent_at": 20, "done_at": 21, "held_at": 30}
    made = Trail(**{**empty, **ends, **times, **changes})
    unsent = made.due and not (made.sent or made.expired or made.in_path or made.refused or made.ahead)
    return made._replace(silent=changes.get("silent", int(unsent)))


@pytest.mark.parametrize(
    ("changes", "outcome", "kinds"),
    [
        ({}, DeliveryOutcome.MISSING, ["missing"]),
        ({"held": 1}, DeliveryOutcome.DISPUTED, ["disagreement"]),
        ({"sent": 1, "senders": 1, "held": 1}, DeliveryOutcome.DELIVERED, []),
        ({"sent": 1, "senders": 1}, DeliveryOutcome.DISPUTED, ["disagreement"]),
        ({"sent": 2, "senders": 1, "repeated": 1, "again": 1, "held": 1}, DeliveryOutcome.DELIVERED, ["duplicate"]),
        ({"sent": 2, "senders": 1, "repeated": 1, "asked": 1, "held": 1}, DeliveryOutcome.DELIVERED, []),
        ({"sent": 2, "senders": 2, "held": 1}, DeliveryOutcome.DELIVERED, ["loop"]),
        ({"source": "b", "due": 0, "sent": 1, "senders": 1}, DeliveryOutcome.FOREIGN, ["loop"]),
        ({"origin": 0, "due": 0, "held": 1, "seq": 0}, DeliveryOutcome.FOREIGN, ["forged"]),
        ({"origin": 0, "due": 0, "sent": 1, "senders": 1, "held": 1}, DeliveryOutcome.DELIVERED, ["erased"]),
        ({"ahead": 1, "due": 0}, DeliveryOutcome.PENDING, []),
        ({"ahead": 1}, DeliveryOutcome.PENDING, []),
        ({"expired": 1}, DeliveryOutcome.EXPIRED, []),
        ({"expired": 1, "held": 1}, DeliveryOutcome.EXPIRED, []),  # the answer to an attempt was lost
        ({"refused": 1, "held": 1}, DeliveryOutcome.REFUSED, []),  # another node delivered it earlier
        ({"expired": 1, "due_row": EXPIRING}, DeliveryOutcome.EXPIRED, []),
        ({"expired": 1, "due_row": EXPIRING._replace(expires_at=NEVER)}, DeliveryOutcome.DISPUTED, ["disagreement"]),
        ({"refused": 1, "sent": 1, "senders": 1, "held": 1}, DeliveryOutcome.DELIVERED, []),
    ],
)
def test_an_event_counts_by_the_rows_of_all_ledgers(
    changes: dict[str, Any], outcome: DeliveryOutcome, kinds: list[str]
) -> None:
    verdict = judge(trail(**changes), coverage())
    assert (verdict.outcome, [discrepancy.kind.value for discrepancy in verdict.discrepancies]) == (outcome, kinds)


def test_an_absent_row_proves_nothing_in_a_damaged_part_of_a_ledger() -> None:
    damaged = BlindSpot(why="a part is missing")
    assert judge(trail(), coverage(a_deliveries=damaged)).outcome is DeliveryOutcome.UNPROVEN
    assert judge(trail(held=1), coverage(a_deliveries=damaged))[:2] == (DeliveryOutcome.DELIVERED, ())
    assert judge(trail(**DELIVERED), coverage(b_events=damaged)).outcome is DeliveryOutcome.UNPROVEN
    not_recorded = trail(origin=0, due=0, held=1, seq=0)
    assert judge(not_recorded, coverage(a_events=damaged))[:2] == (DeliveryOutcome.FOREIGN, ())


def test_an_absent_row_proves_nothing_where_the_ledger_has_not_begun_or_has_ended() -> None:
    assert judge(trail(**DELIVERED), coverage(b_events=BlindSpot())).outcome is DeliveryOutcome.DELIVERED
    assert judge(trail(**DELIVERED, done_at=2000), coverage())[:2] == (DeliveryOutcome.DELIVERED, ())
    late = trail(origin=0, due=0, held=1, seq=0, held_at=2000)
    assert judge(late, coverage()).discrepancies == ()


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        pytest.param(DELIVERED, UNSEEN, id="only the sender's ledger shows the delivery"),
        pytest.param(DELIVERED | {"held": 1}, "", id="the peer holds the event"),
        pytest.param(DELIVERED | {"sent_at": 1000}, CLAIMED_LATER, id="it was sent after the end of the peer's ledger"),
        pytest.param(DELIVERED | {"sent_at": 1000, "held": 1}, "", id="the peer holds it after the end of its ledger"),
        pytest.param(DELIVERED | {"peer": "c"}, "", id="the peer ships no ledger"),
        pytest.param(DELIVERED | {"source": "b"}, "", id="the event is the peer's own"),
    ],
)
def test_a_delivery_that_the_peers_ledger_does_not_show_is_counted_by_whether_that_had_ended(
    changes: dict[str, Any], count: str
) -> None:
    comparison = RowComparison()
    comparison.add([trail(**changes)], coverage(b_events=BlindSpot()))
    counted = {name for change in comparison.changes.values() for name, n in change.items() if n}
    assert counted & {UNSEEN, CLAIMED_LATER, VERIFIED_LATER} == ({count} if count else set())


def test_an_event_without_a_row_at_its_source_is_not_named_in_a_hole_beside_a_declared_loss() -> None:
    forged = trail(origin=0, due=0, held=1, seq=0)
    known = coverage()
    known.holes = {("a", "g"): [Hole("a", "e", "g", 4, 5, 2, 0, 99, (0, 99))]}
    assert [one.kind for one in judge(forged, known).discrepancies] == [Kind.ERASED]
    known.blind_spots["a", Ledger.EVENTS].append(BlindSpot(times=(0, 99), why="lost"))
    assert judge(forged, known).discrepancies == ()


ROW = LedgerRow("a", "e", 7, "e1", "t", 5, 100, 3, subject="x/y")
BY_LINK = DELIVERED | {"due": 0, "held": 1, "link_node": "a", "link_epoch": "e", "link_version": 2}
BY_LINK |= {"delivery_row": ROW._replace(subject=""), "source_row": ROW, "peer_row": ROW}


def outside_of(*texts: str, **changes: Any) -> list[str]:
    """Return the details for an event that `a` delivered to `b` by a selection with these texts, and did not select."""
    known = coverage()
    known.plan.selections[NodeEpoch("a", "e"), "g", "b"] = {2: texts}
    verdict = judge(trail(**BY_LINK | changes), known)
    assert verdict.outcome is DeliveryOutcome.FOREIGN
    return [one.detail for one in verdict.discrepancies]


@pytest.mark.parametrize(
    "text", ['{"types": ["u"]}', '{"sources": ["c"]}', '{"subjectPrefixes": ["y"]}', '{"types": ["u"], "relay": true}']
)
def test_a_delivery_that_its_selection_cannot_match_is_a_disagreement(text: str) -> None:
    assert outside_of(text) == [NOT_SELECTED]


@pytest.mark.parametrize(
    ("texts", "changes"),
    [
        pytest.param(("{}",), {}, id="the selection matches it, which its row at the sender would show"),
        pytest.param(('{"types": ["t"], "payload": {"k": "v"}}',), {}, id="the payload is not considered"),
        pytest.param(('{"types": ["u"]}', '{"types": ["t"]}'), {}, id="one of two texts matches it"),
        pytest.param((), {}, id="no text of the version is known"),
        pytest.param(('{"types": ["u"]}',), {"link_version": 1}, id="it was sent by another version"),
        pytest.param(('{"types": ["u"]}',), {"link_epoch": "f"}, id="it was sent in another epoch"),
        pytest.param(('{"types": ["u"]}',), {"link_node": ""}, id="a repair sent it"),
        pytest.param(
            ('{"subjectPrefixes": ["y"]}',), {"source_row": None, "peer_row": None}, id="the subject is not known"
        ),
        pytest.param(("{}",), {"source": "c"}, id="the node that emitted it may have had another name"),
    ],
)
def test_a_delivery_that_its_selection_may_have_matched_is_none(
    texts: tuple[str, ...], changes: dict[str, Any]
) -> None:
    assert outside_of(*texts, **changes) == []
