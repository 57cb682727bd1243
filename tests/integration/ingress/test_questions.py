"""Queries for the events that a node holds: answered to the peers concerned, or refused with the reason."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from eventd.ingress import questions, returning
from eventd.log.delivery.digests import read_fingerprinted
from eventd.testing import until
from federation.compare import (
    QUESTION_BYTES,
    Grain,
    IdsQuery,
    KnownQuery,
    RecordScope,
    StateQuery,
    SumsQuery,
    encode_question,
)
from federation.keys import KeyRing
from federation.returned import EventsQuery
from federation.signing import SignedRequest, verify_answer
from federation.wire import VerifyQuery
from tests.integration.conftest import MakeSites
from tests.support.sites import Site
from tests.support.v1_node import Reply
from tests.support.v2_sender import SECRET, V2Sender, line, raw

STATE = encode_question(StateQuery())


@pytest.fixture
async def asked(sites: MakeSites) -> tuple[Site, V2Sender]:
    """A node that holds three events of the sender, two of one minute, and one of its own."""
    (node,) = sites("b")
    await node.start()
    await node.join()
    sender = V2Sender(node.port)
    bodies = [line(f"e{number}", type="t") for number in range(3)]
    reply = await _send(sender, sender.batch(*bodies))
    assert reply.status == 200, reply.body
    await node.emit("own")
    return node, sender


async def _send(sender: V2Sender, request: bytes) -> Reply:
    return await asyncio.to_thread(sender.send, request)


async def _ask(sender: V2Sender, question: Any, **other: Any) -> Any:
    reply = await _send(sender, sender.ask(encode_question(question), **other))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def _code(reply: Reply) -> tuple[int, str]:
    return reply.status, json.loads(reply.body)["error"]["code"]


async def _about(sender: V2Sender, **other: Any) -> dict[str, Any]:
    state = await _ask(sender, StateQuery())
    return {
        "history": state["history"],
        "after": 0,
        "upto": state["upto"],
        "what": RecordScope(),
        "grain": Grain(),
    } | other


async def test_a_node_tells_what_it_holds_of_the_sender_and_nothing_else(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    state = await _ask(sender, StateQuery())
    assert state["mark"] == {"epoch": "epoch1", "incarnation": 1, "upto": 3, "base": 0}
    assert (state["upto"], state["since"], state["gaps"]) == (4, None, [])
    sums = await _ask(sender, SumsQuery(**await _about(sender)))
    assert sums["next"] is None
    [[slot, part, count, total]] = sums["buckets"]
    assert (part, count) == (0, 3)
    ids = await _ask(sender, IdsQuery(**await _about(sender), buckets=((slot, 0),)))
    assert [each[0] for each in ids["events"]] == ["e0", "e1", "e2"]
    assert f"{sum(int(each[1], 16) for each in ids['events']) % 2**64:016x}" == total
    known = await _ask(sender, KnownQuery(ids=("e1", "nobody", "own")))
    assert known == {"unknown": [1], "gone": [], "other": []}
    prints = tuple(each[1] for each in ids["events"])
    swapped = KnownQuery(ids=("e0", "e1", "e2"), fingerprints=(prints[0], prints[2], prints[1]))
    assert (await _ask(sender, swapped))["other"] == [1, 2]


async def test_a_node_tells_which_events_it_has_by_another_path_only_where_it_is_asked(
    asked: tuple[Site, V2Sender],
) -> None:
    node, sender = asked
    [own] = (await node.running.log.database.read(read_fingerprinted, [4])).values()
    question = KnownQuery(ids=("own", "nobody"), fingerprints=(own.fingerprint, own.fingerprint))
    assert await _ask(sender, question) == {"unknown": [1], "gone": [], "other": []}
    question = msgspec.structs.replace(question, what=RecordScope(own=False))
    assert await _ask(sender, question) == {"unknown": [1], "gone": [], "other": [], "by_another_path": [0]}


async def test_buckets_without_events_and_other_types_are_empty(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    assert (await _ask(sender, IdsQuery(**await _about(sender), buckets=((1, 0),))))["events"] == []
    none = await _about(sender, what=RecordScope(types=("u",)))
    assert (await _ask(sender, SumsQuery(**none)))["buckets"] == []
    stranger = V2Sender(sender.port, node="y")
    assert (await _ask(stranger, SumsQuery(**await _about(stranger))))["buckets"] == []
    assert (await _ask(stranger, StateQuery()))["mark"] is None


async def test_a_question_for_others_or_of_another_time_is_refused(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    assert _code(await _send(sender, sender.ask(STATE, to="c"))) == (403, "wrong_audience")
    assert _code(await _send(sender, sender.ask(STATE, group="other"))) == (403, "wrong_group")
    assert _code(await _send(sender, sender.ask(STATE, skew=-1000))) == (401, "clock_skew")


async def test_a_question_with_a_wrong_signature_or_another_body_is_refused(asked: tuple[Site, V2Sender]) -> None:
    node, sender = asked
    foreign = V2Sender(sender.port, ring=KeyRing.shared("another secret, of nobody here"))
    assert _code(await _send(foreign, foreign.ask(STATE))) == (401, "unauthorized")
    other = sender.ask(STATE).replace(STATE, encode_question(KnownQuery(ids=("aa",)))[: len(STATE)])
    assert _code(await _send(sender, other)) == (401, "unauthorized")
    unsigned = raw("/v2/verify", {"Content-Type": "application/json"}, STATE, sender.port)
    assert (await _send(sender, unsigned)).status in (401, 415)
    assert node.running.groups["edge"].ingress.counter.counts.rejected == 3


async def test_what_is_no_question_is_malformed(asked: tuple[Site, V2Sender]) -> None:
    """And so is a question about a bucket that the grain does not have."""
    _, sender = asked
    bucket = IdsQuery(**await _about(sender, grain=Grain(1, 2)), buckets=((0, 2),))
    for question in (
        b"",
        b"{}",
        b"null",
        b'{"ask":"all"}',
        b'{"ask":"sums"}',
        b'{"ask":"known","ids":[7]}',
        b"\xff" * 100,
        encode_question(bucket),
    ):
        assert _code(await _send(sender, sender.ask(question))) == (400, "malformed"), question


async def test_a_question_that_is_too_large_is_refused_unread(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    reply = await _send(sender, sender.ask(b'{"ask":"state","x":"' + b"y" * QUESTION_BYTES + b'"}'))
    assert _code(reply) == (413, "too_large")
    assert json.loads(reply.body)["error"]["limit"] == QUESTION_BYTES


async def test_positions_of_another_history_or_beyond_the_end_are_refused(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    for other in ({"history": "gone"}, {"upto": 99}):
        question = encode_question(SumsQuery(**await _about(sender, **other)))
        assert _code(await _send(sender, sender.ask(question))) == (409, "other_history")


async def test_the_same_question_is_not_answered_twice(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    request = sender.ask(STATE)
    assert (await _send(sender, request)).status == 200
    assert _code(await _send(sender, request)) == (409, "replayed")


async def test_a_second_question_at_the_same_time_is_told_to_wait(
    asked: tuple[Site, V2Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sender = asked
    going, release = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> Any:
        going.set()
        await release.wait()
        raise questions.TooManyQueries("enough")

    monkeypatch.setattr(questions.Questions, "_reply", slow)
    first = asyncio.ensure_future(_send(sender, sender.ask(STATE)))
    await going.wait()
    second = await _send(sender, sender.ask(STATE))
    assert _code(second) == (429, "too_many_requests")
    assert {name.lower(): value for name, value in second.headers}["retry-after"] == "1"
    release.set()
    assert (await first).status == 429


async def test_a_node_works_on_a_long_question_for_a_while_and_tells_how_far_it_came(
    asked: tuple[Site, V2Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sender = asked
    monkeypatch.setattr(questions, "PAGE_SECONDS", 0.0)
    for number in range(0, 3000, 500):
        reply = await _send(sender, sender.batch(*[line(f"m{number + each}") for each in range(500)]))
        assert reply.status == 200, reply.body
    about = await _about(sender)
    count, after, pages = 0, 0, 0
    while after is not None:
        answer = await _ask(sender, SumsQuery(**about | {"after": after}))
        count += sum(bucket[2] for bucket in answer["buckets"])
        after, pages = answer["next"], pages + 1
    assert count == 3003
    assert pages > 1


async def test_an_answer_is_signed(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    request = sender.ask(STATE)
    reply = await _send(sender, request)
    head = dict(text.split(": ", 1) for text in request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:])
    query = VerifyQuery(from_node="x", to_node="b", group="edge")
    signed = SignedRequest(query, head, head["Content-Digest"], head["Signature"].removeprefix("eventd="))
    assert verify_answer(signed, 200, reply.headers, reply.body, KeyRing.shared(SECRET)).id == "shared"


async def test_a_deleted_group_answers_no_more(asked: tuple[Site, V2Sender]) -> None:
    node, sender = asked
    await node.ask("resources.delete", kind="EventGroup", name="edge")

    async def gone() -> bool:
        try:
            return (await _send(sender, sender.ask(STATE))).status != 200
        except (OSError, AssertionError):  # refused, or accepted just before the end and closed without an answer
            return True

    await until(gone, "the listener to end")


async def test_events_are_returned_to_their_source_alone_with_the_receipt_of_their_batch(
    asked: tuple[Site, V2Sender],
) -> None:
    _, sender = asked
    answer = await _ask(sender, EventsQuery(("e2", "unknown", "own", "e0")))
    assert [(index, json.loads(body)["id"], receipt) for index, body, receipt in answer["events"]] == [
        (0, "e2", 0),
        (3, "e0", 0),
    ]
    assert (answer["large"], answer["next"]) == ([], None)
    [stated] = answer["receipts"]
    assert stated["ids"] == ["e0", "e1", "e2"]
    assert (json.loads(stated["receipt"])["from"], json.loads(stated["receipt"])["accepted"]) == ("x", 3)
    other = V2Sender(sender.port, node="y")
    assert await _ask(other, EventsQuery(("e0", "own"))) == {"events": [], "receipts": [], "large": [], "next": None}


async def test_events_that_the_sender_relayed_are_not_returned_to_it(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    relayed = sender.batch(line("of-z", node="z"), line("z-of-x", node="z"), paths=("z", ""))
    assert (await _send(sender, relayed)).status == 200
    assert (await _ask(sender, EventsQuery(("of-z", "z-of-x"))))["events"] == []


async def test_an_answer_ends_before_the_event_that_does_not_fit(
    asked: tuple[Site, V2Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sender = asked
    size = len(line("e0", type="t"))
    monkeypatch.setattr(returning, "RETURNED_BYTES", 2 * size)
    answer = await _ask(sender, EventsQuery(("e0", "e1", "e2")))
    assert ([each[0] for each in answer["events"]], answer["next"]) == ([0, 1], 2)
    monkeypatch.setattr(returning, "RETURNED_BYTES", size - 1)
    answer = await _ask(sender, EventsQuery(("e0", "e1", "e2")))
    assert (answer["events"], answer["large"], answer["next"]) == ([], [0, 1, 2], None)
