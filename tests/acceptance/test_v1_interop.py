"""Nodes of the older protocol as peers, in both directions, observed on the wire."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.declared import group, peer
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.running import SECRET, NodeProcess
from tests.support.v1_node import BODY_LIMIT, Reply, V1Receiver, V1Sender, body_of, signature
from tests.support.waiting import wait_for

KEY = SECRET.encode()


@pytest.fixture
def node(processes: Processes) -> NodeProcess:
    """A node that listens and has no peers."""
    running = NodeProcess(processes, "new")
    running.join()
    return running


@pytest.fixture
def old() -> Iterator[V1Receiver]:
    """A receiver that speaks v1 only."""
    with V1Receiver(free_port(), KEY) as receiver:
        yield receiver


def _text(reply: Reply) -> tuple[int, bytes, str | None]:
    return reply.status, reply.body, reply.header("Content-Type")


def test_every_answer_is_the_one_a_v1_sender_knows(node: NodeProcess) -> None:
    sender = V1Sender(node.port, KEY)
    plain = "text/plain; charset=utf-8"
    stale = int(time.time()) - 4000
    body = body_of("e1")

    def status() -> dict[str, Any]:
        told: dict[str, Any] = json.loads(sender.status().body)
        return told

    # The checks in their order: each request is wrong in this way and in every later one.
    cases = [
        (sender.post(b"{", method="GET", timestamp="x", sign="x"), (405, b"", None)),
        (sender.post(b"{", method="PUT", timestamp="x", sign="x"), (405, b"", None)),
        (sender.post(b"{", omit=("X-Routerd-Timestamp",), sign="x"), (400, b"bad timestamp\n", plain)),
        (sender.post(b"{", timestamp="1e9", sign="x"), (400, b"bad timestamp\n", plain)),
        (sender.post(b"{", timestamp="", sign="x"), (400, b"bad timestamp\n", plain)),
        (sender.post(b"{", timestamp=stale, sign="x"), (403, b"stale timestamp\n", plain)),
        (sender.post(b"{", sign="x"), (401, b"bad signature\n", plain)),
        (sender.post(b"{", omit=("X-Routerd-Signature",)), (401, b"bad signature\n", plain)),
        (sender.post(b"{"), (400, b"bad event body\n", plain)),
        (sender.post(b'{"id":1}'), (400, b"bad event body\n", plain)),
        (sender.post(body + b"x"), (400, b"bad event body\n", plain)),
        (sender.post(b"null"), (400, b"invalid event: federation event id is required\n", plain)),
        (
            sender.post(b'{"id":" x "}'),
            (400, b"invalid event: federation event group is required\n", plain),
        ),
        (
            sender.post(b'{"id":"x","group":"edge"}'),
            (400, b"invalid event: federation event type is required\n", plain),
        ),
        (sender.post(body), (200, b'{"accepted":true,"duplicate":false,"id":"e1"}\n', "application/json")),
        (sender.post(body), (200, b'{"accepted":true,"duplicate":true,"id":"e1"}\n', "application/json")),
        (sender.post(body, path="/v1/other"), (404, b"404 page not found\n", plain)),
        (sender.post(body, path="/v1/events/"), (404, b"404 page not found\n", plain)),
        (sender.post(body, path="/"), (404, b"404 page not found\n", plain)),
    ]
    for number, (reply, expected) in enumerate(cases):
        shown = _text(reply)
        assert shown[:2] == expected[:2], f"case {number}"
        assert shown[2] == expected[2] or expected[2] is None, f"case {number}"
        assert reply.header("Content-Length") == str(len(expected[1])), f"case {number}"
    assert cases[0][0].header("Allow") is None
    assert status() == {
        "node": "new",
        "group": "edge",
        "received": 1,
        "duplicate": 1,
        "rejected": 12,
        "storedEvents": 1,
        "replayWindowSeconds": 300,
    }
    assert sender.status().body.endswith(b"}\n")
    assert sender.post(b"", method="DELETE", path="/v1/status").status == 200


def test_the_signature_is_checked_as_v1_does(node: NodeProcess) -> None:
    sender = V1Sender(node.port, KEY)
    now = int(time.time())
    body = body_of("e1")
    right = signature(KEY, now, body)
    assert sender.post(body, timestamp=now, sign=right.upper()).status == 401
    assert sender.post(body.replace(b"e1", b"e2"), timestamp=now, sign=right).status == 401
    assert sender.post(body, timestamp=f"+{now}", sign=right).status == 200
    assert sender.post(body_of("e2"), timestamp=f"000{now}", sign=signature(KEY, now, body_of("e2"))).status == 200
    assert V1Sender(node.port, b"another").post(body_of("e3")).status == 401
    for skew in (-299, -240, 240, 299):
        assert sender.post(body_of(f"skew{skew}"), skew=skew).status == 200
    for skew in (-302, 302):
        assert sender.post(body_of(f"skew{skew}"), skew=skew).status == 403
    node.apply(group("new", port=node.port, secret=node.secret, replayWindow="1500ms"))
    wait_for(lambda: json.loads(sender.status().body)["replayWindowSeconds"] == 1, "the new window")
    assert sender.post(body_of("close")).status == 200
    assert sender.post(body_of("far"), skew=3).status == 403


def test_what_a_v1_sender_says_is_understood_as_it_means_it(node: NodeProcess) -> None:
    sender = V1Sender(node.port, KEY)
    lenient = (
        b'{"ID":" spaced ","Group":"edge","TYPE":"t","unknown":[1,2],"type":"u","SourceNode":null,"expiresAt":null}'
    )
    assert sender.post(lenient).body == b'{"accepted":true,"duplicate":false,"id":"spaced"}\n'
    assert sender.post(body_of("zero", payload={"a": "é<&>"}, subject="10.88.60.9/32")).status == 200
    events = {event["id"]: event for event in node.ask("GET", "/groups/edge/events")["events"]}
    assert events["spaced"]["type"] == "u"
    assert events["spaced"]["dedupeKey"] == "spaced"
    assert events["spaced"]["sourceNode"] == ""
    zero = events["zero"]
    assert (zero["expiresAt"], zero["payload"], zero["observedAt"]) == (
        "0001-01-01T00:00:00Z",
        {"a": "é<&>"},
        "2026-05-30T10:13:20Z",
    )
    assert sender.post(body_of("<&>")).body == b'{"accepted":true,"duplicate":false,"id":"\\u003c\\u0026\\u003e"}\n'


def test_a_refresh_is_taken_and_another_content_under_the_id_is_not(node: NodeProcess) -> None:
    sender = V1Sender(node.port, KEY)

    def expiry() -> str:
        [event] = node.ask("GET", "/groups/edge/events", includeExpired="true")["events"]
        return str(event["expiresAt"])

    def again(**fields: Any) -> bytes:
        return sender.post(body_of("e1", **fields)).body

    duplicate = b'{"accepted":true,"duplicate":true,"id":"e1"}\n'
    assert b'"duplicate":false' in again(expiresAt="2027-01-01T00:00:00Z")
    assert again(expiresAt="2028-01-01T00:00:00Z", observedAt="2026-06-01T00:00:00Z") == duplicate
    assert expiry() == "2028-01-01T00:00:00Z"
    assert again(expiresAt="2027-06-01T00:00:00Z") == duplicate
    assert expiry() == "2028-01-01T00:00:00Z"  # never shorter
    assert again(subject="changed") == duplicate
    assert again(sourceNode="other", expiresAt="2029-01-01T00:00:00Z") == duplicate
    assert expiry() == "2028-01-01T00:00:00Z"
    assert again() == duplicate
    assert expiry() == "0001-01-01T00:00:00Z"  # never is later than any
    assert node.counts() == (1, 3)
    metrics = node.process.get("/metrics")[1].decode()
    assert any("id_conflict" in line and line.endswith(" 2.0") for line in metrics.splitlines())


def test_what_is_not_for_us_is_refused_in_words_v1_knows(node: NodeProcess) -> None:
    sender = V1Sender(node.port, KEY)
    foreign = sender.post(body_of("e1", group="other"))
    assert (foreign.status, foreign.body) == (400, b"invalid event: federation event group is not edge\n")
    ours = sender.post(body_of("e1", sourceNode="new"))
    assert (ours.status, ours.body[:15]) == (400, b"invalid event: ")
    large = sender.post(body_of("e1", payload={"k": "v" * BODY_LIMIT}))
    assert (large.status, large.body) == (401, b"bad signature\n")
    assert node.ids() == []


def test_an_event_goes_out_exactly_as_an_old_node_expects_it(node: NodeProcess, old: V1Receiver) -> None:
    node.apply(peer("old", old.port, protocol="v1"))
    node.emit("e1", subject="10.88.60.9/32", payload={"z": "<&>", "a": "é"}, observedAt="2026-05-30T10:13:20Z")
    wait_for(lambda: old.events, "the event to arrive")
    [seen] = old.seen
    assert seen.line == "POST /v1/events HTTP/1.1"
    assert seen.header("X-Routerd-Timestamp") is not None
    told = seen.header("X-Routerd-Timestamp") or ""
    assert abs(int(told) - time.time()) < 5
    assert told == str(int(told))
    assert seen.header("X-Routerd-Signature") == signature(KEY, int(told), seen.body)
    assert seen.header("Content-Type") == "application/json"
    assert seen.header("Content-Length") == str(len(seen.body))
    assert seen.header("Transfer-Encoding") is None
    assert seen.header("Expect") is None
    assert seen.header("Host") == f"127.0.0.1:{old.port}"
    assert json.loads(seen.body) == {
        "id": "e1",
        "group": "edge",
        "sourceNode": "new",
        "type": "t",
        "subject": "10.88.60.9/32",
        "dedupeKey": "e1",
        "payload": {"a": "é", "z": "<&>"},
        "observedAt": "2026-05-30T10:13:20Z",
        "expiresAt": "0001-01-01T00:00:00Z",
    }
    assert list(json.loads(seen.body))[-2:] == ["observedAt", "expiresAt"]


def test_events_go_out_in_order_one_by_one_and_a_failure_settles_what_was_taken(
    node: NodeProcess, old: V1Receiver
) -> None:
    ids = [f"e{number:03}" for number in range(60)]
    node.emit(*ids)
    # the 31st is answered with a 500, its second try with a 503
    old.fail = [0] * 30 + [500, 503]
    node.apply(peer("old", old.port, protocol="v1"))
    node.wait_sent("old")
    assert old.order == ids  # nothing twice: the failed page was settled up to its last 200
    assert [seen.status for seen in old.seen].count(500) == 1
    rows = {row["eventId"]: row for row in _deliveries(node)}
    assert {row["status"] for row in rows.values()} == {"delivered"}
    assert node.link("old")["protocol"] == "v1"


def _deliveries(node: NodeProcess) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = node.ask("GET", "/groups/edge/deliveries", limit=1000)["deliveries"]
    return rows


def test_auto_takes_only_404_and_405_for_an_old_node_and_remembers_what_worked(node: NodeProcess) -> None:
    ids = [f"e{number:03}" for number in range(100)]
    node.emit(*ids)
    with contextlib.ExitStack() as stack:
        peers = {
            status: stack.enter_context(V1Receiver(free_port(), KEY, unknown=status))
            for status in (404, 405, 400, 401, 403, 500, 503)
        }
        node.apply(*(peer(f"answers-{status}", old.port) for status, old in peers.items()))
        for status, old in peers.items():
            name = f"answers-{status}"
            if status in (404, 405):
                node.wait_sent(name)
                assert old.order == ids
                assert set(old.paths()) <= {"/v2/link", "/v2/history", "/v1/events"}
                assert node.link(name)["protocol"] == "v1"
            else:
                node.wait_link(name, "backing-off" if status >= 500 else "blocked", f"http_{status}")
                assert "/v1/events" not in old.paths()
    delivered = [row for row in _deliveries(node) if row["status"] == "delivered"]
    assert len(delivered) == 200
    assert {row["batchId"] for row in delivered} == {""}


def test_what_an_old_node_refuses_is_parked_and_what_it_never_can_take_too(
    processes: Processes, old: V1Receiver
) -> None:
    node = NodeProcess(processes, "new")
    node.join(limits={"maxEventBytes": "2MiB"})
    node.emit("e1", "bad", "e2")
    node.emit("large", payload={"k": "v" * BODY_LIMIT})
    node.emit("e3")
    old.fail = [0, (400, b"invalid event: federation event type is required\n")]
    node.apply(peer("old", old.port, protocol="v1"))
    node.wait_sent("old")
    assert old.order == ["e1", "e2", "e3"]
    assert sorted(node.letters()) == [("bad", "old", "refused"), ("large", "old", "too_large_for_v1")]
    statuses = {row["eventId"]: row["status"] for row in _deliveries(node)}
    assert statuses == {"e1": "delivered", "bad": "refused", "e2": "delivered", "large": "refused", "e3": "delivered"}


def test_an_event_that_cannot_be_sent_over_v1_proves_nothing_about_the_link(node: NodeProcess) -> None:
    node.apply(group("new", port=node.port, secret=node.secret, limits={"maxEventBytes": "2MiB"}))
    node.apply(peer("old", free_port(), protocol="v1"))
    node.emit("large", payload={"k": "v" * BODY_LIMIT})
    wait_for(lambda: node.letters(), "the dead letter")
    assert not node.link("old").get("lastSuccessAt")
    metrics = node.process.get("/metrics")[1].decode()
    assert "outbox_delivery_attempts_total{" not in metrics, "nothing was sent"
    assert 'outbox_delivery_total{group="edge",peer="old",status="refused"} 1.0' in metrics
    assert [row["status"] for row in _deliveries(node)] == ["refused"]


def test_what_an_old_node_says_of_the_link_blocks_it_and_skips_nothing(node: NodeProcess) -> None:
    node.emit("e1", "e2")
    with contextlib.ExitStack() as stack:
        peers = {}
        for status, words in ((400, "bad timestamp"), (401, "bad signature"), (403, "stale")):
            old = peers[status, words] = stack.enter_context(V1Receiver(free_port(), KEY))
            old.fail = [(status, f"{words}\n".encode())]
        retry = {"baseBackoff": "1s", "maxBackoff": "2s"}
        node.apply(*(peer(f"says-{told[0]}", old.port, protocol="v1", retry=retry) for told, old in peers.items()))
        for status, words in peers:
            link = node.wait_link(f"says-{status}", "blocked", f"http_{status}")
            assert words in link["lastError"]
        for (status, _), old in peers.items():
            node.wait_sent(f"says-{status}")  # the probe after the cap
            assert old.order == ["e1", "e2"]
    assert node.letters() == []


def test_old_and_new_nodes_in_one_group(processes: Processes, old: V1Receiver) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b)
    a.apply(peer("old", old.port))
    b.join(a)
    b.apply(peer("old", old.port))
    sender_a, sender_b = V1Sender(a.port, KEY), V1Sender(b.port, KEY)
    for number in range(8):  # an old node posts its own events to every peer, and so does this one
        for sender in (sender_a, sender_b):
            assert sender.post(body_of(f"old-{number}")).status == 200
        a.emit(f"a-{number}")
        b.emit(f"b-{number}")
    everything = {f"{name}-{number}" for name in ("old", "a", "b") for number in range(8)}
    a.wait_holds(everything)
    b.wait_holds(everything)
    for node, other in ((a, "b"), (b, "a")):
        node.wait_sent(other, "old")
        assert node.counts() == (24, 24)
    assert sorted(old.order) == sorted(event for event in everything if not event.startswith("old"))


def test_a_refresh_goes_to_an_old_node_as_a_second_post(node: NodeProcess, old: V1Receiver) -> None:
    node.apply(peer("old", old.port, protocol="v1"))
    observed = "2026-05-30T10:13:20Z"
    node.emit("e1", observedAt=observed, expiresAt="2099-01-01T00:00:00Z")
    node.wait_sent("old")
    node.emit("e1", observedAt=observed, expiresAt="2099-01-02T00:00:00Z")
    wait_for(lambda: len(old.order) == 2, "the refresh to arrive")
    assert old.events["e1"]["expiresAt"] == "2099-01-02T00:00:00Z"
