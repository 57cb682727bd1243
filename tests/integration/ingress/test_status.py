"""Questions for the links of a node: answered to members of the group, and to each not oftener than a map needs."""

from __future__ import annotations

import asyncio
import json

import pytest

from eventd.ingress import status
from federation.keys import KeyRing
from federation.signing import verify_answer
from federation.status import IN, OUT, STATUS_ANSWER_BYTES, STATUS_QUESTION_BYTES, read_status_answer
from federation.wire import StatusQuery
from tests.integration.conftest import MakeSites
from tests.support.declared import group, peer
from tests.support.sites import Site
from tests.support.v1_node import Reply
from tests.support.v2_sender import SECRET, V2Sender, line, raw


@pytest.fixture
async def asked(sites: MakeSites) -> tuple[Site, V2Sender]:
    """A node with two peers that are down, which has events of x; questions are signed a second later each time."""
    (node,) = sites("b")
    await node.start()
    await node.apply(
        group("b", port=node.port, secret=node.secret, name="edge"),
        peer("c", 1, group="edge"),
        peer("d", 1, group="edge"),
    )
    sender = V2Sender(node.port)
    reply = await _send(sender, sender.batch(line("e1", type="t")))
    assert reply.status == 200, reply.body
    return node, sender


async def _send(sender: V2Sender, request: bytes) -> Reply:
    return await asyncio.to_thread(sender.send, request)


def _code(reply: Reply) -> tuple[int, str]:
    return reply.status, json.loads(reply.body)["error"]["code"]


async def test_a_node_reports_its_links_by_name_and_nothing_else(asked: tuple[Site, V2Sender]) -> None:
    node, sender = asked
    await node.emit("own")
    reply = await _send(sender, sender.ask_links())
    assert reply.status == 200
    found = read_status_answer(reply.body, StatusQuery(from_node="x", to_node="b", group="edge"))
    assert [(link.peer, link.direction) for link in found.links] == [("c", OUT), ("d", OUT), ("x", IN)]
    assert all(link.state for link in found.links if link.direction == OUT)
    text = reply.body.decode()
    assert "127.0.0.1" not in text
    assert "http" not in text
    assert "refused" not in text
    assert not node.running.groups["edge"].reports._peers, "without hops, no peer is asked"


async def test_the_answer_is_signed_for_this_question(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    query = StatusQuery(from_node="x", to_node="b", group="edge")
    signed, reply = sender.signed(query, b"{}")
    answer = await _send(sender, reply)
    verify_answer(signed, answer.status, answer.headers, answer.body, KeyRing.shared(SECRET))


async def test_a_question_of_another_group_node_or_time_is_refused(asked: tuple[Site, V2Sender]) -> None:
    node, sender = asked
    assert _code(await _send(sender, sender.ask_links(to="c"))) == (403, "wrong_audience")
    assert _code(await _send(sender, sender.ask_links(group="other"))) == (403, "wrong_group")
    assert _code(await _send(sender, sender.ask_links(skew=-1000))) == (401, "clock_skew")
    foreign = V2Sender(sender.port, ring=KeyRing.shared("another secret, of no member of it"))
    assert _code(await _send(foreign, foreign.ask_links())) == (401, "unauthorized")
    unsigned = raw("/v2/status", {"Content-Type": "application/json"}, b"{}", sender.port)
    assert (await _send(sender, unsigned)).status in (401, 415)
    assert node.running.groups["edge"].ingress.counter.counts.rejected == 5


async def test_a_captured_question_is_refused_also_after_a_restart(asked: tuple[Site, V2Sender]) -> None:
    node, sender = asked
    captured = sender.ask_links()
    assert (await _send(sender, captured)).status == 200
    assert _code(await _send(sender, captured)) == (409, "replayed")
    older = sender.ask_links(skew=-30)
    assert _code(await _send(sender, older)) == (409, "replayed")
    await node.stop()
    await asyncio.sleep(1.0)  # times of signatures are whole seconds
    await node.start()
    assert _code(await _send(sender, captured)) == (409, "replayed")


async def test_a_node_that_asks_all_the_time_is_answered_now_and_then(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    assert (await _send(sender, sender.ask_links())).status == 200
    reply = await _send(sender, sender.ask_links(skew=1))
    assert _code(reply) == (429, "too_many_requests")
    other = V2Sender(sender.port, node="y")
    assert (await _send(other, other.ask_links())).status == 200, "another node is not held up by it"


async def test_invented_names_displace_no_peer_and_are_bounded(
    asked: tuple[Site, V2Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, sender = asked
    monkeypatch.setattr(status, "MOST_ASKERS", 3)
    monkeypatch.setattr(status, "SHORTEST_SECONDS", 3600.0)
    replies = []
    for number in range(5):
        stranger = V2Sender(sender.port, node=f"stranger{number}")
        replies.append((await _send(stranger, stranger.ask_links())).status)
    assert replies == [200, 200, 200, 429, 429]
    declared = V2Sender(sender.port, node="c")
    assert (await _send(declared, declared.ask_links())).status == 200
    assert len(node.running.groups["edge"].ingress._status._asked) == 4


async def test_a_large_question_is_refused_by_its_length(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    assert _code(await _send(sender, sender.ask_links(b" " * (STATUS_QUESTION_BYTES + 1)))) == (413, "too_large")
    assert _code(await _send(sender, sender.ask_links(b'{"hops":7}'))) == (400, "malformed")


async def test_a_node_that_shares_nothing_refuses_in_its_own_name(asked: tuple[Site, V2Sender]) -> None:
    node, sender = asked
    await node.apply(group("b", port=node.port, secret=node.secret, name="edge", status={"share": "none"}))
    query = StatusQuery(from_node="x", to_node="b", group="edge")
    signed, request = sender.signed(query, b"{}")
    reply = await _send(sender, request)
    assert _code(reply) == (403, "not_shared")
    verify_answer(signed, reply.status, reply.headers, reply.body, KeyRing.shared(SECRET))


async def test_nothing_is_written_for_a_question(asked: tuple[Site, V2Sender]) -> None:
    node, sender = asked
    before = await node.rows("SELECT count(*) FROM nonces")
    assert (await _send(sender, sender.ask_links())).status == 200
    assert await node.rows("SELECT count(*) FROM nonces") == before


async def test_the_answer_of_a_node_with_very_many_links_fits(asked: tuple[Site, V2Sender]) -> None:
    node, sender = asked
    many = [peer(f"{number:0110d}", 1, group="edge", protocol="v2") for number in range(300)]
    await node.apply(group("b", port=node.port, secret=node.secret, name="edge"), *many)
    reply = await _send(sender, sender.ask_links())
    assert len(reply.body) <= STATUS_ANSWER_BYTES
    found = read_status_answer(reply.body, StatusQuery(from_node="x", to_node="b", group="edge"))
    assert found.left_out > 100
