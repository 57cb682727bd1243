"""Questions about histories over the wire: who is answered, what is refused before it is read, and what is stored."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from eventd.log.witnesses import decisions
from eventd.testing import until
from eventd.witnessing import answering
from federation.history.cosignatures import cosignature_times
from federation.history.exchange import (
    HISTORY_QUESTION_BYTES,
    ConsistencyQuestion,
    KeysQuestion,
    NoteQuestion,
    RangeAnswer,
    RangeQuestion,
    TilesQuestion,
    ask_witness,
    encode_history,
    read_cosignature,
)
from federation.history.forms import write_base64
from federation.history.merkle import hash_leaf
from federation.history.notes import WITNESS_KEY, SignedNote, read_vkey
from federation.keys import KeyRing
from federation.signing import verify_answer
from federation.wire import HistoryQuery
from tests.integration.conftest import MakeSites
from tests.support.declared import PLAIN_GROUP
from tests.support.growing_tree import GrowingTree
from tests.support.sites import Site
from tests.support.v1_node import Reply
from tests.support.v2_sender import SECRET, V2Sender, line, raw

RECORD = {"history": {"mode": "record"}}
KEYS = encode_history(KeysQuestion())


def tree() -> GrowingTree:
    return GrowingTree(node="x", group="edge").grow("one")


@pytest.fixture
async def asked(sites: MakeSites) -> tuple[Site, V2Sender]:
    """A node with a history, and a member of its group that is not declared as its peer."""
    (node,) = sites("b")
    await node.start()
    await node.join(**RECORD)
    return node, V2Sender(node.port)


async def send(sender: V2Sender, request: bytes) -> Reply:
    return await asyncio.to_thread(sender.send, request)


async def ask(sender: V2Sender, question: bytes) -> Any:
    reply = await send(sender, sender.ask_history(question))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def refusal(reply: Reply) -> tuple[int, str]:
    return reply.status, json.loads(reply.body)["error"]["code"]


async def test_a_checkpoint_is_cosigned_with_the_key_that_the_node_shows(asked: tuple[Site, V2Sender]) -> None:
    node, sender = asked
    key = read_vkey((await ask(sender, KEYS))["witnessKey"], WITNESS_KEY)
    assert key.name == "eventd/edge/b/witness"
    offer = tree().offer()
    answer = await ask(sender, encode_history(ask_witness(offer)))
    note = SignedNote(offer.note.text, (read_cosignature(answer["cosignature"], offer.note.text),))
    assert list(cosignature_times(note, [key])) == [key]
    assert (await ask(sender, KEYS))["notes"] == [offer.note.encode().decode()], "what it holds is shown"
    [held] = (await node.ask("history.witnesses", group="edge"))["held"]
    assert (held["node"], held["size"]) == ("x", 2)


async def test_a_refusal_is_signed_and_has_the_held_note(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    offer = tree().offer()
    await ask(sender, encode_history(ask_witness(offer)))
    header = HistoryQuery(from_node="x", to_node="b", group="edge")
    signed, request = sender.signed(header, encode_history(ask_witness(tree().grow("two").offer(1))))
    reply = await send(sender, request)
    assert refusal(reply) == (409, "conflict")
    assert json.loads(reply.body)["error"]["note"] == offer.note.encode().decode()
    verify_answer(signed, reply.status, reply.headers, reply.body, KeyRing.shared(SECRET))
    forked = GrowingTree(node="x", group="edge").grow("other")
    assert refusal(await send(sender, sender.ask_history(encode_history(ask_witness(forked.offer(2)))))) == (
        409,
        "forked",
    )


async def test_checkpoints_beyond_the_limits_of_a_witness_are_counted(
    asked: tuple[Site, V2Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, sender = asked
    monkeypatch.setattr(decisions, "MOST_TREES", 1)
    await ask(sender, encode_history(ask_witness(tree().offer())))
    other = GrowingTree("u", node="x", group="edge")
    assert refusal(await send(sender, sender.ask_history(encode_history(ask_witness(other.offer())))))[1] == "malformed"
    registry, counted = node.running.metrics.registry, {"group": "edge", "reason": "too_many_trees"}
    assert registry.get_sample_value("routerd_eventd_receiver_reject_total", counted) == 1


async def test_strangers_and_questions_for_others_are_refused(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    foreign = V2Sender(sender.port, ring=KeyRing.shared("another secret, of nobody here"))
    assert refusal(await send(foreign, foreign.ask_history(KEYS))) == (401, "unauthorized")
    assert refusal(await send(sender, sender.ask_history(KEYS, to="c"))) == (403, "wrong_audience")
    assert refusal(await send(sender, sender.ask_history(KEYS, group="other"))) == (403, "wrong_group")
    assert refusal(await send(sender, sender.ask_history(KEYS, skew=-1000))) == (401, "clock_skew")
    unsigned = raw(
        "/v2/history", {"Content-Type": "application/json", "Content-Encoding": "identity"}, KEYS, sender.port
    )
    assert refusal(await send(sender, unsigned)) == (401, "unauthorized")


async def test_a_captured_question_is_not_answered_twice(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    captured = sender.ask_history(KEYS)
    assert (await send(sender, captured)).status == 200
    assert refusal(await send(sender, captured)) == (409, "replayed")


async def test_a_question_beyond_the_limit_is_refused_unread(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    reply = await send(sender, sender.ask_history(b'{"ask":"keys","x":"' + b"y" * HISTORY_QUESTION_BYTES + b'"}'))
    assert refusal(reply) == (413, "too_large")
    assert refusal(await send(sender, sender.ask_history(b'{"ask":"everything"}'))) == (400, "malformed")


async def test_another_tree_than_that_of_the_sender_is_not_cosigned(asked: tuple[Site, V2Sender]) -> None:
    _, sender = asked
    other = encode_history(ask_witness(GrowingTree(node="y", group="edge").offer()))
    assert refusal(await send(sender, sender.ask_history(other))) == (403, "wrong_sender")


async def test_an_own_tree_is_proven_and_its_tiles_are_sent_up_to_what_is_signed(
    asked: tuple[Site, V2Sender],
) -> None:
    node, sender = asked

    async def is_signed() -> str:
        shown = await node.ask("history.witnesses", group="edge")
        return str(shown["origin"]) if shown["size"] else ""

    await until(is_signed, "a checkpoint")
    origin = await is_signed()
    answer = await ask(sender, encode_history(ConsistencyQuestion(tree=origin, old=1, size=1)))
    assert answer == {"proof": []}
    beyond = encode_history(ConsistencyQuestion(tree=origin, old=1, size=9))
    assert refusal(await send(sender, sender.ask_history(beyond))) == (400, "malformed")
    tiles = await ask(sender, encode_history(TilesQuestion(tree=origin, first=0, count=1, size=1)))
    opening = b"\0" + tiles["opening"].encode()
    assert tiles["tiles"] == [write_base64(hash_leaf(opening))]
    shown = await ask(sender, encode_history(NoteQuestion(tree=origin)))
    assert shown["opening"]["note"] == tiles["opening"]
    assert await ask(sender, encode_history(NoteQuestion(tree=origin, old=9))) == {}
    beyond = encode_history(TilesQuestion(tree=origin, first=0, count=1, size=9))
    assert refusal(await send(sender, sender.ask_history(beyond))) == (400, "malformed")


async def test_a_second_question_at_the_same_time_is_told_to_wait(
    asked: tuple[Site, V2Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sender = asked
    going, release = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> RangeAnswer:
        going.set()
        await release.wait()
        return RangeAnswer(proof=(), note="")

    monkeypatch.setattr(answering.HistoryAnswers, "_read", slow)
    question = encode_history(RangeQuestion(tree="t", first=1, last=1))
    first = asyncio.ensure_future(send(sender, sender.ask_history(question)))
    await going.wait()
    assert refusal(await send(sender, sender.ask_history(question))) == (429, "too_many_requests")
    release.set()
    assert (await first).status == 200


async def test_a_node_without_a_history_answers_as_an_older_one(sites: MakeSites) -> None:
    (node,) = sites("b")
    await node.start()
    await node.join(**PLAIN_GROUP)
    sender = V2Sender(node.port)
    assert refusal(await send(sender, sender.ask_history(KEYS))) == (404, "not_found")
    assert node.running.groups["edge"].ingress.counter.counts.rejected == 0, (
        "it is no refusal that an operator should see"
    )


@pytest.mark.parametrize("header", ["nonsense", "(1 1)", "x" * 8000, '(1 7);t="' + "t" * 16 + '"'])
async def test_a_batch_is_stored_whatever_it_says_of_leaves(asked: tuple[Site, V2Sender], header: str) -> None:
    node, sender = asked
    batch = sender.batch(line("e1"), line("e2"))
    request = batch.replace(b"\r\nContent-Length", b"\r\nEventd-Leaves: " + header.encode() + b"\r\nContent-Length", 1)
    reply = await send(sender, request)
    assert (reply.status, json.loads(reply.body)["accepted"]) == (200, 2)
    rows = await node.rows("SELECT places FROM leaf_hints")
    assert len(rows) == header.startswith("(1 7)")
