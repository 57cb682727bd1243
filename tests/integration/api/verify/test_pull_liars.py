"""Peers that return what they were not asked for, or without proof: nothing of such an answer is stored."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.api.verify import pages, pull_budget, pulling, returned_check
from eventd.errors import Conflict, Unavailable
from eventd.log.core.values import Draft
from eventd.log.delivery.returned import StoreReturned
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from federation.batch import encode_batch
from federation.keys import KeyRing
from federation.returned import gives_digest
from tests.integration.conftest import MakeSites
from tests.support.answering_peer import Behaviour, Replies, says
from tests.support.declared import peer
from tests.support.flaky_peer import FixedResponse, FlakyPeer, Hang
from tests.support.ports import free_port
from tests.support.v2_sender import line

BATCH = "019e78a1-7000-7abc-8def-0123456789ab"
STATE = {"history": "h", "upto": 10, "mark": None, "since": None, "gaps": []}
LISTED = {"events": [["e1", "0" * 16]], "next": None}


def _receipt(*bodies: str, digest: str = "", **other: Any) -> dict[str, Any]:
    """A receipt of the batch of these events at the positions from 1 on; `digest` is that of other content."""
    body = encode_batch((at, "", each) for at, each in enumerate(bodies, 1))
    found = base64.b64encode(hashlib.sha256(body).digest()).decode()
    receipt = {
        "group": "edge",
        "from": "a",
        "to": "b",
        "batch": BATCH,
        "digest": digest or f"sha-256=:{found}:",
        "epoch": "old",
        "incarnation": 1,
        "upto": len(bodies),
        "accepted": len(bodies),
        "duplicates": 0,
        "refused": [],
        "recordedAt": "2026-01-01T00:00:00Z",
    }
    ids = [json.loads(each)["id"] for each in bodies]
    covered = f'epoch="old", incarnation=1, after=0, upto={len(bodies)}'
    return {"receipt": json.dumps(receipt | other), "range": covered, "ids": ids}


def _returns(*bodies: str, **other: Any) -> Replies:
    events = [[index, body] for index, body in enumerate(bodies)]
    answers = {"state": STATE, "ids": LISTED, "events": {"events": events, "receipts": [], "next": None}} | other
    return lambda question: answers[question["ask"]]


async def _pull(sites: MakeSites, behave: Behaviour, **params: Any) -> Any:
    """The answer to one call."""
    (a,) = sites("a")
    await a.start()
    await a.join()
    with FlakyPeer(free_port(), behave) as liar:
        await a.apply(peer("b", liar.port))
        try:
            return await a.ask("links.pull", group="edge", peer="b", acceptUnproven=True, **params)
        except Conflict:
            assert await a.ids() == []
            raise


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (line("e1", node="c"), "is of the source c, not a"),
        (line("e2", node="a"), "the event e2 was returned for the id e1"),
        (line("e1", node="a", group="other"), "is of the group other"),
        (line("e1", node="a").replace('{"', '{ "', 1), "cannot be read"),
        ("nonsense", "cannot be read"),
        (line("e1", node="a", payload={"x": "y" * (1 << 20)}), "the limit of the group"),  # type: ignore[arg-type]
    ],
    ids=["of another source", "another event", "of another group", "not canonical", "not an event", "too large"],
)
async def test_an_event_that_was_not_asked_for_ends_the_pull(sites: MakeSites, body: str, message: str) -> None:
    with pytest.raises(Conflict, match="b sent an invalid answer, and nothing of it was stored") as refused:
        await _pull(sites, says(_returns(body)))
    assert message in refused.value.message


async def test_an_event_under_a_known_id_is_not_asked_for_and_not_replaced(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    await a.emit("e1")
    before = await a.stored()
    with FlakyPeer(free_port(), says(_returns(line("e1", node="a", subject="other")))) as liar:
        await a.apply(peer("b", liar.port))
        answer = await a.ask("links.pull", group="edge", peer="b", acceptUnproven=True)
    assert (answer["lacking"], answer["next"]) == (0, None)
    assert await a.stored() == before


async def test_an_answer_that_is_not_signed_by_the_peer_is_refused(sites: MakeSites) -> None:
    other = KeyRing.shared("not the secret of the group, is it")
    with pytest.raises(Conflict, match="b sent an invalid answer"):
        await _pull(sites, says(_returns(line("e1", node="a")), ring=other))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"ids": {"events": [], "next": 0}}, "it must be after 0, and at most 10"),
        ({"events": {"events": [], "next": 0}}, "the answer ends at the index 0"),
        ({"events": {"events": [], "next": 1}}, "the answer ends at the index 1"),
    ],
)
async def test_an_answer_that_makes_no_progress_is_refused(
    sites: MakeSites, answer: dict[str, Any], message: str
) -> None:
    with pytest.raises(Conflict, match=message):
        await _pull(sites, says(_returns(**answer)))


async def test_endless_pages_end(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_PAGES", 20)

    def reply(question: dict[str, Any]) -> Any:
        if question["ask"] == "state":
            return STATE | {"upto": 1 << 40}
        return {"events": [], "next": question["after"] + 1}

    with pytest.raises(Conflict, match="b has not reported all that it was asked for in 20 answers"):
        await _pull(sites, says(reply))


@pytest.mark.parametrize(
    ("other", "named"), [({}, 1), ({"digest": "sha-256=:AAAA:"}, 0), ({"accepted": 2}, 0), ({"duplicates": 1}, 0)]
)
async def test_a_receipt_of_other_content_does_not_name_an_event(
    sites: MakeSites, other: dict[str, Any], named: int
) -> None:
    body = line("e1", node="a")
    page = {"events": [[0, body, 0]], "receipts": [_receipt(body, **other)], "next": None}
    answer = await _pull(sites, says(_returns(events=page)), dryRun=True)
    assert (answer["byReceipt"], answer["confirmed"], answer["unproven"]) == (named, 0, 1 - named)


@pytest.mark.parametrize(
    "other", [{"from": "c"}, {"to": "c"}, {"group": "other"}, {"epoch": "young"}, {"recordedAt": "never"}]
)
async def test_a_receipt_of_another_link_is_refused(sites: MakeSites, other: dict[str, Any]) -> None:
    body = line("e1", node="a")
    page = {"events": [[0, body, 0]], "receipts": [_receipt(body, **other)], "next": None}
    with pytest.raises(Conflict, match="b sent an invalid answer"):
        await _pull(sites, says(_returns(events=page)))


async def test_a_receipt_that_contradicts_the_ledger_of_this_node_is_refused(sites: MakeSites) -> None:
    """The peer gave one receipt when it took the batch, and shows another one for it now."""
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    await a.apply(peer("b", b.port))
    await a.emit("e1")
    await a.caught_up("b")

    def lose(conn: Connection) -> str:
        execute(conn, "DELETE FROM blocks")
        return str(fetch(conn, "SELECT batch_id FROM batches WHERE status = 200")[0][0])

    batch = await a.running.log.database.write(lose)

    def lie(conn: Connection) -> None:
        [(receipt,)] = fetch(conn, "SELECT receipt FROM inbound_batches WHERE batch_id = ?", (batch,))
        lying = json.dumps(json.loads(receipt) | {"digest": "sha-256=:AAAA:"})
        execute(conn, "UPDATE inbound_batches SET receipt = ? WHERE batch_id = ?", (lying, batch))

    assert (await a.ask("links.pull", group="edge", peer="b", dryRun=True))["confirmed"] == 1
    await b.running.log.database.write(lie)
    with pytest.raises(Conflict, match="is another one than in this node's ledger"):
        await a.ask("links.pull", group="edge", peer="b", acceptUnproven=True)


async def test_an_invented_event_with_an_invented_receipt_is_not_confirmed(sites: MakeSites) -> None:
    """The receipt is the word of the peer: only the ledger of this node could confirm it."""
    body = line("e1", node="a")
    page = {"events": [[0, body, 0]], "receipts": [_receipt(body)], "next": None}
    answer = await _pull(sites, says(_returns(events=page)), dryRun=True)
    assert (answer["byReceipt"], answer["confirmed"]) == (1, 0)


async def test_a_stored_event_is_marked_as_confirmed_by_the_ledger_of_this_node(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    await a.apply(peer("b", b.port))
    await a.emit("e1")
    await a.caught_up("b")

    def lose(conn: Connection) -> None:
        for table in ("blocks", "event_ids"):
            execute(conn, f"DELETE FROM {table}")

    await a.running.log.database.write(lose)
    assert (await a.ask("links.pull", group="edge", peer="b"))["stored"] == 1
    mark = (await a.ask("events.describe", group="edge", id="e1"))["event"]["returned"]
    assert (mark["byReceipt"], mark["confirmed"]) == (True, True)


def _lists(number: int, answer: Callable[[list[str]], Any]) -> Replies:
    """Replies of a peer that lists this many events, and answers the question for some with `answer`."""
    listed = {"events": [[f"e{at}", "0" * 16] for at in range(number)], "next": None}
    return lambda asked: {"state": STATE, "ids": listed}.get(asked["ask"]) or answer(asked["ids"])


@pytest.mark.parametrize("large", [[0, 0], [1, 0], [2], [0]], ids=["twice", "descending", "not asked for", "returned"])
async def test_large_events_that_were_not_asked_for_once_are_refused(sites: MakeSites, large: list[int]) -> None:
    events = [[0, line("e0", node="a"), None]] if large == [0] else []
    page = {"events": events, "large": large, "next": None}
    with pytest.raises(Conflict, match="as too large"):
        await _pull(sites, says(_lists(2, lambda ids: page)))


async def test_an_answer_of_large_events_is_counted_once(sites: MakeSites) -> None:
    answer = await _pull(sites, says(_lists(3, lambda ids: {"events": [], "large": [0, 2], "next": None})))
    assert (answer["lacking"], answer["left"]) == (3, {"tooLarge": 2, "notReturned": 1})


async def test_each_answer_is_stored_before_the_next_question(sites: MakeSites) -> None:
    """A peer returns one event at a time: a call without time ends after the first, and the next one continues."""

    def one(ids: list[str]) -> Any:
        return {"events": [[0, line(ids[0], node="a"), None]], "next": 1 if len(ids) > 1 else None}

    (a,) = sites("a")
    await a.start()
    await a.join()
    with FlakyPeer(free_port(), says(_lists(3, one))) as liar:
        await a.apply(peer("b", liar.port))
        after: str | None = ""
        for number in range(1, 4):
            answer = await a.ask("links.pull", group="edge", peer="b", acceptUnproven=True, seconds=0, after=after)
            assert (answer["lacking"], answer["stored"]) == (1, 1)
            assert await a.ids() == [f"e{at}" for at in range(number)]
            after = answer["next"]
        assert after is None


async def test_events_are_stored_in_transactions_of_bounded_size(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    class Counted(StoreReturned):
        def __init__(self, topic_id: int, drafts: Sequence[Draft], *others: Any, **named: Any) -> None:
            sizes.append(sum(len(draft.body) for draft in drafts))
            super().__init__(topic_id, drafts, *others, **named)

    monkeypatch.setattr(pulling, "StoreReturned", Counted)
    monkeypatch.setattr(pulling, "STORED_BYTES", 100_000)
    bodies = [line(f"e{at}", node="a", payload={"x": "y" * 30_000}) for at in range(7)]  # type: ignore[arg-type]
    page = {"events": [[at, body, None] for at, body in enumerate(bodies)], "next": None}
    answer = await _pull(sites, says(_lists(7, lambda ids: page)))
    assert answer["stored"] == 7
    assert len(sizes) == 3
    assert max(sizes) <= 100_000


async def test_a_call_ends_after_a_bounded_number_of_questions(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_budget, "MOST_QUESTIONS", 5)
    answer = await _pull(sites, says(_lists(100, lambda ids: {"events": [], "next": 1})), seconds=50)
    assert (answer["lacking"], answer["left"]) == (3, {"notReturned": 3})
    assert answer["next"] == "h:10:0:0:3"


async def test_a_peer_that_never_answers_in_time_ends_the_call(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time ends a question, too, and not only the call between two of them."""
    monkeypatch.setattr(pull_budget, "GRACE_SECONDS", 0.5)
    with pytest.raises(Unavailable, match="b takes too long to answer"):
        await _pull(sites, lambda heard: Hang() if heard.path == "/v2/verify" else FixedResponse(503), seconds=0)


async def test_a_call_ends_when_the_client_has_left(sites: MakeSites) -> None:
    """It asks nothing more: the peer would have answered event by event for hours."""
    questions: list[str] = []
    waits = True

    def reply(ids: list[str]) -> Any:
        nonlocal waits
        questions.append(ids[0])
        waits = len(questions) < 3
        return {"events": [], "next": 1}

    (a,) = sites("a")
    await a.start()
    await a.join()
    with FlakyPeer(free_port(), says(_lists(100, reply))) as liar:
        await a.apply(peer("b", liar.port))
        services = Services(a.running.log, client_waits=lambda: waits)
        answer = await pulling.pull(services, pulling.Pull(group="edge", peer="b", seconds=50))
    assert (questions, answer["lacking"]) == (["e0", "e1", "e2"], 3)


async def test_forged_receipts_end_the_call_by_the_bytes_that_are_hashed(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the events has its own receipt of all of them. The call returns where the next one continues."""
    monkeypatch.setattr(pull_budget, "HASHED_BYTES", 1)
    bodies = [line(f"e{at}", node="a") for at in range(4)]
    receipts = [_receipt(*bodies, digest="sha-256=:AAAA:", batch=f"{BATCH[:-1]}{at}", upto=100_000) for at in range(4)]
    page = {"events": [[at, body, at] for at, body in enumerate(bodies)], "receipts": receipts, "next": None}
    answer = await _pull(sites, says(_lists(4, lambda ids: page)), dryRun=True, seconds=50)
    assert (answer["lacking"], answer["next"]) == (1, "h:10:0:0:1")


async def test_receipts_are_checked_outside_of_the_event_loop(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def check(*given: Any) -> bool:
        threads.append(threading.get_ident())
        return gives_digest(*given)

    monkeypatch.setattr(returned_check, "gives_digest", check)
    body = line("e1", node="a")
    await _pull(sites, says(_returns(events={"events": [[0, body, 0]], "receipts": [_receipt(body)], "next": None})))
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
