"""What a node refuses, end to end, each with its exact reason; and the effect of a refusal on the sender's link."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from eventd.api.peers import listener
from eventd.egress.transport.transport import Transport
from eventd.ingress import reorder_buffer
from eventd.node import membership
from eventd.testing import ManualClock, until
from federation.compare import StateQuery, encode_question
from federation.event import new_event_id
from federation.keys import Key, KeyRing
from federation.ranges import Range
from federation.wire import MARK_QUERY, REOPEN_QUERY, REPAIR_QUERY
from tests.integration.conftest import MakeSites
from tests.support.declared import group, peer
from tests.support.flaky_peer import Deed, FixedResponse, FlakyPeer, Forward
from tests.support.ports import free_port
from tests.support.sites import Site
from tests.support.v1_node import Reply, read_reply
from tests.support.v2_sender import SECRET, V2Sender, line

_STATE = encode_question(StateQuery())


@pytest.fixture(autouse=True)
def _lingering_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a refused body is read for half a second, not two: on loopback all of it comes at once."""
    monkeypatch.setattr(membership, "LINGER_SECONDS", 0.5)


async def _one(sites: MakeSites, name: str = "b", **spec: Any) -> tuple[Site, V2Sender]:
    (node,) = sites(name)
    await node.start()
    await node.join(**spec)
    return node, V2Sender(node.port, to=name)


async def _send(sender: V2Sender, request: bytes, *, port: int = 0) -> Reply:
    return await asyncio.to_thread(sender.send, request, port=port)


def _code(reply: Reply) -> tuple[int, str]:
    return reply.status, json.loads(reply.body)["error"]["code"]


def _refused(reply: Reply) -> list[tuple[int, str, str]]:
    assert reply.status == 200, reply.body
    return [(one["position"], one["id"], one["reason"]) for one in json.loads(reply.body)["refused"]]


async def test_single_lines_are_refused_with_their_reason_and_the_others_stored(sites: MakeSites) -> None:
    b, sender = await _one(sites, limits={"maxEventBytes": "2KiB"})
    reply = await _send(
        sender,
        sender.batch(
            line("good"),
            line("foreign", group="other"),
            line("ours", node="b"),
            line("large", subject="s" * 400, payload={"k": "v" * 2000}),  # type: ignore[arg-type]
            line("loop"),
            line("spaced").replace(",", ", ", 1),
            line("good too"),
            paths=["", "", "", "", "b", "", "y"],
        ),
    )
    assert _refused(reply) == [
        (2, "foreign", "wrong_group"),
        (3, "ours", "own_source"),
        (4, "large", "too_large"),
        (5, "loop", "loop"),
        (6, "spaced", "not_canonical"),
    ]
    receipt = json.loads(reply.body)
    assert (receipt["accepted"], receipt["duplicates"], receipt["upto"]) == (2, 0, 7)
    assert await b.ids() == ["good", "good too"]


async def test_a_key_speaks_only_for_the_sources_it_may(sites: MakeSites) -> None:
    b, _ = await _one(sites)
    await b.apply(_ring(b, {"id": "kx", "owner": "x"}, {"id": "ky", "owner": "y", "speaksFor": ["y", "z"]}))
    from_x = V2Sender(b.port, key=Key.hmac("kx", SECRET, owner="x"))
    reply = await _send(from_x, from_x.batch(line("own", node="x"), line("of-z", node="z")))
    assert _refused(reply) == [(2, "of-z", "source_not_allowed")]
    from_y = V2Sender(b.port, node="y", key=Key.hmac("ky", SECRET, owner="y"))
    reply = await _send(from_y, from_y.batch(line("of-z", node="z"), line("of-x", node="x")))
    assert _refused(reply) == [(2, "of-x", "source_not_allowed")]
    as_x = V2Sender(b.port, node="x", key=Key.hmac("ky", SECRET, owner="y"))
    assert _code(await _send(as_x, as_x.batch(line("forged")))) == (403, "wrong_sender")
    assert await b.ids() == ["own", "of-z"]


def _ring(node: Site, *keys: dict[str, Any]) -> dict[str, Any]:
    whole = [{"secretFile": str(node.secret), **key} for key in keys]
    return group(node.name, port=node.port, secret=node.secret, auth={"keys": whole})


async def test_a_captured_request_has_no_second_effect_here_and_none_elsewhere(sites: MakeSites) -> None:
    b, sender = await _one(sites)
    c, d = sites("c", "d")
    for other in (c, d):
        await other.start()
    await c.join()
    await d.apply(group("b", port=d.port, secret=d.secret, name="lab"))  # a b as well, in another group
    captured = sender.batch(line("one"))
    assert (await _send(sender, captured)).status == 200
    rejected = b.running.groups["edge"].ingress.counter.counts.rejected
    assert _code(await _send(sender, captured)) == (409, "replayed")
    assert b.running.groups["edge"].ingress.counter.counts.rejected == rejected + 1
    assert _code(await _send(sender, captured, port=c.port)) == (403, "wrong_audience")
    assert _code(await _send(sender, captured, port=d.port)) == (403, "wrong_group")
    await b.stop()
    await b.start()
    assert _code(await _send(sender, captured)) == (409, "replayed")
    assert await b.ids() == ["one"]
    assert await c.ids() == []
    assert await d.ids("lab") == []


@pytest.mark.parametrize("kind", ["batch", "query", "question"])
async def test_what_was_seen_before_has_no_effect_at_all_also_after_a_restart(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It does not wake an idle link, makes no connection trusted, and counts for no sender."""
    b, sender = await _one(sites)
    make = {"batch": lambda: sender.batch(line("e1")), "query": sender.query, "question": lambda: sender.ask(_STATE)}
    captured = make[kind]()
    assert (await _send(sender, captured)).status == 200

    for restarted in (False, True):
        if restarted:
            await b.stop()
            await b.start()
        heard: list[str] = []
        membership_of_b = b.running.groups["edge"]
        monkeypatch.setattr(membership_of_b, "wake", heard.append)
        monkeypatch.setattr(membership_of_b, "reopen", heard.append)
        for _ in range(3):
            assert _code(await _send(sender, captured)) == (409, "replayed")
        assert heard == []
        assert membership_of_b.ingress.mark_queries._asked.keys() == (
            {"x"} if kind == "query" and not restarted else set()
        )
        assert (await _send(sender, make[kind]())).status == 200  # a new one has its effects
        assert set(heard) == {"x"}


async def test_a_query_of_a_node_that_was_not_started_wakes_a_link_and_does_not_reopen_it(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    b, sender = await _one(sites)
    heard: list[str] = []
    monkeypatch.setattr(b.running.groups["edge"], "wake", lambda _node: heard.append("wake"))
    monkeypatch.setattr(b.running.groups["edge"], "reopen", lambda _node: heard.append("reopen"))
    for body in (REOPEN_QUERY, REPAIR_QUERY, b'{"later": 1, "start": false}'):
        assert (await _send(sender, sender.query(body))).status == 200
    assert heard == ["wake"] * 3
    for body in (MARK_QUERY, b'{"later":1}', b"", b"[", b'{"start":"no"}'):  # also of an earlier or a later program
        assert (await _send(sender, sender.query(body))).status == 200
    assert heard == ["wake"] * 3 + ["wake", "reopen"] * 5


async def test_a_captured_query_does_not_let_a_range_begin_in_the_middle(sites: MakeSites) -> None:
    """After a restart, a sender that has not asked where it stands takes us to have what came before."""
    b, sender = await _one(sites)
    captured = sender.query()
    assert (await _send(sender, captured)).status == 200
    await b.stop()
    await b.start()
    assert _code(await _send(sender, captured)) == (409, "replayed")
    sender.position = 1000
    assert _code(await _send(sender, sender.batch(line("late")))) == (409, "range_ahead")
    assert await b.ids() == []


async def test_a_captured_query_opens_no_gap_in_a_database_that_was_put_back(sites: MakeSites) -> None:
    """The older copy has forgotten the nonces, and the mark: both captured requests count as new."""
    b, sender = await _one(sites)
    await b.stop()
    copy = b.back_up()
    await b.start()
    query, early, late = sender.query(), sender.batch(line("early")), sender.batch(line("late"))
    for request in (query, early, late):
        assert (await _send(sender, request)).status == 200
    await b.stop()
    b.restore(copy)
    await asyncio.sleep(1.0 - time.time() % 1.0)  # requests tell when they were signed in whole seconds
    await b.start()
    await _send(sender, query)
    assert _code(await _send(sender, late)) == (409, "range_ahead")
    assert await b.ids() == []
    assert (await _send(sender, sender.query())).status == 200  # one that was signed since the start counts
    sender.position = 1
    assert (await _send(sender, sender.batch(line("late")))).status == 200


async def test_a_query_that_is_said_to_be_a_repetition_is_asked_anew(sites: MakeSites) -> None:
    """A proxy may have sent it twice: that is not a fault of the link that an operator has to fix."""
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    repeated = FixedResponse(
        409, body=b'{"error":{"code":"replayed","message":"this request was accepted before (replay)"}}'
    )
    deeds: list[Deed] = [repeated]
    with FlakyPeer(free_port(), lambda _: deeds[0], target=b.port) as between:
        await a.emit("e1")
        await a.apply(peer("b", between.port))
        await a.in_state("b", "backing-off", "replayed")
        deeds[0] = Forward()
        await b.holds("e1")
        await a.caught_up("b")


async def test_a_changed_declaration_forgets_no_query(sites: MakeSites) -> None:
    b, sender = await _one(sites)
    assert (await _send(sender, sender.query())).status == 200
    await b.join(limits={"maxBatchEvents": 3})
    sender.position = 7
    assert (await _send(sender, sender.batch(line("one")))).status == 200


async def test_two_queries_that_are_one_have_one_effect(sites: MakeSites) -> None:
    _, sender = await _one(sites)
    captured = sender.query()
    replies = await asyncio.gather(*[_send(sender, captured) for _ in range(8)])
    assert sorted(reply.status for reply in replies) == [200] + [409] * 7


async def test_a_batch_sent_again_gets_its_receipt_again_and_its_id_serves_no_other(sites: MakeSites) -> None:
    b, sender = await _one(sites)
    batch_id = new_event_id(time.time_ns() // 1000, bytes(10))
    first = await _send(sender, sender.batch(line("one"), batch_id=batch_id))
    sender.position = 0
    again = await _send(sender, sender.batch(line("one"), batch_id=batch_id))
    assert again.body == first.body
    assert again.header("Signature") != first.header("Signature")
    sender.position = 0
    assert _code(await _send(sender, sender.batch(line("two"), batch_id=batch_id))) == (409, "batch_conflict")
    assert await b.ids() == ["one"]


async def test_an_id_with_other_content_is_refused_and_parked_where_it_came_from(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    sender = V2Sender(b.port)
    await _send(sender, sender.batch(line("taken"), line("mine", node="x")))
    await a.emit("before", "taken", "after")
    await a.apply(peer("b", b.port))
    await b.holds("before", "after")
    await a.caught_up("b")
    [letter] = (await a.ask("dead_letters.list", group="edge"))["deadLetters"]
    assert (letter["eventId"], letter["peer"], letter["reason"]) == ("taken", "b", "id_conflict")
    assert await a.deliveries() == {
        ("before", "b"): "delivered",
        ("taken", "b"): "refused",
        ("after", "b"): "delivered",
    }
    assert [record.node for record in await b.stored() if record.event_id == "taken"] == ["x"]
    registry, link = a.running.metrics.registry, {"group": "edge", "peer": "b"}
    for status, events in (("delivered", 2), ("refused", 1)):
        assert registry.get_sample_value("routerd_eventd_outbox_delivery_total", link | {"status": status}) == events
    assert registry.get_sample_value("routerd_eventd_receiver_reject_total", {"group": "edge", "reason": "b"}) is None


async def test_a_body_over_the_limit_is_refused_before_it_is_sent(sites: MakeSites) -> None:
    b, _ = await _one(sites)

    def announce() -> tuple[Reply, float]:
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", b.port), timeout=10) as link:
            link.sendall(b"POST /v2/events HTTP/1.1\r\nHost: b\r\nContent-Length: 99999999999\r\n\r\n")
            return read_reply(link), time.monotonic() - begun

    reply, seconds = await asyncio.to_thread(announce)
    await until(
        lambda: not [task for task in asyncio.all_tasks() if "RequestHandler" in repr(task)], "the door to close"
    )
    assert reply.status == 413
    assert seconds < 2
    told = json.loads(reply.body)["error"]
    assert (told["code"], told["limit"], told["unit"]) == ("too_large", 8 << 20, "bytes")


async def _no_request_left() -> None:
    """A listener reads on for a moment what a refused sender still sends."""
    await until(lambda: not any("RequestHandler" in repr(task) for task in asyncio.all_tasks()), "the door to close")


async def test_a_body_over_the_limit_is_refused_while_it_is_being_sent(sites: MakeSites) -> None:
    b, sender = await _one(sites, limits={"maxEventBytes": "64KiB", "maxBatchBytes": "64KiB"})
    request = sender.batch(raw_body=b"x" * (1 << 20))
    reply = await _send(sender, request)
    assert _code(reply) == (413, "too_large")
    chunked = request.partition(b"\r\n\r\n")[0].replace(b"Content-Length: 1048576", b"Transfer-Encoding: chunked")
    body = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    assert _code(await _send(sender, chunked + b"\r\n\r\n" + body * 4)) == (413, "too_large")
    await _no_request_left()
    assert await b.ids() == []


@pytest.mark.parametrize("path", ["/v2/events", "/v1/events"])
async def test_bodies_that_arrive_slowly_cannot_fill_memory(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(listener, "READING_BYTES" if path == "/v2/events" else "READING_BYTES_V1", 100_000)
    b, sender = await _one(sites)
    signed = sender.batch(raw_body=b"x" * 200_000)
    sender.position = 0
    head = f"POST {path} HTTP/1.1\r\nHost: b\r\nContent-Length: 200000\r\n\r\n".encode()

    def half() -> Reply:
        with socket.create_connection(("127.0.0.1", b.port), timeout=10) as link:
            link.sendall(signed[:-90_000] if path == "/v2/events" else head + b"x" * 110_000)
            return read_reply(link)

    for _ in range(2):
        assert _code(await asyncio.to_thread(half)) == (503, "unavailable")
    await _no_request_left()
    most = sender.batch(*[line(f"e{n}") for n in range(500)])  # what was taken for the others was given back
    assert len(most) > 60_000
    for _ in range(2):
        assert (await _send(sender, most)).status in (200, 409)
    await _no_request_left()


async def test_who_cannot_prove_himself_is_answered_before_his_body(sites: MakeSites) -> None:
    """With the last byte of the body still missing, and although there is no room to keep any of it."""
    b, sender = await _one(sites)
    proven = sender.key
    for wrong in ("unsigned", "another key", "another node", "stale"):
        sender.key, sender.position = proven, 0
        await _answered_before_its_body(b, sender, wrong)


async def _answered_before_its_body(b: Site, sender: V2Sender, wrong: str) -> None:
    sender.key = Key.hmac("shared", "f" * 32) if wrong == "another key" else None
    whole = sender.batch(line("e1"), to="c" if wrong == "another node" else "", skew=-900 if wrong == "stale" else 0)
    if wrong == "unsigned":
        whole = whole.replace(b"Signature", b"X-Signature")

    def all_but_one_byte() -> Reply:
        with socket.create_connection(("127.0.0.1", b.port), timeout=10) as link:
            link.sendall(whole[:-1])
            return read_reply(link)

    reply = await asyncio.to_thread(all_but_one_byte)
    code = {"another node": (403, "wrong_audience"), "stale": (401, "clock_skew")}.get(wrong, (401, "unauthorized"))
    assert _code(reply) == code
    assert reply.header("Signature") is None
    assert reply.header("Connection") == "close"
    await _no_request_left()


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_sender_with_another_key_learns_so_with_a_large_batch_too(sites: MakeSites) -> None:
    b, sender = await _one(sites)
    sender.key = Key.hmac("shared", "f" * 32)
    head, _, body = sender.batch(raw_body=b"x" * (2 << 20)).partition(b"\r\n\r\n")
    headers = dict(text.split(": ", 1) for text in head.decode().split("\r\n")[1:])
    headers = {name: value for name, value in headers.items() if name not in ("Host", "Content-Length")}
    transport = Transport(b.clock)
    try:
        for _ in range(3):
            answer = await transport.post(f"http://127.0.0.1:{b.port}/v2/events", body, headers, seconds=10)
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (401, "unauthorized")
    finally:
        await transport.close()
    await _no_request_left()


async def test_a_head_that_is_proven_gives_no_place_to_another_body(sites: MakeSites) -> None:
    b, sender = await _one(sites)
    whole = sender.batch(line("e1"))
    other = whole.replace(b'"e1"', b'"e2"')
    assert other != whole
    assert _code(await _send(sender, other)) == (401, "unauthorized")
    assert (await _send(sender, whole)).status == 200  # its nonce was not used up by the other
    assert await b.ids() == ["e1"]


async def test_a_body_over_the_limit_is_refused_in_a_way_that_can_be_proven(sites: MakeSites) -> None:
    """The answer is signed for a sender whose signature of the head is valid: for others nothing is signed or
    hashed."""
    _, sender = await _one(sites, limits={"maxEventBytes": "64KiB", "maxBatchBytes": "64KiB"})
    proven = await _send(sender, sender.batch(raw_body=b"x" * 65_537))
    sender.key = Key.hmac("shared", "f" * 32)
    unproven = await _send(sender, sender.batch(raw_body=b"x" * 65_537))
    for reply in (proven, unproven):
        told = json.loads(reply.body)["error"]
        assert (reply.status, told["code"], told["limit"], told["unit"]) == (413, "too_large", 65_536, "bytes")
    assert proven.header("Signature") is not None
    assert unproven.header("Signature") is None
    await _no_request_left()


async def test_the_lines_of_a_batch_are_counted(sites: MakeSites) -> None:
    b, sender = await _one(sites, limits={"maxBatchEvents": 3})
    reply = await _send(sender, sender.batch(*[line(f"e{number}") for number in range(4)]))
    assert _code(reply) == (413, "too_large")
    assert (json.loads(reply.body)["error"]["limit"], json.loads(reply.body)["error"]["unit"]) == (3, "events")
    assert await b.ids() == []


async def test_a_batch_beyond_the_mark_is_refused_before_its_body_is_decoded(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding takes several times the memory of a body, and many of them may wait."""
    monkeypatch.setattr(reorder_buffer, "RANGE_WAIT", 0)
    _, sender = await _one(sites)
    assert (await _send(sender, sender.batch(line("e1")))).status == 200
    for after, answered in ((9, (409, "range_ahead")), (1, (400, "malformed"))):
        ahead = sender.batch(
            claim=Range(epoch="epoch1", incarnation=1, after=after, upto=after + 1), raw_body=b"not a batch"
        )
        assert _code(await _send(sender, ahead)) == answered


async def test_a_clock_that_differs_is_told_ours(sites: MakeSites) -> None:
    b, sender = await _one(sites)
    for number, (skew, allowed) in enumerate(((-301, -290), (302, 290))):
        sender.position = number
        reply = await _send(sender, sender.batch(line(f"e{number}"), skew=skew))
        assert _code(reply) == (401, "clock_skew")
        told = json.loads(reply.body)["error"]
        assert told["serverTime"].startswith(time.strftime("%Y-%m-%dT", time.gmtime()))
        assert "s allowed" in told["message"]
        sender.position = number
        assert (await _send(sender, sender.batch(line(f"e{number}"), skew=allowed))).status == 200
    assert await b.ids() == ["e0", "e1"]


async def test_a_clock_that_differs_is_shown_with_the_link(sites: MakeSites) -> None:
    a, b = sites("a", clock=ManualClock(int((time.time() - 3600) * 1e6)))[0], sites("b")[0]
    for node in (a, b):
        await node.start()
        await node.join()
    await a.apply(peer("b", b.port))
    cursor = await a.in_state("b", "blocked", "clock_skew")
    assert "its clock says" in cursor.last_error


async def test_strangers_learn_nothing_but_that_they_are_strangers(sites: MakeSites) -> None:
    b, _ = await _one(sites)
    await b.apply(_ring(b, {"id": "gone", "owner": "x", "state": "revoked"}))
    replies = []
    for key in (Key.hmac("shared", "wrong"), Key.hmac("nobody", SECRET), Key.hmac("gone", SECRET, owner="x")):
        sender = V2Sender(b.port, key=key)
        replies.append(await _send(sender, sender.batch(line("one"))))
    tampered = V2Sender(b.port)
    request = tampered.batch(line("one"))
    replies.append(await _send(tampered, request.replace(b'"id":"one"', b'"id":"two"')))
    assert {_code(reply) for reply in replies} == {(401, "unauthorized")}
    assert len({reply.body for reply in replies}) == 1
    assert all(reply.header("Signature") is None for reply in replies)
    assert await b.ids() == []


async def test_a_group_that_speaks_one_protocol_does_not_know_the_other(sites: MakeSites) -> None:
    b, sender = await _one(sites, protocols=["v2"])
    assert (await _send(sender, b"GET /v1/status HTTP/1.1\r\nHost: b\r\n\r\n")).status == 404
    assert (await _send(sender, b"POST /v1/events HTTP/1.1\r\nHost: b\r\nContent-Length: 0\r\n\r\n")).status == 404
    await b.apply(group("b", port=b.port, secret=b.secret, protocols=["v1"]))
    assert (await _send(sender, sender.batch(line("one")))).status == 404
    assert (await _send(sender, b"GET /v1/status HTTP/1.1\r\nHost: b\r\n\r\n")).status == 200


async def test_a_full_group_refuses_by_name_and_takes_again_when_there_is_room(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await a.join()
    await b.start()
    await b.join(retention={"maxBytes": 2000})
    await a.apply(peer("b", b.port, limits={"batchEvents": 5}))
    ids = [f"e{number:02}" for number in range(30)]
    await a.emit(*ids)
    cursor = await a.in_state("b", "backing-off", "full")
    assert cursor.position > 0
    assert set(await b.ids()) < set(ids)
    await b.apply(group("b", port=b.port, secret=b.secret))
    await b.holds(*ids)
    assert await b.ids() == ids


async def test_one_event_too_large_for_the_peer_is_parked_and_blocks_nothing(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await a.join()
    await b.start()
    await b.join(limits={"maxEventBytes": "8KiB", "maxBatchBytes": "8KiB"})
    with FlakyPeer(free_port(), lambda _: Forward(), target=b.port) as between:
        await a.emit("e1", "e2")
        await a.emit("large", payload={"k": "v" * 10_000})
        await a.emit("e3", "e4")
        await a.apply(peer("b", between.port))
        await b.holds("e1", "e2", "e3", "e4")
        await a.caught_up("b")
        await a.emit("e5")
        await b.holds("e5", seconds=5)
        await a.caught_up("b")
    assert await b.ids() == ["e1", "e2", "e3", "e4", "e5"]
    [letter] = (await a.ask("dead_letters.list", group="edge"))["deadLetters"]
    assert (letter["eventId"], letter["reason"]) == ("large", "too_large")
    assert (await a.deliveries())["large", "b"] == "refused"
    assert len(between.heard) < 15


async def test_ed25519_rings_prove_batches_and_receipts(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    for node, other in ((a, b), (b, a)):
        private = Ed25519PrivateKey.generate()
        (node.directory / "private.pem").write_bytes(
            private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (other.directory / f"{node.name}.pub").write_bytes(public)
    for node, other in ((a, b), (b, a)):
        own = {"secretFile": str(node.directory / "private.pem")}
        theirs = {"publicKeyFile": str(node.directory / f"{other.name}.pub")}
        keys = [
            {"id": f"k-{one}", "owner": one, "algorithm": "ed25519", **(own if one == node.name else theirs)}
            for one in ("a", "b")
        ]
        await node.start()
        await node.apply(group(node.name, port=node.port, auth={"keys": keys}, protocols=["v2"]))
    await a.apply(peer("b", b.port))
    await b.apply(peer("a", a.port))
    await a.emit("of-a")
    await b.emit("of-b")
    await a.holds("of-b")
    await b.holds("of-a")
    await a.caught_up("b")
    assert await a.rows("SELECT key_id, status FROM batches") == [("k-a", 200)]
    sender = V2Sender(b.port, node="a", ring=KeyRing.shared(SECRET))
    assert _code(await _send(sender, sender.batch(line("forged", node="a")))) == (401, "unauthorized")


async def test_ranges_that_lie_about_their_lines_are_malformed(sites: MakeSites) -> None:
    b, sender = await _one(sites)
    claim = Range(epoch="epoch1", incarnation=1, after=5, upto=6)
    assert _code(await _send(sender, sender.batch(line("one"), claim=claim))) == (400, "malformed")
    assert _code(await _send(sender, sender.batch(raw_body=b"1\t\t" + line("one").encode()))) == (400, "malformed")
    assert await b.ids() == []


async def test_a_link_nobody_asked_about_does_not_begin_in_the_middle(sites: MakeSites) -> None:
    b, sender = await _one(sites)
    sender.position = 7
    # A repair's query does not count: otherwise it would refuse the batch of a link that was signed before it.
    assert (await _send(sender, sender.query(REPAIR_QUERY))).status == 200
    reply = await _send(sender, sender.batch(line("one")))
    assert _code(reply) == (409, "range_ahead")
    assert "mark" not in json.loads(reply.body)["error"]
    assert json.loads((await _send(sender, sender.query())).body)["mark"] is None
    sender.position = 7
    assert (await _send(sender, sender.batch(line("one")))).status == 200
    assert json.loads((await _send(sender, sender.query())).body)["mark"]["base"] == 7
    assert await b.ids() == ["one"]


async def test_nothing_is_stored_that_could_not_be_answered_for(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key of its own the receiver cannot prove that it took a batch, so its sender would send it for ever."""
    b, sender = await _one(sites)
    theirs = Key.hmac("k-x", SECRET, owner="x")
    monkeypatch.setattr(b.running.groups["edge"], "_ring", KeyRing([theirs]))
    sender.key = theirs
    reply = await _send(sender, sender.batch(line("one")))
    assert _code(reply) == (503, "unavailable")
    assert "the key ring has no active key that b may sign with" in reply.body.decode()
    assert await b.ids() == []


async def test_what_a_program_emits_under_the_name_of_another_node_goes_no_further_than_the_key_allows(
    sites: MakeSites,
) -> None:
    """The node that takes an event in answers for it: its peers hold it to the names that its key may speak for."""
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.apply(_ring(node, {"id": "ka", "owner": "a"}, {"id": "kb", "owner": "b"}))
    await a.apply(peer("b", b.port))
    await a.ask("events.emit", group="edge", events=[{"id": "own", "type": "t"}])
    await a.ask("events.emit", group="edge", events=[{"id": "of c", "type": "t", "sourceNode": "c"}])
    await a.caught_up("b")
    assert await b.ids() == ["own"]
    [letter] = (await a.ask("dead_letters.list", group="edge"))["deadLetters"]
    assert (letter["eventId"], letter["reason"]) == ("of c", "source_not_allowed")
