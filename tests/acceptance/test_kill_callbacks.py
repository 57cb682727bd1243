"""kill -9 of the node at any step of a delivery, and lost answers: every event arrives, repeats have the same id and
bytes, in order."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventd.client.webhooks import verify
from tests.support.callback_program import LOSE, ReceiverThread
from tests.support.declared import API_VERSION, group
from tests.support.processes import Processes
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
RETRY = {"baseBackoff": "20ms", "maxBackoff": "100ms"}


@pytest.fixture
def receiver() -> Iterator[ReceiverThread]:
    made = ReceiverThread().start()
    yield made
    made.stop()


def callback(receiver: ReceiverThread, folder: Path, **spec: Any) -> dict[str, Any]:
    secret = folder / "callback.key"
    secret.write_text(SECRET)
    found = {
        "source": {"groupRef": "edge"},
        "url": receiver.url,
        "allowPlain": True,
        "retry": RETRY,
        "signing": {"keys": [{"id": "k", "secretFile": str(secret)}]},
        **spec,
    }
    return {"apiVersion": API_VERSION, "kind": "EventCallback", "metadata": {"name": "hook"}, "spec": found}


def start(processes: Processes, receiver: ReceiverThread, folder: Path, url: str | None, **spec: Any) -> NodeProcess:
    node = NodeProcess(processes, "a", database_url=url, EVENTD_CALLBACK_ALLOW="127.0.0.1")
    node.apply(group("a"), callback(receiver, folder, **spec))
    return node


def state(node: NodeProcess) -> dict[str, Any]:
    found: dict[str, Any] = node.ask("GET", "/callbacks/hook")
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("database", "format"), [("sqlite", "standard"), pytest.param("postgres", "batch", marks=pytest.mark.postgres)]
)
def test_everything_arrives_in_order_through_kills_and_lost_answers(
    processes: Processes,
    receiver: ReceiverThread,
    tmp_path: Path,
    chance: random.Random,
    request: pytest.FixtureRequest,
    format: str,
    database: str,
) -> None:
    url = None if database == "sqlite" else request.getfixturevalue("postgres_url")
    node = start(processes, receiver, tmp_path, url, format=format)
    fates = [chance.choice([204, 204, 204, 503, LOSE]) for _ in range(4096)]
    receiver.answer = lambda number: fates[number % len(fates)]
    names: list[str] = []
    for _ in range(5):
        for _ in range(chance.randint(3, 12)):
            names.append(f"e{len(names):03}")
            node.emit(names[-1])
        time.sleep(chance.random() * 0.1)  # before a request, in it, at its settling, or after it
        node.kill9()
        if chance.random() < 0.5:
            receiver.stop()
            receiver.start()
        node.start()
    receiver.answer = lambda _: 204
    wait_for(lambda: state(node)["position"] >= len(names), "the callback to catch up", seconds=30)
    assert receiver.first_seen() == names, "in order, nothing missing"
    assert [id for call in receiver.accepted for id in call.events if id not in names] == []
    bodies: dict[str, set[bytes]] = {}
    for call in receiver.calls:
        bodies.setdefault(call.id, set()).add(call.body)
        verify(call.headers, call.body, [SECRET])
    assert {len(found) for found in bodies.values()} == {1}, "the same id has the same bytes"
    again = [id for call in receiver.accepted for id in call.events]
    print(f"{len(names)} events, {len(receiver.calls)} requests, {len(again) - len(names)} repeated")  # noqa: T201
    assert state(node)["deadLetters"] == 0
    assert node.stop() == 0


def test_the_operator_sees_and_steers_a_callback(
    processes: Processes, receiver: ReceiverThread, tmp_path: Path
) -> None:
    node = start(processes, receiver, tmp_path, None)
    node.emit("e1", "e2", "e3")
    wait_for(lambda: state(node)["position"] == 3, "the events to be delivered")
    found = state(node)
    assert (found["state"], found["waitingEvents"], found["keys"]) == ("running", 0, [{"id": "k", "state": "active"}])
    assert found["recentAttempts"][0]["status"] == 204
    assert SECRET not in str(found)
    tested = node.ask("POST", "/callbacks/hook/test", {})
    assert (tested["delivered"], tested["status"], tested["keys"]) == (True, 204, ["k"])
    node.ask("POST", "/callbacks/hook/pause", {"by": "ann"})
    node.emit("e4")
    assert (state(node)["state"], state(node)["pausedBy"], state(node)["waitingEvents"]) == ("paused", "ann", 1)
    node.ask("POST", "/callbacks/hook/resume", {})
    wait_for(lambda: receiver.calls[-1].id == "e4", "the event that waited")
    assert node.ask("POST", "/callbacks/hook/resend", {"ids": ["e2"], "dryRun": True})["events"] == 1
    node.ask("POST", "/callbacks/hook/resend", {"ids": ["e2"]})
    wait_for(lambda: receiver.calls[-1].id == "e2", "the event to be sent again")
    assert receiver.calls[-1].headers["routerd-repair"] == "1"
    assert node.ask("POST", "/callbacks/hook/replay", {"fromSeq": 3})["events"] == 2
    wait_for(lambda: [call.id for call in receiver.calls[-2:]] == ["e3", "e4"], "the range to be sent again")
    moved = node.ask("POST", "/callbacks/hook/reset", {})
    assert (moved["callback"], moved["from"], moved["to"]) == ("hook", 4, 0)
    wait_for(lambda: [call.id for call in receiver.calls[-4:]] == ["e1", "e2", "e3", "e4"], "everything once more")
    node.apply(group("a"), prune=True)
    assert node.ask("GET", "/callbacks")["callbacks"] == []
    assert node.stop() == 0


def test_dead_letters_are_listed_retried_and_dropped(
    processes: Processes, receiver: ReceiverThread, tmp_path: Path
) -> None:
    node = start(processes, receiver, tmp_path, None)
    receiver.refused = {"bad", "worse"}
    node.emit("bad", "worse", "e3")
    wait_for(lambda: state(node)["deadLetters"] == 2, "both to be given up")
    letters = node.ask("GET", "/callbacks/hook/dead-letters")["deadLetters"]
    assert [(one["eventId"], one["reason"]) for one in letters] == [("bad", "http_400"), ("worse", "http_400")]
    receiver.refused = {"worse"}
    done = node.ask("POST", "/callbacks/hook/dead-letters/retry", {"ids": [letters[0]["id"]]})
    assert done == {"retried": 1, "kept": []}
    wait_for(lambda: receiver.accepted[-1].id == "bad", "the letter to be delivered")
    assert node.ask("POST", "/callbacks/hook/dead-letters/drop", {"all": True}) == {"dropped": 1}
    assert state(node)["deadLetters"] == 0
    assert node.stop() == 0
