"""Two nodes, a lake, and a callback at one of them: an audit finds every event of both at the callback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.engine.request import AuditRequest
from tests.support.callback_program import LOSE, ReceiverThread
from tests.support.declared import API_VERSION
from tests.support.local_spark import run_audit
from tests.support.processes import Processes
from tests.support.running import NodeProcess
from tests.support.shipped import state
from tests.support.waiting import wait_for

HOOK = "a/callback:hook"
RETRY = {"baseBackoff": "20ms", "maxBackoff": "100ms", "isolateAfter": 1}


@pytest.fixture
def receiver() -> Iterator[ReceiverThread]:
    made = ReceiverThread().start()
    yield made
    made.stop()


def callback(receiver: ReceiverThread) -> dict[str, Any]:
    spec = {"source": {"groupRef": "edge"}, "url": receiver.url, "allowPlain": True, "retry": RETRY}
    spec["match"] = {"types": ["t"]}
    return {"apiVersion": API_VERSION, "kind": "EventCallback", "metadata": {"name": "hook"}, "spec": spec}


def position(node: NodeProcess) -> int:
    """Return the position up to which the callback has settled the log."""
    found: int = node.ask("GET", "/callbacks/hook")["position"]
    return found


def wait_shipped(lake: Path, *nodes: NodeProcess) -> None:
    """Wait until the lake has all rows of these nodes, and their states say so."""
    for node in nodes:

        def told(node: NodeProcess = node) -> bool:
            books = node.ask("GET", "/lake")["books"]
            if not books or any(book["waiting"] for book in books):
                return False
            return state(lake, node.name).head == len(node.ids())

        wait_for(told, f"the ledgers of {node.name} to be in the lake", seconds=90)


def test_every_event_is_proven_at_the_callback_as_far_as_its_answers_prove_it(
    processes: Processes, receiver: ReceiverThread, tmp_path: Path
) -> None:
    lake, out = tmp_path / "lake", tmp_path / "out"
    settings = {"EVENTD_LAKE": str(lake), "EVENTD_LAKE_INTERVAL": "100ms", "EVENTD_LAKE_NICE": "0"}
    a = NodeProcess(processes, "a", EVENTD_CALLBACK_ALLOW="127.0.0.1", **settings)
    b = NodeProcess(processes, "b", **settings)
    a.join(b)
    b.join(a)
    a.emit("before")
    a.apply(callback(receiver))
    wait_for(lambda: position(a), "the callback to begin")

    receiver.refused = {"bad"}
    receiver.answer = lambda number: (204, 503, LOSE, 204)[number % 4]
    a.emit("e1", "e2", "bad", "e3")
    b.emit("f1", "f2")
    a.emit("other", type="u")
    a.kill9()
    a.start()
    a.emit("e4")
    a.wait_holds({"f1", "f2", "e4"})
    a.emit("e5")
    wait_for(lambda: position(a) >= len(a.ids()), "the callback to catch up", seconds=60)
    receiver.refused = set()
    receiver.answer = lambda _: 204
    a.ask("POST", "/callbacks/hook/resend", {"ids": ["bad", "e1"]})
    sent_again = [["e1"], ["bad"]]
    wait_for(lambda: [call.events for call in receiver.accepted[-2:]] == sent_again, "the resend")
    wait_for(lambda: not a.ask("GET", "/callbacks/hook")["resends"], "the resend to be settled")
    for node, other in ((a, b), (b, a)):
        node.wait_sent(other.name)
    wait_shipped(lake, a, b)

    run_audit(AuditRequest(str(lake), str(out)))
    report = json.loads((out / "report.json").read_text())
    assert (report["verdict"], report["findings"], report["troubles"]) == ("complete", [], [])
    pairs = {(pair["source"], pair["peer"]): pair for pair in report["pairs"]}
    assert {*pairs} == {("a", "b"), ("b", "a"), ("a", HOOK), ("b", HOOK)}
    own, others = pairs["a", HOOK], pairs["b", HOOK]
    assert (own["expected"], own["delivered"], own["completeness"]) == (6, 6, 100.0)
    assert (others["expected"], others["delivered"], others["senders"]) == (2, 2, ["a"])
    assert {(pair["receiver"], pair["proof"]) for pair in (own, others)} == {("callback", "claims")}
    assert own["duplicates"] == 1, "e1 was sent again on request"
    (answers,) = (one for one in report["receipts"] if one["algorithm"] == "callback")
    assert "is all the proof there is" in answers["note"]
