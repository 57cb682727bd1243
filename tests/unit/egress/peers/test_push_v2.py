"""Delivery by v2: batches that a peer accepts, accepts in part, and refuses, with its reason."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from eventd.egress.loop.sink import LONGEST, Ack, Blocked, LinkError
from eventd.egress.peers.outbound_batch import OutboundLines, PeerBatch
from eventd.egress.peers.push_v2 import BATCH_IDS, Link, PushV2
from eventd.egress.transport.transport import Transport
from eventd.log.core.values import Head
from eventd.net.exchange import Answer
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from federation.batch import decode_batch
from federation.errors import TooLarge
from federation.event import from_micros
from federation.keys import KeyRing
from federation.peers import BATCH_TYPE, RUNS_TYPE, Limits
from federation.runs import Run
from federation.signing import Receiver, Request, sign_answer, verify_request
from federation.wire import (
    MARK_QUERY,
    REOPEN_QUERY,
    REPAIR_QUERY,
    BatchHeader,
    Receipt,
    Refusal,
    answer_to,
    encode_json,
)

RING = KeyRing.shared("0123456789abcdef0123456789abcdef")
HEAD = Head(3, "epoch", 1, registry_version=1, parts_version=1, topics_version=1, unsynced="")
Reply = Callable[[list[int]], int | str | list[Refusal]]


class Peer(Transport):
    """A peer that answers what `reply` says of the positions of a batch: a status, a body with 503, or refusals.

    A 413 is signed, and names `limit` bytes; without a limit it is as a stranger would say it.
    """

    limit: int | None = None
    mark: int | None = None
    """How far it says it has everything of the link; None: up to the end of the batch."""
    takes: tuple[str, ...] = ()
    """The forms that it says it takes; without any, it knows of lines alone and says nothing."""

    def __init__(self, clock: ManualClock, reply: Reply) -> None:
        self._clock = clock
        self._reply = reply
        self.taken: list[int] = []
        self.forms: list[str] = []
        self.bodies: list[bytes] = []

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float, most: int = 0, **_tls: Any
    ) -> Answer:
        self.forms.append(headers["Content-Type"])
        self.bodies.append(body)
        if headers["Content-Type"] not in (self.takes or (BATCH_TYPE,)):
            return Answer(415, {}, b"")
        request = Request("POST", "/v2/events", headers, body)
        now = self._clock.now()
        proven = verify_request(request, Receiver("b", "edge", RING), now=now)
        assert isinstance(proven.header, BatchHeader)
        lines, unreadable = decode_batch(body, proven.header.range, Limits(), form=proven.header.form)
        positions = [line.position for line in [*lines, *unreadable]]
        said = self._reply(positions)
        if said == 413 and self.limit is not None:
            told = encode_json(answer_to(TooLarge("too large", limit=self.limit, unit="bytes")))
            signed = sign_answer(proven, 413, told, RING.keys[0], now=now)
            return Answer(413, {name.lower(): value for name, value in signed.items()}, told)
        if isinstance(said, int):
            return Answer(said, {}, b"")
        if isinstance(said, str):
            return Answer(503, {}, said.encode())
        self.taken += positions
        claim = proven.header.range
        receipt = Receipt(
            group="edge", from_node="a", to_node="b", batch=proven.header.batch_id, digest=proven.digest,
            epoch=claim.epoch, incarnation=claim.incarnation, upto=claim.upto if self.mark is None else self.mark,
            accepted=len(positions) - len(said), duplicates=0, refused=tuple(said), recorded_at=from_micros(now),
        )  # fmt: skip
        answer = encode_json(receipt)
        assert len(answer) <= most or max(len(one.reason) for one in said) > 128
        found = sign_answer(proven, 200, answer, RING.keys[0], now=now)
        accept = {"accept": ", ".join(self.takes)} if self.takes else {}
        return Answer(200, {name.lower(): value for name, value in found.items()} | accept, answer)


def _push(reply: Reply, *, repair: bool = False) -> tuple[PushV2, Peer]:
    clock = ManualClock()
    peer = Peer(clock, reply)
    link = Link("peer:edge/b", "edge", "a", "b", "http://b", 1.0, 300 * SECOND, 1, repair)
    numbers = itertools.count()
    return PushV2(
        link, peer, lambda: RING, clock, lambda size: (next(numbers) << 40).to_bytes(size), lambda _: None
    ), peer


def _load(count: int) -> PeerBatch:
    text = "".join(f'{position}\t\t{{"id":"e{position}"}}\n' for position in range(1, count + 1))
    return PeerBatch(0, count, "epoch", 1, OutboundLines(text.encode(), count, 1))


def _in_parts(most: int, *down: int) -> Reply:
    """A peer that takes at most so many lines at once, and is down when one of these positions comes."""

    def reply(positions: list[int]) -> int | list[Refusal]:
        if len(positions) > most:
            return 413
        return 503 if set(positions) & set(down) else []

    return reply


def _runs(count: int) -> PeerBatch:
    events = "".join(f'{{"id":"e{position}"}}\n' for position in range(1, count + 1)).encode()
    return PeerBatch(0, count, "epoch", 1, OutboundLines(Run(1, count, "", events).encode(), count, 1, RUNS_TYPE))


async def test_a_receipt_beyond_the_log_blocks_the_link() -> None:
    push, peer = _push(lambda positions: [])
    push.head, peer.mark = HEAD, HEAD.last + 1
    with pytest.raises(Blocked, match="up to position 3 of the epoch epoch, but this log ends at position 2") as held:
        await push.push(_load(2))
    assert held.value.reason == "impossible_mark"


async def test_the_receipt_of_a_repair_may_tell_of_what_its_link_has_brought_meanwhile() -> None:
    push, peer = _push(lambda positions: [], repair=True)
    push.head, peer.mark = HEAD, HEAD.last + 1
    assert (await push.push(_load(2))).upto == 2


async def test_a_peer_is_known_to_take_runs_by_its_receipt() -> None:
    push, peer = _push(lambda positions: [])
    assert not push.takes_runs
    await push.push(_load(2))
    assert not push.takes_runs
    peer.takes = (BATCH_TYPE, RUNS_TYPE)
    await push.push(_load(2))
    assert push.takes_runs
    ack = await push.push(_runs(3))
    assert (ack.upto, peer.taken[-3:], peer.forms[-1]) == (3, [1, 2, 3], RUNS_TYPE)


async def test_a_peer_that_takes_runs_no_more_gets_lines_at_once() -> None:
    """It may be an older program by now, or another one behind the same address."""
    push, peer = _push(lambda positions: [])
    push.takes_runs = True
    ack = await push.push(_runs(3))
    assert (ack.upto, ack.failure, peer.taken) == (3, None, [1, 2, 3])
    assert peer.forms == [RUNS_TYPE, BATCH_TYPE]
    assert not push.takes_runs
    peer.takes = (BATCH_TYPE, RUNS_TYPE)
    await push.push(_load(2))
    assert not push.takes_runs, "who is in between may refuse them again and again"


async def test_runs_that_are_too_large_go_in_halves_of_lines() -> None:
    push, peer = _push(_in_parts(2))
    peer.takes = (BATCH_TYPE, RUNS_TYPE)
    ack = await push.push(_runs(5))
    assert (ack.upto, ack.failure, peer.taken) == (5, None, [1, 2, 3, 4, 5])
    assert set(peer.forms[1:]) == {BATCH_TYPE}


async def test_what_is_too_large_goes_in_halves() -> None:
    push, peer = _push(_in_parts(2))
    ack = await push.push(_load(7))
    assert (ack.upto, ack.failure, peer.taken) == (7, None, [1, 2, 3, 4, 5, 6, 7])
    assert [(batch.after, batch.upto) for batch in ack.batches] == [(0, 1), (1, 3), (3, 5), (5, 7)]


@pytest.mark.parametrize("repair", [False, True], ids=["range", "repair"])
async def test_a_half_that_fails_in_its_own_half_ends_the_delivery_there(repair: bool) -> None:
    """For a repair nothing but this tells that a part in the middle is missing: it has no range."""
    push, peer = _push(_in_parts(1, 2), repair=repair)
    ack = await push.push(_load(4))
    assert isinstance(ack, Ack)
    assert (ack.upto, peer.taken) == (1, [1])
    assert ack.failure is not None
    assert ack.failure.reason == "http_503"


def _refusing(position: int) -> Reply:
    return lambda positions: 413 if position in positions else []


@pytest.mark.parametrize("repair", [False, True], ids=["range", "repair"])
async def test_one_record_that_the_peer_itself_calls_too_large_is_parked(repair: bool) -> None:
    push, peer = _push(_refusing(2), repair=repair)
    peer.limit = 5
    ack = await push.push(_load(4))
    assert (ack.upto, ack.failure, peer.taken) == (4, None, [1, 3, 4])
    assert [(one.record.position, one.reason) for one in ack.refused] == [(2, "too_large")]


@pytest.mark.parametrize("limit", [None, 1000], ids=["unsigned", "of another body"])
@pytest.mark.parametrize("repair", [False, True], ids=["range", "repair"])
async def test_a_413_that_proves_nothing_blocks_the_link_and_parks_nothing(repair: bool, limit: int | None) -> None:
    push, peer = _push(_refusing(2), repair=repair)
    peer.limit = limit
    ack = await push.push(_load(4))
    assert (ack.upto, peer.taken, list(ack.refused)) == (1, [1], [])
    assert isinstance(ack.failure, Blocked)
    assert ack.failure.reason == "unproven_too_large"
    with pytest.raises(Blocked, match="one event alone"):
        await _push(_refusing(1))[0].push(_load(1))


@pytest.mark.parametrize("code", ["x" * 100_000, "\u0000\u001b[2J", "made_up", ""])
async def test_what_an_answer_says_is_kept_short_and_plain_and_its_code_is_one_of_ours(code: str) -> None:
    error: dict[str, Any] = {"code": code, "message": "no\u0000\u001b[31m" + "o" * 100_000, "serverTime": "t" * 9000}
    push, _ = _push(lambda _: json.dumps({"error": error}))
    with pytest.raises(LinkError) as held:
        await push.push(_load(1))
    assert held.value.reason == "http_503"
    assert len(held.value.detail) <= LONGEST
    assert held.value.detail.isprintable()


async def test_the_code_of_an_error_we_know_is_the_reason() -> None:
    push, _ = _push(lambda _: '{"error":{"code":"full","message":"no room"}}')
    with pytest.raises(LinkError) as held:
        await push.push(_load(1))
    assert (held.value.reason, held.value.detail) == ("full", "the peer answered 503 full: no room")


async def test_a_receipt_that_refuses_every_line_is_not_too_long() -> None:
    longest = "ü" * 512
    push, _ = _push(lambda positions: [Refusal(at, longest, "source_not_allowed") for at in positions])
    text = "".join(f'{10**14 + at}\t\t{{"id":"{longest}"}}\n' for at in range(500))
    ack = await push.push(PeerBatch(0, 10**14 + 500, "epoch", 1, OutboundLines(text.encode(), 500, 1)))
    assert len(ack.refused) == 500


async def test_the_reason_a_peer_gives_for_a_refusal_is_kept_short_and_plain() -> None:
    push, _ = _push(lambda positions: [Refusal(positions[0], "", "bad\u0000" * 100_000)])
    [parked] = (await push.push(_load(2))).refused
    assert parked.reason == ("bad " * LONGEST)[:LONGEST]


async def test_a_receipt_lets_go_of_its_own_batch_alone_and_few_are_remembered() -> None:
    """The others are still under way: sent again, they must be known for the same batches."""
    push, _ = _push(_in_parts(1000, 5))
    first, second = _load(2), _load(6)
    with pytest.raises(LinkError):
        await push.push(second)
    under_way = dict(push._batch_ids)
    await push.push(first)
    assert push._batch_ids == under_way
    assert len(under_way) == 1
    for count in range(6, 6 + 2 * BATCH_IDS):
        with pytest.raises(LinkError):
            await push.push(_load(count))
    assert len(push._batch_ids) == BATCH_IDS


@pytest.mark.parametrize(
    ("repair", "start", "body"),
    [(False, True, MARK_QUERY), (False, False, REOPEN_QUERY), (True, True, REPAIR_QUERY), (True, False, REPAIR_QUERY)],
    ids=["start", "no-start", "repair", "reopened-repair"],
)
async def test_a_query_says_whether_it_is_of_a_start_or_a_repair(repair: bool, start: bool, body: bytes) -> None:
    push, peer = _push(lambda positions: [], repair=repair)
    with pytest.raises(LinkError):
        await push.mark(start=start)
    assert peer.bodies == [body]
