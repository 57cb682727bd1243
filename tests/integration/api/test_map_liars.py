"""A peer that lies, is slow, answers too much or in the name of others changes nothing on a map but its own links."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from eventd.egress.peers import status
from eventd.testing import until
from federation.keys import KeyRing
from federation.signing import Receiver, Request, sign_answer, verify_request
from federation.status import STATUS_ANSWER_BYTES
from tests.integration.api.test_map import answers, links, show
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.flaky_peer import Disconnect, FixedResponse, FlakyPeer, Hang, ReceivedRequest
from tests.support.lying_peer import RING, LyingReceiver
from tests.support.ports import free_port

Answer = FixedResponse | Hang | Disconnect
Behaviour = Callable[[ReceivedRequest], Any]


def says(told: dict[str, Any], *, ring: KeyRing = RING, status: int = 200, group: str = "edge") -> Behaviour:
    """A peer that takes every batch, and answers questions for links with this, signed."""
    takes = LyingReceiver(claims=lambda epoch: None)

    def behave(heard: ReceivedRequest) -> FixedResponse:
        if heard.path != "/v2/status":
            return takes(heard)
        head = heard.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (text.partition(":") for text in head[1:])]
        now = time.time_ns() // 1000
        verified = verify_request(Request("POST", heard.path, headers, heard.body), Receiver("b", group, RING), now=now)
        body = json.dumps({"group": "edge", "from": "a", "to": "b"} | told).encode()
        return FixedResponse(status, tuple(sign_answer(verified, status, body, ring.keys[0], now=now).items()), body)

    return behave


def gives(answer: Answer) -> Behaviour:
    """A peer that takes every batch, and gives this answer to questions for links."""
    takes = LyingReceiver(claims=lambda epoch: None)
    return lambda heard: answer if heard.path == "/v2/status" else takes(heard)


async def seen(sites: MakeSites, behave: Behaviour) -> Any:
    """What a node shows whose only peer behaves like this."""
    (a,) = sites("a")
    await a.start()
    with FlakyPeer(free_port(), behave) as liar:
        await a.join()
        await a.apply(peer("b", liar.port))

        async def asked() -> bool:
            return answers(await show(a))["b"] != "pending"

        await until(asked, "b to be asked")
        return await show(a)


RUNNING = {"peer": "a", "direction": "out", "state": "running"}

REFUSED: dict[str, tuple[str, Behaviour]] = {
    "a program that does not know the question": ("older", gives(FixedResponse(404, (), b"404 page not found\n"))),
    "one that refuses to share": ("not-shared", says({"error": {"code": "not_shared", "message": "x"}}, status=403)),
    "a broken one": ("unreachable", gives(FixedResponse(500))),
    "one that hangs up": ("unreachable", gives(Disconnect())),
    "an unsigned answer": ("invalid", gives(FixedResponse(200, (), b'{"group":"edge","from":"a","to":"b"}'))),
    "a signature of a foreign key": ("invalid", says({}, ring=KeyRing.shared("another secret, of no member of it"))),
    "an answer about another group": ("invalid", says({"group": "other"})),
    "an answer of another node": ("invalid", says({"to": "c"})),
    "foreign names": ("invalid", says({"links": [RUNNING | {"peer": "<img src=x>"}]})),
    "a report about the asking node": ("invalid", says({"links": [RUNNING], "others": [{"node": "a"}]})),
    "a report about a node that is not its peer": ("invalid", says({"links": [RUNNING], "others": [{"node": "z"}]})),
    "a huge answer": ("invalid", says({"pad": "x" * (STATUS_ANSWER_BYTES + 1)})),
    "a huge answer without a signature": ("invalid", gives(FixedResponse(200, (), b"x" * (1 << 20)))),
}


@pytest.mark.parametrize(("answer", "behave"), REFUSED.values(), ids=REFUSED)
async def test_an_answer_that_proves_nothing_leaves_the_own_links(
    sites: MakeSites, answer: str, behave: Behaviour
) -> None:
    told = await seen(sites, behave)
    assert answers(told) == {"a": "self", "b": answer}
    assert set(links(told)) == {("a", "b")}
    assert links(told)["a", "b"]["receiver"] is None


async def test_a_peer_that_lies_about_itself_is_shown_as_its_own_report(sites: MakeSites) -> None:
    lies = [RUNNING, {"peer": "invented", "direction": "in", "eventsPerSecond": 1e9, "lastSeconds": 0}]
    told = await seen(sites, says({"links": lies}))
    assert answers(told) == {"a": "self", "b": "answered", "invented": "unasked"}
    assert links(told)["invented", "b"]["sender"] is None


async def test_a_slow_peer_delays_no_map_and_is_given_up(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "ANSWER_SECONDS", 0.3)
    (a,) = sites("a")
    await a.start()
    with FlakyPeer(free_port(), gives(Hang())) as slow:
        await a.join()
        await a.apply(peer("b", slow.port))
        begun = time.monotonic()
        assert answers(await show(a)) == {"a": "self", "b": "pending"}
        assert time.monotonic() - begun < 2

        async def given_up() -> bool:
            return answers(await show(a))["b"] == "unreachable"

        await until(given_up, "b to be given up")


async def test_a_peer_that_fails_is_asked_less_and_less_often(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    with FlakyPeer(free_port(), gives(FixedResponse(500))) as broken:
        await a.join()
        await a.apply(peer("b", broken.port))
        await show(a, wait="5")
        known = a.running.groups["edge"].reports._peers["b"]
        pauses = []
        for _ in range(5):
            pauses.append(round(known.due - a.clock.monotonic()))
            known.due, failures = 0.0, known.failures
            reports = a.running.groups["edge"].reports
            await reports._ask_all(status.StatusQuestion(1))
            assert known.failures == failures + 1
        assert pauses == [10, 20, 40, 60, 60]
        asked = [one for one in broken.heard if one.path == "/v2/status"]
        assert len(asked) == 6
