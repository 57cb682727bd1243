"""What blocks a link, how that is shown, and what ends it: a dead peer delays no other, and no event is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiohttp import ClientSession

from eventd.testing import ManualClock, until
from tests.integration.conftest import MakeSites
from tests.support.declared import PLAIN_GROUP, group, peer
from tests.support.flaky_peer import Deed, Disconnect, FixedResponse, FlakyPeer, Forward, Hang, ReceivedRequest
from tests.support.ports import free_port
from tests.support.sites import Site


@pytest.fixture
def flaky() -> Iterator[FlakyPeer]:
    """A peer that hangs until the test ends it."""
    with FlakyPeer(free_port()) as peer:
        yield peer


def _to(name: str, flaky: FlakyPeer, **spec: object) -> dict[str, object]:
    return peer(name, flaky.port, **spec)


async def _pair(sites: MakeSites) -> tuple[Site, Site]:
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    return a, b


async def test_a_dead_and_a_black_holed_peer_delay_no_other(sites: MakeSites, flaky: FlakyPeer) -> None:
    a, b = await _pair(sites)
    closed = free_port()
    await a.apply(peer("b", b.port), peer("dead", closed), _to("hole", flaky, limits={"timeout": "300ms"}))
    ids = [f"e{number}" for number in range(50)]
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for each in ids:
        await a.emit(each)
    await b.holds(*ids)
    assert loop.time() - begun < 5  # 50 events that waited 300 ms each would take 15 s
    dead = await a.in_state("dead", "backing-off", "unreachable")
    assert dead.last_error == f"cannot connect to 127.0.0.1:{closed}: Connection refused"
    hole = await a.in_state("hole", "backing-off", "timeout")
    assert hole.last_error == "no answer within 0.3 s"
    assert hole.attempts >= 1
    assert hole.retry_at is not None
    shown = await a.link("dead")
    assert (shown["lagEvents"], shown["position"]) == (50, 0)
    assert (await a.link("b"))["state"] == "running"


ANSWERS: tuple[tuple[Deed, str, str], ...] = (
    (FixedResponse(500), "backing-off", "http_500"),
    (FixedResponse(502), "backing-off", "http_502"),
    (FixedResponse(503, (("Retry-After", "30"),)), "backing-off", "http_503"),
    (FixedResponse(429), "backing-off", "http_429"),
    (FixedResponse(507, (), b'{"error":{"code":"full","message":"no room"}}'), "backing-off", "full"),
    (FixedResponse(401), "blocked", "http_401"),
    (FixedResponse(401, (), b'{"error":{"code":"unauthorized","message":"no key"}}'), "blocked", "unauthorized"),
    (FixedResponse(403), "blocked", "http_403"),
    (FixedResponse(301, (("Location", "http://127.0.0.1:1/"),)), "blocked", "http_301"),
    (FixedResponse(200, (), b"{}"), "blocked", "unproven_answer"),
    (FixedResponse(204), "blocked", "http_204"),
    (Disconnect(), "backing-off", "unreachable"),
)


async def test_an_answer_about_the_link_is_told_by_state_and_reason(sites: MakeSites, flaky: FlakyPeer) -> None:
    """Of each of the peers of one node, which all listen on one port."""
    answers = {f"x{number}": answer for number, answer in enumerate(ANSWERS)}
    flaky.behave = lambda heard: answers[_header(heard, "eventd-to")][0]
    (a,) = sites("a")
    await a.start()
    await a.join()
    await a.apply(*[_to(name, flaky) for name in answers])
    await a.emit("one")
    for name, (_, state, reason) in answers.items():
        cursor = await a.in_state(name, state, reason)
        assert cursor.position == 0
    deliveries = await a.deliveries()
    assert {deliveries["one", name] for name in answers} <= {"pending", "failed"}
    assert (await a.ask("dead_letters.list", group="edge"))["deadLetters"] == []


async def test_back_off_doubles_with_jitter_up_to_its_cap(sites: MakeSites) -> None:
    clock = ManualClock()
    (a,) = sites("a", clock=clock)
    await a.start()
    await a.join()
    await a.apply(peer("dead", free_port(), retry={"baseBackoff": "1s", "maxBackoff": "8s"}))
    waits = []
    for attempt in range(1, 8):

        async def failed(attempt: int = attempt) -> bool:
            return (await a.cursor("dead")).attempts == attempt

        await until(failed, f"attempt {attempt} to fail")
        cursor = await a.cursor("dead")
        assert cursor.retry_at is not None
        assert cursor.attempted_at is not None
        waits.append((cursor.retry_at - cursor.attempted_at) / 1e6)
        clock.advance(waits[-1])
    for wait, nominal in zip(waits, [1, 2, 4, 8, 8, 8, 8], strict=True):
        assert 0.8 * nominal <= wait <= nominal, waits
    assert len(set(waits[3:])) == 4  # the cap is jittered too


async def test_retry_after_is_respected(sites: MakeSites, flaky: FlakyPeer) -> None:
    clock = ManualClock()
    flaky.behave = lambda _: FixedResponse(503, (("Retry-After", "Fri, 20 Nov 2026 12:00:25 GMT"),))
    (a,) = sites("a", clock=clock)
    await a.start()
    await a.join()
    clock.set_wall(1_795_176_000_000_000)  # 2026-11-20T12:00:00Z
    await a.apply(_to("x", flaky, retry={"maxBackoff": "30s"}))
    cursor = await a.in_state("x", "backing-off", "http_503")
    assert cursor.retry_at is not None
    assert cursor.attempted_at is not None
    assert 24 <= (cursor.retry_at - cursor.attempted_at) / 1e6 <= 26


async def test_a_blocked_link_is_probed_once_per_cap(sites: MakeSites, flaky: FlakyPeer) -> None:
    clock = ManualClock()
    flaky.behave = lambda _: FixedResponse(401)
    (a,) = sites("a", clock=clock)
    await a.start()
    await a.join(**PLAIN_GROUP)
    await a.apply(_to("x", flaky, retry={"baseBackoff": "1s", "maxBackoff": "60s"}))
    cursor = await a.in_state("x", "blocked", "http_401")
    assert cursor.retry_at is not None
    assert cursor.attempted_at is not None
    assert 48 <= (cursor.retry_at - cursor.attempted_at) / 1e6 <= 60
    assert len(flaky.heard) == 1


async def test_a_link_that_recovers_with_nothing_to_send_is_shown_running(sites: MakeSites, flaky: FlakyPeer) -> None:
    a, b = await _pair(sites)
    flaky.target = b.port
    flaky.behave = lambda _: FixedResponse(500)
    await a.apply(_to("b", flaky))
    await a.in_state("b", "backing-off", "http_500")
    flaky.behave = lambda _: Forward()
    cursor = await a.in_state("b", "running")
    assert (cursor.attempts, cursor.reason, cursor.last_error, cursor.retry_at) == (0, "", "", None)


async def test_a_peer_that_calls_ends_our_back_off(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await a.join()
    await a.apply(peer("b", b.port, retry={"baseBackoff": "100ms", "maxBackoff": "1h"}))

    async def patient() -> bool:
        cursor = await a.cursor("b")
        return cursor.attempts >= 4

    await until(patient, "some attempts")
    await a.emit("one")
    await b.start()
    await b.join(a)  # b asks a where their link stands, which proves that b is up
    await b.holds("one", seconds=3)


async def test_a_call_that_comes_while_our_try_is_failing_counts_too(sites: MakeSites, flaky: FlakyPeer) -> None:
    a, b = await _pair(sites)
    flaky.target = b.port
    answers: list[Deed] = [FixedResponse(401, delay=1.0)]
    flaky.behave = lambda _: answers.pop() if answers else Forward()
    await a.apply(_to("b", flaky, retry={"baseBackoff": "50ms", "maxBackoff": "1h"}))
    await until(lambda: flaky.heard, "the try to be under way")
    await b.apply(peer("a", a.port))
    await b.emit("hello")
    await a.holds("hello")
    assert (await a.cursor("b")).state == "running"  # the answer is still to come
    await a.emit("one")
    await b.holds("one", seconds=5)


async def test_a_link_that_once_spoke_v2_never_falls_back_to_v1(sites: MakeSites, flaky: FlakyPeer) -> None:
    a, b = await _pair(sites)
    flaky.target = b.port
    flaky.behave = lambda heard: Forward() if heard.path == "/v2/link" else FixedResponse(500)
    await a.apply(_to("b", flaky))
    await a.emit("one")
    await a.in_state("b", "backing-off", "http_500")  # v2 was proven, and nothing was delivered yet
    flaky.behave = lambda _: FixedResponse(404)
    cursor = await a.in_state("b", "blocked", "no_v2")
    assert cursor.protocol == "v2"
    assert "/v1/events" not in flaky.paths()


@pytest.mark.parametrize(
    "page",
    [
        FixedResponse(200, (("Content-Type", "text/html; charset=utf-8"),), b"sign in"),
        FixedResponse(202, (), b"\n<!doctype html><p>sign in"),
    ],
)
async def test_a_page_of_a_portal_is_no_delivery_over_v1(
    sites: MakeSites, flaky: FlakyPeer, page: FixedResponse
) -> None:
    a, b = await _pair(sites)
    flaky.target = b.port
    flaky.behave = lambda _: page
    await a.apply(_to("b", flaky, protocol="v1"))
    await a.emit("one")
    cursor = await a.in_state("b", "blocked", "unproven_answer")
    assert cursor.position == 0
    assert (await a.deliveries())["one", "b"] == "failed"
    flaky.behave = lambda _: Forward()
    await b.holds("one")
    await a.caught_up("b")


async def test_a_chatty_peer_does_not_turn_a_blocked_link_into_a_storm_of_probes(
    sites: MakeSites, flaky: FlakyPeer
) -> None:
    a, b = await _pair(sites)
    flaky.behave = lambda _: FixedResponse(401)
    await a.apply(_to("b", flaky, retry={"baseBackoff": "500ms", "maxBackoff": "1h"}))
    await a.in_state("b", "blocked", "http_401")
    await b.apply(peer("a", a.port, limits={"inFlight": 1}))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number in range(20):
        await b.emit(f"e{number}")
        await a.holds(f"e{number}")
    took = loop.time() - begun
    assert len(flaky.heard) <= 3 + took / 0.4


async def test_what_comes_after_a_pause_was_answered_does_not_go_out(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await a.apply(peer("b", b.port))
    assert a.running.api_address is not None
    at = f"http://127.0.0.1:{a.running.api_address[1]}/api/v1/groups/edge/peers/b"
    async with ClientSession() as session:
        for turn in range(2):
            await a.emit(f"before-{turn}")
            await a.caught_up("b")
            async with session.post(f"{at}/pause", json={}) as answer:
                assert answer.status == 200
            await a.emit(f"after-{turn}")
            await asyncio.sleep(0.1)  # twice as long as it would take to notice it by itself
            assert (await a.link("b"))["lagEvents"] == 1
            async with session.post(f"{at}/resume", json={}) as answer:
                assert answer.status == 200


async def test_a_change_of_the_peer_ends_its_back_off(sites: MakeSites, flaky: FlakyPeer) -> None:
    a, b = await _pair(sites)
    await a.apply(peer("b", free_port(), retry={"baseBackoff": "1h", "maxBackoff": "1h"}))
    await a.in_state("b", "backing-off", "unreachable")
    await a.emit("one")
    await a.apply(peer("b", b.port, retry={"baseBackoff": "1h", "maxBackoff": "1h"}))
    await b.holds("one", seconds=3)


async def test_a_change_of_the_groups_keys_ends_every_hold_up_of_the_group(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    wrong = a.directory / "wrong"
    wrong.write_text("another secret altogether")
    await a.apply(group("a", port=a.port, secret=wrong))
    await a.apply(peer("b", b.port, retry={"baseBackoff": "1h", "maxBackoff": "1h"}))
    await a.in_state("b", "blocked", "unauthorized")
    await a.emit("one")
    await a.apply(group("a", port=a.port, secret=a.secret))
    await b.holds("one", seconds=3)


async def test_re_reading_the_keys_ends_every_hold_up(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    right = a.secret.read_text()
    a.secret.write_text("not this one")
    await a.running.reload()
    await a.apply(peer("b", b.port, retry={"baseBackoff": "1h", "maxBackoff": "1h"}))
    await a.in_state("b", "blocked", "unauthorized")
    await a.emit("one")
    a.secret.write_text(right)
    await a.running.reload()
    await b.holds("one", seconds=3)


async def test_a_lost_receipt_is_given_again_and_nothing_is_stored_twice(sites: MakeSites, flaky: FlakyPeer) -> None:
    a, b = await _pair(sites)
    flaky.target = b.port
    cuts = [Disconnect(after=True), Disconnect(after=True)]
    flaky.behave = lambda heard: cuts.pop() if heard.path == "/v2/events" and cuts else Forward()
    await a.apply(_to("b", flaky))
    ids = [f"e{number}" for number in range(20)]
    await a.emit(*ids)
    await a.caught_up("b")
    assert await b.ids() == ids
    assert not cuts
    batches = [heard for heard in flaky.heard if heard.path == "/v2/events"]
    assert len({_header(heard, "eventd-batch") for heard in batches[:3]}) == 1
    assert len({_header(heard, "signature") for heard in batches}) == len(batches)
    assert set((await a.deliveries()).values()) == {"delivered"}
    assert await b.rows("SELECT count(*) FROM inbound_batches") == [(1,)]


def _header(heard: ReceivedRequest, name: str) -> str:
    lines = heard.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return next(line.partition(":")[2].strip() for line in lines if line.lower().startswith(f"{name}:"))


async def test_connections_that_break_under_way_lose_and_double_nothing(sites: MakeSites, flaky: FlakyPeer) -> None:
    a, b = await _pair(sites)
    flaky.target = b.port
    flaky.behave = lambda heard: (
        Disconnect(after=len(flaky.heard) % 2 == 0) if len(flaky.heard) % 5 == 3 else Forward(0.002)
    )
    await a.apply(_to("b", flaky, limits={"batchEvents": 10}))
    ids = [f"e{number:03}" for number in range(200)]
    for start in range(0, 200, 20):
        await a.emit(*ids[start : start + 20])
    await a.caught_up("b", seconds=60)
    assert await b.ids() == ids


async def test_batches_that_overtake_each_other_are_stored_in_order(sites: MakeSites, flaky: FlakyPeer) -> None:
    a, b = await _pair(sites)
    flaky.target = b.port
    delays = iter([0.0, 0.0, 0.3, 0.2, 0.1] + [0.0] * 1000)
    flaky.behave = lambda _: Forward(next(delays))
    ids = [f"e{number:03}" for number in range(100)]
    await a.emit(*ids)
    await a.apply(_to("b", flaky, limits={"batchEvents": 10, "inFlight": 4}))
    await a.caught_up("b")
    assert await b.ids() == ids
    assert flaky.connections >= 3  # several were under way at once
    assert (await b.rows("SELECT base, upto FROM inbound_links"))[0] == (0, 100)
    assert await b.rows("SELECT count(*) FROM inbound_gaps") == [(0,)]


async def test_a_batch_that_waits_too_long_for_the_one_before_it_is_sent_again(
    sites: MakeSites, flaky: FlakyPeer
) -> None:
    a, b = await _pair(sites)
    flaky.target = b.port
    spoiled = []

    def behave(heard: ReceivedRequest) -> Deed:
        batches = [one for one in flaky.heard if one.path == "/v2/events"]
        if heard.path == "/v2/events" and len(batches) == 2 and not spoiled:
            spoiled.append(heard)
            return Hang()
        return Forward()

    flaky.behave = behave
    ids = [f"e{number:03}" for number in range(60)]
    await a.emit(*ids)
    await a.apply(_to("b", flaky, limits={"batchEvents": 10, "inFlight": 4, "timeout": "1500ms"}))
    await a.caught_up("b")
    assert spoiled
    assert await b.ids() == ids
    assert await b.rows("SELECT count(*) FROM inbound_gaps") == [(0,)]


async def test_pausing_stops_one_link_at_once_and_resuming_goes_on_where_it_was(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await a.apply(peer("b", b.port))
    await a.emit("one")
    await a.caught_up("b")
    await a.ask("links.pause", group="edge", peer="b", by="test")
    await a.settled()
    await a.emit("two")
    shown = await a.link("b")
    assert (shown["state"], shown["pausedBy"], shown["lagEvents"]) == ("paused", "test", 1)
    assert await b.ids() == ["one"]
    await a.stop()
    await a.start()  # a pause survives a restart
    assert (await a.link("b"))["state"] == "paused"
    await a.ask("links.resume", group="edge", peer="b")
    await b.holds("two", seconds=3)
