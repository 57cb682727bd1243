"""The Routemaster surface and its subscribers, as their clients see them: over HTTP, with real processes and TLS."""

from __future__ import annotations

import base64
import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventd.client.webhooks import verify
from federation.webhooks import format_secret
from tests.support.bus import ROOT, Bus
from tests.support.callback_program import LOSE, ReceiverThread
from tests.support.certificates import server_context
from tests.support.processes import Processes
from tests.support.waiting import wait_for


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceiverThread]:
    context = server_context(tmp_path / "tls")
    made = ReceiverThread(context).start()
    yield made
    made.stop()


def test_a_subscriber_gets_exactly_what_receivers_insist_on(processes: Processes, receiver: ReceiverThread) -> None:
    bus = Bus(processes)
    shop, billing = bus.token("shop"), bus.token("billing")
    bus.publish(shop, "orders", "https://shop.example/0")
    bus.subscribe(billing, "orders", receiver=receiver)
    bus.publish(shop, "orders", "https://shop.example/1", timestamp=1795173885369, data={"a": 1.50})
    wait_for(lambda: receiver.accepted, "the event")
    (call,) = receiver.accepted
    assert call.body == (
        b'[{"topic":"orders","type":"create","url":"https://shop.example/1","t":1795173885369,"data":{"a":1.5}}]'
    )
    assert call.headers["authorization"] == "Basic " + base64.b64encode(b"secret-uuid:x").decode()
    assert call.headers["content-type"] == "application/json"
    wait_for(lambda: bus.subscriber(billing)["events"]["sent"] == 1, "the count")
    assert bus.subscriber(billing)["events"] == {"sent": 1, "queued": 0, "oldest": None}
    listed = bus.node.ask("GET", "/callbacks")["callbacks"]
    assert [(one["origin"], one["state"]) for one in listed] == [("routemaster", "running")]
    assert "secret-uuid" not in str(listed)
    assert "secret-uuid" not in bus.node.process.log_path.read_text()
    assert bus.node.stop() == 0


def test_a_subscriber_is_signed_once_it_has_a_key(
    processes: Processes, receiver: ReceiverThread, tmp_path: Path
) -> None:
    bus = Bus(processes)
    shop, billing = bus.token("shop"), bus.token("billing")
    bus.subscribe(billing, "orders", receiver=receiver)
    files = {id: tmp_path / f"{id}.key" for id in ("new", "old")}
    secrets = {id: format_secret(id.encode().ljust(32, b"-")) for id in files}
    for id, file in files.items():
        file.write_text(secrets[id])
        file.chmod(0o600)
    keys = [f"{id}={file}" for id, file in files.items()]
    bus.node.ask("POST", "/routemaster/subscribers/billing/keys", {"keys": keys})
    bus.publish(shop, "orders", "https://x/1")
    wait_for(lambda: receiver.accepted, "the event")
    (call,) = receiver.accepted
    assert call.headers["authorization"] == "Basic " + base64.b64encode(b"secret-uuid:x").decode()
    for secret in secrets.values():
        verify(call.headers, call.body, [secret])
    bus.node.ask("POST", "/routemaster/subscribers/billing/keys", {"keys": []})
    bus.publish(shop, "orders", "https://x/2")
    wait_for(lambda: len(receiver.accepted) == 2, "the next event")
    assert "webhook-signature" not in receiver.accepted[1].headers
    assert bus.node.stop() == 0


def test_a_test_message_has_what_the_subscriber_insists_on(processes: Processes, receiver: ReceiverThread) -> None:
    bus = Bus(processes, EVENTD_ROUTEMASTER_TIMEOUT="7s")
    billing = bus.token("billing")
    bus.subscribe(billing, "orders", receiver=receiver)
    (name,) = [one["callback"] for one in bus.node.ask("GET", "/callbacks")["callbacks"]]
    path = f"/callbacks/{name.replace('/', '%2F')}"
    tested = bus.node.ask("POST", f"{path}/test", {})
    assert (tested["delivered"], tested["status"]) == (True, 204)
    (call,) = receiver.accepted
    assert call.headers["authorization"] == "Basic " + base64.b64encode(b"secret-uuid:x").decode()
    assert [(one["topic"], one["type"]) for one in json.loads(call.body)] == [("test", "noop")]
    assert bus.node.ask("GET", path)["limits"]["timeoutSeconds"] == 7
    assert "secret-uuid" not in str(tested)
    assert bus.node.stop() == 0
    # Without a node, the command sends it by its own settings.
    env = bus.node.process.env
    done = processes.control("callback", "test", name, env={key: env[key] for key in env if key.startswith("EVENTD_")})
    assert done.returncode == 0, done.stderr
    assert len(receiver.accepted) == 2


def test_changes_count_at_once_and_left_topics_are_still_delivered(
    processes: Processes, receiver: ReceiverThread
) -> None:
    bus = Bus(processes)
    shop, billing = bus.token("shop"), bus.token("billing")
    receiver.answer = lambda _: 503
    bus.subscribe(billing, "orders", receiver=receiver)
    bus.publish(shop, "orders", "https://x/1")
    bus.publish(shop, "users", "https://x/2")
    wait_for(lambda: receiver.calls, "an attempt")
    bus.subscribe(billing, "users", receiver=receiver)  # `orders` is left, with an event that waits
    bus.publish(shop, "orders", "https://x/3")
    bus.publish(shop, "users", "https://x/4")
    receiver.answer = lambda _: 204
    wait_for(lambda: bus.subscriber(billing)["events"]["queued"] == 0, "both to be delivered")
    assert [url for call in receiver.accepted for url in call.events] == ["https://x/1", "https://x/4"]
    assert bus.ask("DELETE", "/subscriber", token=billing)[0] == 204
    bus.publish(shop, "users", "https://x/5")
    wait_for(lambda: bus.node.ask("GET", "/callbacks")["callbacks"] == [], "the callback to end")
    assert bus.node.stop() == 0


def test_what_a_subscriber_selects_is_the_same_after_restarts_and_for_a_topic_that_is_made_again(
    processes: Processes, receiver: ReceiverThread
) -> None:
    bus = Bus(processes)
    shop, billing = bus.token("shop"), bus.token("billing")
    receiver.answer = lambda _: 503

    def restart() -> None:
        bus.node.kill9()
        bus.node.start()

    bus.publish(shop, "orders", "https://x/before")
    bus.subscribe(billing, "orders", "old", receiver=receiver)
    bus.publish(shop, "orders", "https://x/1")
    bus.publish(shop, "old", "https://x/2")
    restart()
    bus.subscribe(billing, "users", "old", receiver=receiver)  # `orders` is left
    bus.publish(shop, "orders", "https://x/left")
    bus.publish(shop, "users", "https://x/3")
    restart()
    assert bus.ask("DELETE", "/topics/old", token=shop)[0] == 204
    assert bus.subscriber(billing)["topics"] == ["users"]
    bus.publish(shop, "old", "https://x/another")  # a new topic of the name, without subscribers
    restart()
    bus.subscribe(billing, "users", "old", "orders", receiver=receiver, uuid="later", max=2)
    bus.publish(shop, "old", "https://x/4")
    bus.publish(shop, "orders", "https://x/5")
    assert bus.subscriber(billing)["events"]["queued"] == 5
    restart()
    (topic,) = [one for one in bus.topics(shop) if one["name"] == "orders"]
    assert topic["events"] == 4
    receiver.answer = lambda _: 204
    wait_for(lambda: bus.subscriber(billing)["events"]["queued"] == 0, "everything to be delivered")
    assert [url for call in receiver.accepted for url in call.events] == [f"https://x/{n}" for n in (1, 2, 3, 4, 5)]
    users = {call.headers["authorization"] for call in receiver.accepted}
    assert users == {"Basic " + base64.b64encode(b"later:x").decode()}, "also of events that waited before it was set"
    assert all(len(call.events) <= 2 for call in receiver.accepted)
    assert bus.node.stop() == 0


def test_a_key_that_cannot_be_read_holds_its_subscriber_alone(
    processes: Processes, receiver: ReceiverThread, tmp_path: Path
) -> None:
    bus = Bus(processes)
    shop, billing, other = bus.token("shop"), bus.token("billing"), bus.token("other")
    key = tmp_path / "billing.key"
    key.write_text(format_secret(b"k" * 32))
    key.chmod(0o600)
    for token in (billing, other):
        bus.subscribe(token, "orders", receiver=receiver, uuid=token)
    bus.node.ask("POST", "/routemaster/subscribers/billing/keys", {"keys": [f"k={key}"]})
    key.unlink()
    bus.node.process.send(signal.SIGHUP)
    wait_for(lambda: "callback secret unreadable" in bus.node.process.log(), "the reload")
    bus.publish(shop, "orders", "https://x/1")
    wait_for(lambda: [one["reason"] for one in bus.listed(billing)] == ["secret_unreadable"], "the reason")
    (state,) = bus.listed(billing)
    assert (state["state"], str(key) in state["lastError"]) == ("failed", True)
    wait_for(lambda: bus.subscriber(other)["events"]["sent"] == 1, "the other one")
    assert [one["state"] for one in bus.listed(other)] == ["running"]
    assert len(receiver.calls) == 1, "nothing is sent unsigned"
    secret = format_secret(b"n" * 32)
    key.write_text(secret)
    key.chmod(0o600)
    bus.node.process.send(signal.SIGHUP)
    wait_for(lambda: bus.subscriber(billing)["events"]["sent"] == 1, "the subscriber to be served")
    verify(receiver.calls[-1].headers, receiver.calls[-1].body, [secret])
    assert bus.node.stop() == 0


@pytest.mark.timeout(120)
def test_nothing_is_lost_through_kills(processes: Processes, receiver: ReceiverThread, chance: random.Random) -> None:
    bus = Bus(processes)
    shop, billing = bus.token("shop"), bus.token("billing")
    bus.subscribe(billing, "orders", receiver=receiver, max=3)
    fates = [chance.choice([204, 204, 500, LOSE]) for _ in range(1024)]
    receiver.answer = lambda number: fates[number % len(fates)]
    urls: list[str] = []
    for _ in range(4):
        for _ in range(chance.randint(2, 9)):
            urls.append(f"https://x/{len(urls)}")
            bus.publish(shop, "orders", urls[-1])
        time.sleep(chance.random() * 0.1)
        bus.node.kill9()
        bus.node.start()
    receiver.answer = lambda _: 204
    wait_for(lambda: bus.subscriber(billing)["events"]["queued"] == 0, "everything to be delivered", seconds=30)
    assert receiver.first_seen() == urls
    assert all(len(call.events) <= 3 for call in receiver.calls)
    bodies: dict[str, set[bytes]] = {}
    for call in receiver.calls:
        bodies.setdefault(call.id, set()).add(call.body)
    assert {len(found) for found in bodies.values()} == {1}
    assert bus.node.stop() == 0


def test_a_subscriber_that_comes_back_is_served_at_once(processes: Processes, receiver: ReceiverThread) -> None:
    """Its endpoint is blocked until the next attempt in a minute, which a new subscription does not wait for."""
    bus = Bus(processes, EVENTD_ROUTEMASTER_MAX_BACKOFF="60s")
    shop, billing = bus.token("shop"), bus.token("billing")
    receiver.answer = lambda _: 401
    bus.subscribe(billing, "orders", receiver=receiver)
    for number in range(20):
        bus.publish(shop, "orders", f"https://x/{number}")
    wait_for(lambda: [one["state"] for one in bus.listed(billing)] == ["blocked"], "the refusal")
    asked, begun = len(receiver.calls), time.monotonic()
    receiver.answer = lambda _: 204
    bus.publish(shop, "orders", "https://x/20")  # does not end the wait
    bus.subscribe(billing, "orders", receiver=receiver)
    wait_for(lambda: bus.subscriber(billing)["events"]["queued"] == 0, "the full flow")
    assert time.monotonic() - begun < 20, "the wait of a minute has ended"
    assert asked == 1
    assert receiver.first_seen() == [f"https://x/{number}" for number in range(21)]
    assert bus.node.stop() == 0


def test_a_due_backlog_slows_the_scaling_probe(processes: Processes, receiver: ReceiverThread) -> None:
    bus = Bus(processes, EVENTD_ROUTEMASTER_SCALING_THRESHOLD="10", EVENTD_ROUTEMASTER_MAX_BACKOFF="200ms")
    shop, billing = bus.token("shop"), bus.token("billing")
    receiver.answer = lambda _: 503
    bus.subscribe(billing, "orders", receiver=receiver, max=1)

    def spent() -> float:
        begun = time.monotonic()
        assert bus.ask("GET", "/pulse/scaling", token=ROOT)[0] == 204
        return time.monotonic() - begun

    for number in range(9):
        bus.publish(shop, "orders", f"https://x/{number}")
    assert spent() < 0.9
    bus.publish(shop, "orders", "https://x/9")
    assert spent() >= 1.0
    receiver.answer = lambda _: 204
    wait_for(lambda: bus.subscriber(billing)["events"]["queued"] == 0, "the backlog to be delivered")
    assert spent() < 0.9
    assert bus.node.stop() == 0


def test_a_callback_on_the_inside_is_refused(processes: Processes, receiver: ReceiverThread) -> None:
    bus = Bus(processes, EVENTD_CALLBACK_ALLOW="")
    billing = bus.token("billing")
    status, text = bus.ask("POST", "/subscription", {"topics": [], "callback": receiver.url}, token=billing)
    assert status == 400
    assert b"127.0.0.1" in text
    assert bus.node.stop() == 0
