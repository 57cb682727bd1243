"""Peers that lie about what they hold, or cannot prove it: a comparison ends, and no lie becomes a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eventd.api.verify import pages
from eventd.egress.peers import questions
from eventd.errors import Conflict, Unavailable
from federation.keys import KeyRing
from tests.integration.conftest import MakeSites
from tests.support.answering_peer import Replies, says
from tests.support.declared import peer
from tests.support.flaky_peer import FixedResponse, FlakyPeer, ReceivedRequest
from tests.support.ports import free_port
from tests.support.sites import Site
from tests.support.v2_sender import SECRET

RING = KeyRing.shared(SECRET)
HONEST = {"history": "h", "upto": 10, "mark": None, "since": None, "gaps": []}


async def _verify(sites: MakeSites, behave: Callable[[ReceivedRequest], FixedResponse]) -> dict[str, Any]:
    """The report about a peer that behaves like this and has acknowledged one event."""
    (a,) = sites("a")
    await a.start()
    with FlakyPeer(free_port(), behave) as liar:
        await a.join()
        await a.apply(peer("b", liar.port))
        await a.emit("e1")
        await a.caught_up("b")
        return await _drive(a)


async def _drive(a: Site) -> dict[str, Any]:
    told = await a.ask("links.verify", group="edge", peer="b", seconds=0)
    while not told["done"]:
        told = await a.ask("links.verify", group="edge", peer="b", run=told["run"], seconds=0)
    report: dict[str, Any] = told["report"]
    return report


def _answers(**other: Any) -> Replies:
    answers = {
        "state": HONEST,
        "sums": {"buckets": [], "next": None},
        "ids": {"events": [], "next": None},
        "known": {"unknown": [0], "gone": [], "other": []},
    } | other
    return lambda question: answers[question["ask"]]


async def test_a_peer_that_holds_nothing_lacks_all_it_has_acknowledged(sites: MakeSites) -> None:
    report = await _verify(sites, says(_answers()))
    assert [gap["ids"] for gap in report["events"]["gaps"]] == [["e1"]]


async def test_an_answer_that_is_not_signed_by_the_peer_is_no_result(sites: MakeSites) -> None:
    other = KeyRing.shared("not the secret of the group, is it")
    with pytest.raises(Conflict, match="b sent an invalid answer"):
        await _verify(sites, says(_answers(), ring=other))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"sums": {"buckets": [], "next": 0}}, "answer of b ends at position 0; it must be after 0"),
        ({"sums": {"buckets": [], "next": 11}}, "answer of b ends at position 11; it must be after 0"),
        ({"sums": {"buckets": [[1, 2, 3]], "next": None}}, "form that the question requires"),
        ({"sums": {"buckets": [[1, 0, -1, "0123456789abcdef"]], "next": None}}, "form that the question requires"),
        ({"state": {"upto": -1}}, "form that the question requires"),
        (
            {"known": {"unknown": [], "gone": []}, "ids": {"events": [], "next": 0}},
            "answer of b ends at position 0; it must be after 0",
        ),
    ],
)
async def test_an_answer_that_makes_no_sense_ends_the_comparison(
    sites: MakeSites, other: dict[str, Any], words: str
) -> None:
    with pytest.raises(Conflict, match=words):
        await _verify(sites, says(_answers(**other)))


@pytest.mark.parametrize("asked", ["sums", "ids"])
async def test_a_peer_that_reports_a_position_at_a_time_is_given_up(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setattr(pages, "MOST_PAGES", 20)
    others = _answers(state=HONEST | {"upto": 1 << 40}, known={"unknown": [], "gone": [], "other": []})
    empty = {"buckets": []} if asked == "sums" else {"events": []}

    def reply(question: dict[str, Any]) -> Any:
        return empty | {"next": question["after"] + 1} if question["ask"] == asked else others(question)

    with pytest.raises(Conflict, match="b has not reported all that it was asked for in 20 answers"):
        await _verify(sites, says(reply))


async def test_answers_that_contradict_each_other_come_to_an_end(sites: MakeSites) -> None:
    """It knows the event, holds another of another time, lists none, and knows nothing under the places it names."""
    sums = {"buckets": [[5, 0, 7, "0123456789abcdef"]], "next": None}
    known = {"unknown": [7, 8], "gone": [9], "other": [5]}
    report = await _verify(sites, says(_answers(sums=sums, known=known)))
    assert not report["clean"]
    assert report["events"]["unresolved"] == 3  # both buckets, and the event that it knows and does not list
    assert (report["events"]["missing"], report["events"]["extra"]) == (0, 0)


async def test_a_peer_that_knows_an_id_and_does_not_list_its_record_is_not_clean(sites: MakeSites) -> None:
    """An older program answers from its ids alone: what it does not list is neither proven missing nor proven held."""
    report = await _verify(sites, says(_answers(known={"unknown": [], "gone": [], "other": []})))
    assert not report["clean"]
    assert (report["events"]["unresolved"], report["events"]["missing"]) == (1, 0)


async def test_a_history_that_ends_again_and_again_ends_the_comparison(sites: MakeSites) -> None:
    replies = lambda question: HONEST if question["ask"] == "state" else None  # noqa: E731  # short enough as it is

    def behave(heard: ReceivedRequest) -> FixedResponse:
        if heard.path == "/v2/verify" and b'"state"' not in heard.body:
            return FixedResponse(409, (), b'{"error":{"code":"other_history","message":"gone"}}')
        return says(replies)(heard)

    with pytest.raises(Conflict, match="began new epochs 3 times"):
        await _verify(sites, behave)


async def test_a_peer_that_is_always_busy_is_given_up(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "BUSY_SECONDS", 0.5)

    def behave(heard: ReceivedRequest) -> FixedResponse:
        busy = FixedResponse(429, (), b'{"error":{"code":"too_many_requests","message":"later"}}')
        return busy if heard.path == "/v2/verify" else says(_answers())(heard)

    with pytest.raises(Unavailable, match="b cannot be queried: the peer answered 429 too_many_requests: later"):
        await _verify(sites, behave)
