"""Callbacks in the audit: expected events are those of their selections, and an endpoint's ledger is never missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import Kind
from eventd.audit.report.report import Pair, Report
from eventd.lake.storage import connect
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from tests.support.callback_lakes import NodeLedgers
from tests.support.lakes import NOON
from tests.support.local_spark import run_audit

OWN = [(f"e{n}", "a", "t") for n in range(1, 6)]
BOTH = [("e1", "a", "t"), ("f1", "b", "t"), ("e2", "a", "u"), ("f2", "b", "u")]


def audit(folder: Path, *nodes: NodeLedgers) -> Report:
    for node in nodes:
        node.ship(connect(str(folder / "lake")))
    asked = AuditRequest(lake=str(folder / "lake"), out=str(folder / "out"))
    return run_audit(asked, clock=ManualClock(NOON + 3700 * SECOND))


def figures(pair: Pair) -> dict[str, int]:
    names = ("expected", "delivered", "expired", "dead_lettered", "pending", "missing", "disputed", "unproven")
    return {name: getattr(pair, name) for name in (*names, "duplicates") if getattr(pair, name)}


def test_each_event_after_the_beginning_is_delivered_expired_refused_or_pending(tmp_path: Path) -> None:
    a = NodeLedgers("a", OWN)
    hook = a.declare("hook", begins=1, cursor=4)
    a.deliver(hook, 2)
    a.deliver(hook, 3, "refused")
    a.deliver(hook, 4, "expired")
    report = audit(tmp_path, a)
    (pair,) = report.pairs
    assert (pair.group, pair.source, pair.peer, pair.senders) == ("g", "a", "a/callback:hook", ("a",))
    assert figures(pair) == {"expected": 4, "delivered": 1, "dead_lettered": 1, "expired": 1, "pending": 1}
    assert (pair.receiver, pair.proof, pair.completeness, pair.notes) == ("callback", "claims", 100.0, ())
    assert pair.claimed == pair.delivered > 0
    assert (report.verdict, report.findings, report.troubles) == ("complete", (), ())
    assert [node.name for node in report.nodes] == ["a"]
    assert report.nodes[0].states == {"g/a/callback:hook": "running"}


def test_the_report_says_that_an_answer_is_all_the_proof_there_is(tmp_path: Path) -> None:
    a = NodeLedgers("a", OWN)
    hook = a.declare("hook", begins=3)
    a.deliver(hook, 4)
    a.deliver(hook, 5, key_id="")
    report = audit(tmp_path, a)
    (receipts,) = report.receipts
    assert (receipts.algorithm, receipts.count, receipts.proves_to_others) == ("callback", 2, False)
    assert "answered 2xx, as the sender recorded, is all the proof there is" in receipts.note
    assert [(key.key_id, key.protocol, key.requests) for key in report.keys] == [("k1", "callback", 1)]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "1 callback: that the endpoint answered 2xx, as the sender recorded, is all the proof of delivery" in page
    assert "all the proof that a callback has" in page
    assert "ships no ledgers" not in page


@pytest.mark.parametrize("earlier", [False, True])
def test_a_callback_begins_no_later_than_its_deliveries(tmp_path: Path, earlier: bool) -> None:
    """Unless these are of a callback that was declared under its name before."""
    a = NodeLedgers("a", OWN)
    hook = a.declare("hook", begins=3)
    for position in (1, 2, 4, 5):
        a.deliver(hook, position, after=2 if position == 4 else None)
    if earlier:
        a.callbacks[hook] = replace(a.callbacks[hook], created_at=NOON + 5 * SECOND)
    report = audit(tmp_path, a)
    assert [(one.kind, one.ids) for one in report.findings] == ([] if earlier else [(Kind.MISSING, ("e3",))])


def test_an_event_that_the_cursor_has_passed_without_a_delivery_is_missing(tmp_path: Path) -> None:
    a = NodeLedgers("a", OWN)
    hook = a.declare("hook")
    for position in (1, 2, 4, 5):
        a.deliver(hook, position, after=2 if position == 4 else None)
    report = audit(tmp_path, a)
    (finding,) = report.findings
    assert (finding.kind.value, finding.source, finding.peer, finding.ids) == ("missing", "a", hook, ("e3",))
    assert figures(report.pairs[0]) == {"expected": 5, "delivered": 4, "missing": 1}


def test_events_of_other_nodes_are_expected_as_the_selection_says(tmp_path: Path) -> None:
    a = NodeLedgers("a", BOTH)
    every = a.declare("every")
    some = a.declare("some", {"types": ["t"], "sources": ["b"], "relay": True})
    for position in range(1, 5):
        a.deliver(every, position)
    a.deliver(some, 2, after=0)
    report = audit(tmp_path, a, NodeLedgers("b", [("f1", "b", "t"), ("f2", "b", "u")]))
    assert (report.verdict, report.findings) == ("complete", ())
    told = {(pair.source, pair.peer): figures(pair) for pair in report.pairs}
    assert told == {
        ("a", every): {"expected": 2, "delivered": 2},
        ("b", every): {"expected": 2, "delivered": 2},
        ("a", some): {},
        ("b", some): {"expected": 1, "delivered": 1},
    }


def test_callbacks_of_two_nodes_with_one_name_are_two_receivers(tmp_path: Path) -> None:
    a, b = NodeLedgers("a", [("e1", "a", "t")]), NodeLedgers("b", [("e1", "a", "t")])
    for node in (a, b):
        node.deliver(node.declare("hook"), 1)
    report = audit(tmp_path, a, b)
    assert report.findings == (), "it is no loop by two senders"
    told = {(pair.peer, pair.senders): pair.delivered for pair in report.pairs if pair.source == "a"}
    assert told == {("a/callback:hook", ("a",)): 1, ("b/callback:hook", ("b",)): 1}


def test_an_event_that_is_sent_again_is_counted_and_no_finding(tmp_path: Path) -> None:
    a = NodeLedgers("a", OWN[:2])
    hook = a.declare("hook")
    a.deliver(hook, 1)
    a.deliver(hook, 2, "refused")
    for position in (1, 2):
        a.deliver(hook, position, repair=True)
    report = audit(tmp_path, a)
    assert (report.verdict, report.findings) == ("complete", ())
    assert figures(report.pairs[0]) == {"expected": 2, "delivered": 2, "duplicates": 1}


def test_without_payloads_an_event_without_a_delivery_is_unproven_and_the_pair_says_why(tmp_path: Path) -> None:
    a = NodeLedgers("a", OWN[:3])
    hook = a.declare("hook", {"payload": {"k": "v"}, "relay": True})
    for position in (1, 3):
        a.deliver(hook, position, after=0 if position == 1 else 1)
    report = audit(tmp_path, a)
    (pair,) = report.pairs
    assert figures(pair) == {"expected": 3, "delivered": 2, "unproven": 1}
    assert (report.verdict, report.findings, pair.completeness) == ("unproven", (), None)
    (note,) = pair.notes
    assert note.startswith("it selects by payloads, by which the audit does not select")
    assert all(hour.completeness is None for hour in report.hours)


def test_if_every_event_is_delivered_payloads_do_not_matter(tmp_path: Path) -> None:
    a = NodeLedgers("a", OWN[:2])
    hook = a.declare("hook", {"payload": {"k": "v"}, "relay": True})
    for position in (1, 2):
        a.deliver(hook, position)
    report = audit(tmp_path, a)
    assert (report.verdict, report.pairs[0].completeness, report.pairs[0].notes) == ("complete", 100.0, ())


def test_a_wider_selection_does_not_concern_what_the_callback_has_passed(tmp_path: Path) -> None:
    a = NodeLedgers("a", [("e1", "a", "t"), ("e2", "a", "u"), ("e3", "a", "t"), ("e4", "a", "u")])
    hook = a.declare("hook", {"types": ["t"], "relay": True}, {"relay": True})
    a.deliver(hook, 1)
    a.deliver(hook, 3, after=1)
    a.deliver(hook, 4, selector_version=2)
    report = audit(tmp_path, a)
    assert (report.verdict, figures(report.pairs[0])) == ("complete", {"expected": 3, "delivered": 3})


def test_a_callback_that_was_declared_again_owes_nothing_of_before(tmp_path: Path) -> None:
    """Under the same name, with a later version of its selection: e3 came in between."""
    a = NodeLedgers("a", OWN)
    hook = a.declare("hook", begins=3, version=7)
    a.deliver(hook, 1)
    a.deliver(hook, 2)
    for position in (4, 5):
        a.deliver(hook, position, selector_version=7)
    report = audit(tmp_path, a)
    assert (report.verdict, report.findings) == ("complete", ())
    assert figures(report.pairs[0]) == {"expected": 2, "delivered": 2}


def test_a_callback_that_was_deleted_owes_nothing_after_its_last_receipt(tmp_path: Path) -> None:
    a = NodeLedgers("a", OWN)
    hook = a.declare("hook", begins=1)
    for position in (2, 3):
        a.deliver(hook, position)
    del a.callbacks[hook]
    report = audit(tmp_path, a)
    assert (report.verdict, report.findings) == ("complete", ())
    assert figures(report.pairs[0]) == {"expected": 2, "delivered": 2}
    (notice,) = report.notices
    assert (notice.kind, notice.group, notice.source, notice.peer, notice.events) == ("undeclared", "g", "a", hook, 0)
    assert "nothing that it had to send after position 3 of its log is expected" in notice.message


@pytest.mark.parametrize("begins", [0, 5])
def test_a_callback_that_has_delivered_nothing_yet_waits_for_what_follows_its_beginning(
    tmp_path: Path, begins: int
) -> None:
    a = NodeLedgers("a", OWN)
    a.declare("hook", begins=begins, cursor=begins)
    (pair,) = audit(tmp_path, a).pairs
    waiting = 5 - begins
    assert figures(pair) == ({"expected": waiting, "pending": waiting} if waiting else {})
    assert pair.completeness == 100.0
