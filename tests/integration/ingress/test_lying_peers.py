"""Peers that hold a valid key and lie about what they have: a node does not spin, and loses nothing for the others."""

from __future__ import annotations

import asyncio

import pytest

from eventd.egress.loop import consumer
from eventd.testing import until
from federation.ranges import Mark
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.flaky_peer import FlakyPeer
from tests.support.lying_peer import LyingReceiver
from tests.support.ports import free_port
from tests.support.sites import Site
from tests.support.topics import Topics
from tests.support.v2_sender import V2Sender

SLOW = {"retry": {"baseBackoff": "1h", "maxBackoff": "2h"}}
FAST = {"retry": {"baseBackoff": "1ms", "maxBackoff": "2ms"}}


async def _call(a: Site) -> None:
    """The peer asks where it stands, as one does that was started; so it is asked the same."""
    sender = V2Sender(a.port, node="b", to="a")
    assert (await asyncio.to_thread(sender.send, sender.query())).status == 200


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "REOPEN_AFTER", 0.0)


async def test_a_peer_that_claims_more_than_there_is_blocks_its_own_link_and_nothing_else(sites: MakeSites) -> None:
    a, c = sites("a", "c")
    for node in (a, c):
        await node.start()
        await node.join()
    topics = Topics(a.running.log)
    await topics.make("unrelated")
    await topics.put("unrelated", 1, 2)
    begun = await topics.slice("unrelated", 0)
    [(epoch,)] = await a.rows("SELECT epoch FROM log_heads")
    liar = LyingReceiver(lambda epoch: Mark(epoch=epoch, incarnation=0, upto=10**14, base=0) if epoch else None)
    liar.epochs.append(epoch)  # another peer knows it
    with FlakyPeer(free_port(), liar) as b:
        await a.apply(peer("b", b.port, **FAST), peer("c", c.port))
        await a.emit("e1")
        for turn in range(5):
            asked = len(b.heard)
            await _call(a)
            await until(lambda asked=asked: len(b.heard) > asked, "the liar to be asked")  # type: ignore[misc]
            await a.emit(f"t{turn}")
        blocked = await a.in_state("b", "blocked", "impossible_mark")
        claimed = f"the peer claims to have everything up to position {10**14} of the epoch {epoch}"
        assert blocked.last_error.startswith(f"{claimed}, but this log ends at position ")
        await a.caught_up("c")
        found = (await a.ask("doctor.examine"))["checks"]
        [told] = [check for check in found if check["code"] == "link-blocked"]
        assert "routerd-eventd migrate --new-epoch" in told["remedy"]
        assert "every reader of a topic then gets one gap" in told["remedy"]
        assert liar.batches == 0
    assert await c.ids() == ["e1", *[f"t{turn}" for turn in range(5)]]
    assert await a.rows("SELECT epoch FROM log_heads") == [(epoch,)]
    page = await topics.slice("unrelated", 2, epoch=begun.epoch)
    assert (page.tombstone, page.epoch) == (None, begun.epoch), "its readers have lost nothing, and no loss is reported"


async def test_a_receipt_beyond_the_log_blocks_its_own_link(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    liar = LyingReceiver(lambda _: None)
    liar.receipt_upto = 10**14
    with FlakyPeer(free_port(), liar) as b:
        await a.apply(peer("b", b.port, **SLOW))
        await a.emit("e1")
        blocked = await a.in_state("b", "blocked", "impossible_mark")
    assert (blocked.position, blocked.sent_upto) == (0, 0)


async def test_a_peer_that_takes_all_and_then_has_none_of_it_is_not_fed_without_a_pause(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    liar = LyingReceiver(lambda epoch: Mark(epoch=epoch or "none", incarnation=0, upto=0, base=0), lambda header: True)
    liar.takes = lambda header: header.range.after == 0  # the first batch, and none that follows
    with FlakyPeer(free_port(), liar) as b:
        await a.apply(peer("b", b.port, limits={"batchEvents": 1, "inFlight": 1}, **SLOW))
        await a.emit("e1", "e2", "e3")
        cursor = await a.in_state("b", "backing-off", "rewinds")
        assert cursor.position == 0
        assert cursor.last_error == "the peer's mark went back 2 times: the peer has everything only up to position 0"
        assert liar.batches == 4


async def test_a_peer_that_forgets_all_whenever_it_is_asked_is_not_fed_without_a_pause(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    liar = LyingReceiver(lambda _: None)
    with FlakyPeer(free_port(), liar) as b:
        await a.apply(peer("b", b.port, **SLOW))
        await a.emit("e1")
        await a.caught_up("b")
        await _call(a)
        await until(lambda: liar.batches == 2, "it to get all of it again: it may have lost it")
        await a.caught_up("b")
        for _ in range(3):  # it may call as often as it likes
            await _call(a)
            cursor = await a.in_state("b", "backing-off", "rewinds")
        assert cursor.position == 0
        assert liar.batches == 2
