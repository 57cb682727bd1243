"""Notices about callbacks that the node gives up: who gets them, and who does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.callback_program import ReceiverThread
from tests.support.declared import API_VERSION, group
from tests.support.processes import Processes
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for

TOPIC = "notices"


@pytest.fixture
def receivers() -> Iterator[dict[str, ReceiverThread]]:
    made = {name: ReceiverThread().start() for name in ("hook", "watch", "own")}
    yield made
    for one in made.values():
        one.stop()


def callback(name: str, receiver: ReceiverThread, source: dict[str, str], **spec: Any) -> dict[str, Any]:
    found = {"source": source, "url": receiver.url, "allowPlain": True, **spec}
    return {"apiVersion": API_VERSION, "kind": "EventCallback", "metadata": {"name": name}, "spec": found}


def notices(receiver: ReceiverThread) -> list[tuple[str, str]]:
    """The accepted notices: their types, and which callbacks they are about."""
    found = [call.json for call in receiver.accepted]
    return [(one["type"], one["data"]["callback"]) for one in found]


def state(node: NodeProcess, name: str) -> str:
    return str(node.ask("GET", f"/callbacks/{name}")["state"])


def test_others_get_notices_of_a_callback_and_it_does_not_get_its_own(
    processes: Processes, receivers: dict[str, ReceiverThread]
) -> None:
    node = NodeProcess(processes, "a", EVENTD_CALLBACK_ALLOW="127.0.0.1", EVENTD_NOTICES_TOPIC=TOPIC)
    node.request("PUT", f"/v0/topics/{TOPIC}", {})
    hook, watch, own = receivers["hook"], receivers["watch"], receivers["own"]
    node.apply(
        group("a"),
        callback("hook", hook, {"groupRef": "edge"}),
        callback("watch", watch, {"topic": TOPIC}),
        callback("own", own, {"topic": TOPIC}),
    )
    for one in (hook, own):
        one.answer = lambda _: 410
    node.emit("e1")
    wait_for(lambda: state(node, "hook") == "paused", "the callback to be disabled")
    wait_for(lambda: state(node, "own") == "paused", "the other one to be disabled by the notice")
    disabled = [("routerd.callback.disabled", "hook"), ("routerd.callback.disabled", "own")]
    wait_for(lambda: notices(watch) == disabled, "the notices")
    log = node.process.log()
    assert '"msg":"callback disabled","callback":"hook"' in log

    for one in (hook, own):
        one.answer = lambda _: 204
    node.ask("POST", "/callbacks/hook/resume", {})
    wait_for(lambda: [call.id for call in hook.accepted] == ["e1"], "it to go on where it stood")
    recovered = ("routerd.callback.recovered", "hook")
    wait_for(lambda: notices(watch) == [*disabled, recovered], "the notice of its recovery")
    node.ask("POST", "/callbacks/own/resume", {})
    wait_for(lambda: notices(own)[-1:] == [recovered], "what is about others")
    wait_for(lambda: len(notices(watch)) == 4, "the last notice")
    node.emit("e2")
    wait_for(lambda: [call.id for call in hook.accepted] == ["e1", "e2"], "the next event")
    assert notices(own) == [disabled[0], recovered], "none of its own"
    assert node.stop() == 0


def test_a_node_without_such_a_topic_writes_no_notice(
    processes: Processes, receivers: dict[str, ReceiverThread]
) -> None:
    node = NodeProcess(processes, "a", EVENTD_CALLBACK_ALLOW="127.0.0.1")
    node.apply(group("a"), callback("hook", receivers["hook"], {"groupRef": "edge"}))
    receivers["hook"].answer = lambda _: 410
    node.emit("e1")
    wait_for(lambda: state(node, "hook") == "paused", "the callback to be disabled")
    assert "callback disabled" in node.process.log()
    assert [one["topic"] for one in node.request("GET", "/v0/topics")["topics"]] == ["group:edge"]
    assert node.stop() == 0
