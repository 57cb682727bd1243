"""Restored databases: whichever side lost events, none that is alive at its source stays missing."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.egress.loop import consumer
from eventd.log.core.head import renew_epoch
from eventd.log.cursors.cursors import rewind
from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.declared import PLAIN_GROUP, group, peer
from tests.support.flaky_peer import FlakyPeer, Forward, ReceivedRequest
from tests.support.ports import free_port
from tests.support.sites import Site

DROPS = {"maxEvents": 2, "undelivered": "drop"}
ONE = {"maxEvents": 1}


async def _pair(sites: MakeSites, **limits: Any) -> tuple[Site, Site]:
    """Two nodes; only a sends, so b never calls a."""
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join(**PLAIN_GROUP)
    await a.apply(peer("b", b.port, limits=limits))
    return a, b


async def _send(a: Site, b: Site, *ids: str) -> None:
    await a.emit(*ids)
    await a.caught_up("b")


async def _mark(b: Site) -> tuple[str, int, int]:
    [found] = await b.rows("SELECT epoch, base, upto FROM inbound_links WHERE node = 'a'")
    return tuple(found)


async def test_a_receiver_restored_from_an_older_copy_gets_what_it_lost(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await _send(a, b, "e1", "e2")
    copy = b.back_up()
    await _send(a, b, "e3", "e4")
    await b.stop()
    b.restore(copy)
    await b.start()
    assert await b.ids() == ["e1", "e2"]
    await _send(a, b, "e5")
    await b.holds("e1", "e2", "e3", "e4", "e5")
    assert await b.ids() == ["e1", "e2", "e3", "e4", "e5"]
    cursor = await a.cursor("b")
    assert cursor.rewound_from == 4
    assert set((await a.deliveries()).values()) == {"delivered"}


async def test_a_restored_receiver_that_sends_too_is_filled_although_nothing_new_happens(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first question, where its own link stands, makes the other side ask the same."""
    monkeypatch.setattr(consumer, "REOPEN_AFTER", 0.0)
    a, b = await _pair(sites)
    await b.apply(peer("a", a.port))
    await _send(a, b, "e1", "e2")
    copy = b.back_up()
    await _send(a, b, "e3", "e4")
    await b.stop()
    b.restore(copy)
    await b.start()
    await b.holds("e1", "e2", "e3", "e4")
    assert (await a.cursor("b")).rewound_from == 4


async def _renew(a: Site) -> None:
    """Begin a new epoch, as `routerd-eventd migrate --new-epoch` does, and start the node again."""
    await a.running.log.database.write(renew_epoch)
    await a.stop()
    await a.start()


async def _gaps(b: Site) -> list[Any]:
    return await b.rows("SELECT after, upto, reason FROM inbound_gaps WHERE node = 'a'")


@pytest.mark.parametrize("kept", [0, 1])
async def test_two_events_renew_restart_restore_count(sites: MakeSites, kept: int) -> None:
    """Nothing was sent in the new epoch: what the receiver had confirmed was confirmed in the one before."""
    a, b = await _pair(sites)
    before, after = ["e1", "e2"][:kept], ["e1", "e2"][kept:]
    if before:
        await _send(a, b, *before)
    copy = b.back_up()
    await _send(a, b, *after)
    await b.stop()
    await _renew(a)
    b.restore(copy)
    await b.start()
    await b.holds("e1", "e2", seconds=5)
    assert await b.ids() == ["e1", "e2"]
    assert await _gaps(b) == []
    assert (await a.cursor("b")).rewound_from == 2


async def test_what_a_restored_receiver_lost_and_retention_took_is_a_gap_in_the_new_epoch_too(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await a.apply(group("a", port=a.port, secret=a.secret, **PLAIN_GROUP, retention={"maxEvents": 2}))
    await _send(a, b, "e1", "e2")
    copy = b.back_up()
    await _send(a, b, "e3", "e4", "e5")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 3
    await b.stop()
    await _renew(a)
    b.restore(copy)
    await b.start()
    await b.holds("e4", "e5", seconds=5)
    assert await b.ids() == ["e1", "e2", "e4", "e5"]
    await a.caught_up("b")
    assert await _gaps(b) == [(2, 3, "lost")]
    assert (await _mark(b))[1:] == (2, 5)


async def test_a_receiver_restored_to_a_former_epoch_is_told_what_retention_took(sites: MakeSites) -> None:
    """What it has of that epoch cannot be compared with what it confirmed: all that is gone may be missing."""
    a, b = await _pair(sites)
    await a.apply(group("a", port=a.port, secret=a.secret, **PLAIN_GROUP, retention={"maxEvents": 2}))
    await _send(a, b, "e1")
    copy = b.back_up()
    await _renew(a)
    await _send(a, b, "e2", "e3", "e4")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 2
    await b.stop()
    b.restore(copy)
    await b.start()
    await _send(a, b, "e5")
    await b.holds("e3", "e4", "e5", seconds=5)
    assert await b.ids() == ["e1", "e3", "e4", "e5"]
    assert await _gaps(b) == [(0, 2, "lost")]


async def test_what_retention_took_before_it_was_sent_is_a_gap_in_the_new_epoch_too(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await a.apply(
        group("a", port=a.port, secret=a.secret, **PLAIN_GROUP, retention={"maxEvents": 2, "undelivered": "drop"})
    )
    await _send(a, b, "e1")
    await b.stop()
    await _renew(a)
    await a.emit("e2", "e3", "e4", "e5")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 3
    await b.start()
    await a.caught_up("b")
    assert await b.ids() == ["e1", "e4", "e5"]
    assert await _gaps(b) == [(1, 3, "lost")]


async def test_a_receiver_that_is_restored_twice_gets_what_it_lost_the_second_time(sites: MakeSites) -> None:
    """The sender has gone back, and has not sent again yet, when the receiver loses all it had."""
    a, b = await _pair(sites)
    await _send(a, b, "e1")
    first = b.back_up().rename(b.directory / "first.db")
    await _send(a, b, "e2")
    second = b.back_up()
    await _send(a, b, "e3")
    await b.stop()
    await a.running.log.database.write(
        rewind, "peer:edge/b", position=3, to=2, now=0, epoch=(await a.cursor("b")).sent_epoch
    )
    await a.stop()
    await a.start()
    assert second.exists()
    b.restore(first)
    await b.start()
    await b.holds("e1", "e2", "e3", seconds=5)
    assert await b.ids() == ["e1", "e2", "e3"]


async def test_a_new_epoch_alone_sends_nothing_again(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await _send(a, b, "e1", "e2")
    await _renew(a)
    await _send(a, b, "e3")
    assert (await a.cursor("b")).rewound_from is None
    assert await a.rows("SELECT after, upto FROM batches ORDER BY id DESC LIMIT 1") == [(2, 3)]
    assert (await _mark(b))[1:] == (2, 3)
    assert await _gaps(b) == []


@pytest.mark.parametrize("noticed", [True, False], ids=["while-down", "while-idle"])
async def test_a_receiver_that_lost_its_database_gets_every_live_event_again(sites: MakeSites, noticed: bool) -> None:
    a, b = await _pair(sites)
    await _send(a, b, "e1", "e2", "e3")
    await b.stop()
    b.lose_database()
    if noticed:
        await a.emit("e4")
        await a.in_state("b", "backing-off", "unreachable")
    await b.start()
    await b.join(**PLAIN_GROUP)
    await a.emit("e5")
    await b.holds("e1", "e2", "e3", "e5")
    assert await b.ids() == ["e1", "e2", "e3", *["e4"] * noticed, "e5"]


async def test_a_receiver_that_lost_its_database_and_a_sender_that_was_restarted(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await _send(a, b, "e1", "e2", "e3")
    await a.stop()
    await b.stop()
    b.lose_database()
    await b.start()
    await b.join(**PLAIN_GROUP)
    await a.start()
    await b.holds("e1", "e2", "e3")
    assert await b.ids() == ["e1", "e2", "e3"]


async def test_a_sender_put_back_to_an_older_state_loses_nothing_new(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await _send(a, b, "e1")
    copy = a.back_up()
    await _send(a, b, "e2", "e3", "e4")
    epoch = (await _mark(b))[0]
    await a.stop()
    a.restore(copy)
    await a.start()
    await _send(a, b, "n1")  # at a position that b knows from the lost history
    await b.holds("n1")
    assert await b.ids() == ["e1", "e2", "e3", "e4", "n1"]
    assert (await _mark(b))[0] != epoch
    assert set((await a.deliveries()).values()) == {"delivered"}


async def test_a_sender_put_back_and_fed_beyond_what_its_peer_saw_loses_nothing_new(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await _send(a, b, "e1")
    copy = a.back_up()
    await _send(a, b, "e2", "e3")
    await b.stop()
    await a.stop()
    a.restore(copy)
    await a.start()
    new = [f"n{number}" for number in range(6)]
    await a.emit(*new)  # the head is beyond the mark again when b sees it: only the ids tell
    await b.start()
    await b.holds(*new)
    assert await b.ids() == ["e1", "e2", "e3", *new]


async def test_a_sender_that_began_anew_is_another_history(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await _send(a, b, "e1", "e2")
    await a.stop()
    a.lose_database()
    await a.start()
    await a.join(b, **PLAIN_GROUP)
    await _send(a, b, "n1")
    assert await b.ids() == ["e1", "e2", "n1"]


async def test_a_new_peer_gets_the_earliest_live_own_event_first(sites: MakeSites) -> None:
    a, b, c = sites("a", "b", "c")
    for node in (a, b, c):
        await node.start()
        await node.join(**PLAIN_GROUP)
    await c.apply(peer("a", a.port))
    await a.emit("e1", "e2")
    await c.emit("of-c")
    await a.holds("of-c")
    await a.emit("e3", ttl="1us")
    await a.apply(peer("b", b.port))
    await b.holds("e1", "e2")
    await a.caught_up("b")
    assert await b.ids() == ["e1", "e2"]
    assert await a.deliveries() == {("e1", "b"): "delivered", ("e2", "b"): "delivered", ("e3", "b"): "expired"}


async def test_the_pages_of_a_log_in_constant_motion_arrive_whole(sites: MakeSites) -> None:
    a, b = await _pair(sites, batchEvents=7, inFlight=4)
    await b.apply(peer("a", a.port))
    for start in range(0, 100, 5):
        await a.emit(*[f"a{number:03}" for number in range(start, start + 5)])
        await b.emit(*[f"b{number:03}" for number in range(start, start + 5)])
    await a.caught_up("b")
    await b.caught_up("a")
    assert await b.ids(source="a") == [f"a{number:03}" for number in range(100)]
    assert await a.ids(source="b") == [f"b{number:03}" for number in range(100)]
    assert await a.rows("SELECT count(*) FROM inbound_gaps") == [(0,)]


async def test_what_retention_took_before_it_was_sent_is_a_gap_that_the_peer_is_told_of(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await a.apply(
        group("a", port=a.port, secret=a.secret, **PLAIN_GROUP, retention={"maxEvents": 2, "undelivered": "drop"})
    )
    await _send(a, b, "e1")
    await b.stop()
    await a.emit("e2", "e3", "e4", "e5")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 3
    await b.start()
    await a.caught_up("b")
    assert await b.ids() == ["e1", "e4", "e5"]
    assert await b.rows("SELECT after, upto, reason FROM inbound_gaps") == [(1, 3, "lost")]


async def test_retention_holds_what_a_peer_still_has_to_get(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await a.apply(group("a", port=a.port, secret=a.secret, **PLAIN_GROUP, retention={"maxEvents": 2}))
    await _send(a, b, "e1")
    await b.stop()
    await a.emit("e2", "e3", "e4", "e5")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 1
    await b.start()
    await a.caught_up("b")
    assert await b.ids() == ["e1", "e2", "e3", "e4", "e5"]
    assert await b.rows("SELECT count(*) FROM inbound_gaps") == [(0,)]


async def test_what_retention_took_before_it_was_relayed_is_a_gap_too(sites: MakeSites) -> None:
    """Retention does not hold it for others, and a range that said nothing of it would claim that all was sent."""
    a, b, c = sites("a", "b", "c")
    for node in (a, b, c):
        await node.start()
        await node.join(**PLAIN_GROUP)
    await a.apply(
        group("a", port=a.port, secret=a.secret, retention=ONE, **PLAIN_GROUP),
        peer("b", b.port, relay=True),
    )
    await c.apply(peer("a", a.port))
    await c.emit("c1")
    await b.holds("c1")
    await a.caught_up("b")
    await b.stop()
    await c.emit("c2", "c3", "c4")
    await a.holds("c4")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 3
    await b.start()
    await b.holds("c4")
    assert await b.ids() == ["c1", "c4"]
    assert await b.rows("SELECT after, upto, reason FROM inbound_gaps WHERE node = 'a'") == [(1, 3, "lost")]


async def test_a_link_that_once_went_back_does_not_take_what_expired_for_lost(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await a.apply(group("a", port=a.port, secret=a.secret, retention=ONE, **PLAIN_GROUP))
    await _send(a, b, "e1")
    await b.stop()
    b.lose_database()
    await b.start()
    await b.join(**PLAIN_GROUP)
    await _send(a, b, "e2")
    await b.holds("e1", "e2")
    assert (await a.cursor("b")).rewound_from == 1
    await a.ask("links.pause", group="edge", peer="b")
    await a.settled()
    await a.emit("e3", ttl="1us")
    await a.emit("e4")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 3
    await a.ask("links.resume", group="edge", peer="b")
    await b.holds("e4")
    assert await b.rows("SELECT count(*) FROM inbound_gaps") == [(0,)]


async def test_a_receiver_that_lost_its_database_is_not_told_of_losses_it_never_had(sites: MakeSites) -> None:
    a, b = await _pair(sites)
    await a.apply(group("a", port=a.port, secret=a.secret, **PLAIN_GROUP, retention={"maxEvents": 2}))
    await _send(a, b, "e1", "e2", "e3", "e4")
    await a.ask("events.prune", group="edge")
    await b.stop()
    b.lose_database()
    await b.start()
    await b.join(**PLAIN_GROUP)
    await _send(a, b, "e5")
    await b.holds("e3", "e4", "e5")
    assert await b.ids() == ["e3", "e4", "e5"]
    assert (await _mark(b))[1:] == (2, 5)


async def test_a_peer_whose_answers_are_of_an_older_life_is_asked_again(sites: MakeSites) -> None:
    """The receiver goes back while the connection stays: the network between them hides the restart."""
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join(**PLAIN_GROUP)
    with FlakyPeer(free_port(), lambda _: Forward(), target=b.port) as between:
        await a.apply(peer("b", between.port))
        await _send(a, b, "e1", "e2")
        copy = b.back_up()
        await _send(a, b, "e3")
        await b.stop()
        b.restore(copy)
        await b.start()
        await _send(a, b, "e4")
        assert await b.ids() == ["e1", "e2", "e3", "e4"]
        await b.stop()
        b.lose_database()
        await b.start()
        await b.join(**PLAIN_GROUP)
        await _send(a, b, "e5")
        await b.holds("e1", "e2", "e3", "e4", "e5")

        async def whole() -> bool:
            return await b.ids() == ["e1", "e2", "e3", "e4", "e5"]

        await until(whole, "every event once, in order")


GAP_ROWS = "SELECT after, upto, events FROM batches WHERE protocol = 'gap'"


async def _hub(sites: MakeSites) -> tuple[Site, Site, Site]:
    """c sends to a, which relays to b what is of type t, and keeps one event."""
    a, b, c = sites("a", "b", "c")
    for node in (a, b, c):
        await node.start()
        await node.join(**PLAIN_GROUP)
    await a.apply(
        group("a", port=a.port, secret=a.secret, retention=ONE, **PLAIN_GROUP),
        peer("b", b.port, relay=True, types=["t"]),
    )
    await c.apply(peer("a", a.port))
    return a, b, c


async def test_a_loss_is_told_although_there_is_nothing_more_to_send(sites: MakeSites) -> None:
    """Once the cursor has passed it, a restarted node would not know of it any more."""
    a, b, c = await _hub(sites)
    await c.emit("c1")
    await b.holds("c1")
    await a.caught_up("b")
    await b.stop()
    await c.emit("c2", "c3")
    await c.emit("x4", type="other")
    await a.holds("x4")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 3
    await b.start()
    gaps = "SELECT after, upto, reason FROM inbound_gaps WHERE node = 'a'"
    await until(lambda: b.rows(gaps), "b to learn of the loss")
    await until(lambda: _stands(a, 4), "a to have recorded that b knows")
    await a.stop()
    await a.start()
    await c.emit("c5")
    await b.holds("c5")
    await a.caught_up("b")
    assert await b.rows(gaps) == [(1, 3, "lost")], "once"
    assert await a.rows(GAP_ROWS) == [(1, 3, 0)], "once"
    assert (await _mark(b))[1:] == (0, 5)
    assert [(gap["after"], gap["upto"]) for gap in (await b.ask("links.gaps", group="edge"))["gaps"]] == [(1, 3)]


async def test_a_loss_of_own_events_is_told_although_there_is_nothing_more_to_send(
    sites: MakeSites, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await _pair(sites)
    await a.apply(
        group("a", port=a.port, secret=a.secret, **PLAIN_GROUP, retention=ONE | {"undelivered": "drop"}),
        peer("b", b.port, types=["t"]),
    )
    await _send(a, b, "e1")
    await b.stop()
    await a.emit("e2", "e3")
    await a.emit("x4", type="other")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 3
    await b.start()
    gaps = "SELECT after, upto, reason FROM inbound_gaps WHERE node = 'a'"
    await until(lambda: b.rows(gaps), "b to learn of the loss")
    assert await b.rows(gaps) == [(1, 3, "lost")]
    await until(lambda: _stands(a, 4), "a to have recorded that b knows")
    assert await a.rows(GAP_ROWS) == [(1, 3, 0)]
    checks = {check.get("code"): check["detail"] for check in (await a.ask("doctor.examine"))["checks"]}
    assert "at most 2 events before this peer had them: 1 gap, most recently at" in checks["events-skipped"]
    assert "events-lost" not in checks, "it has passed them"
    logged = [vars(line) for line in caplog.records if line.message == "events lost"]
    assert [(line["node"], line["peer"], line["count"]) for line in logged] == [("a", "b", 2)]
    counted = {"group": "edge", "peer": "b", "status": "lost"}
    assert a.running.metrics.registry.get_sample_value("routerd_eventd_outbox_delivery_total", counted) == 2


@pytest.mark.parametrize("relay", [False, True])
async def test_each_loss_over_v1_is_noted_once_although_v1_reports_none(sites: MakeSites, relay: bool) -> None:
    a, b = await _pair(sites)
    await a.apply(
        group("a", port=a.port, secret=a.secret, **PLAIN_GROUP, retention=ONE | {"undelivered": "drop"}),
        peer("b", b.port, types=["t"], protocol="v1", relay=relay),
    )
    await _send(a, b, "e1")
    await b.stop()
    await _lose(a, "e2", "e3", upto=3)
    await _lose(a, "e5", upto=5)
    await b.start()
    await _send(a, b, "e7")
    assert await a.rows(GAP_ROWS) == [(1, 3, 0), (4, 5, 0)]
    checks = {check.get("code"): check for check in (await a.ask("doctor.examine"))["checks"]}
    assert "at most 3 events before this peer had them: 2 gaps, most recently at" in checks["events-skipped"]["detail"]
    assert "the peer is not notified, because v1 reports no gaps" in checks["events-skipped"]["remedy"]


async def _lose(a: Site, *ids: str, upto: int) -> None:
    """Let retention remove events up to that position, and wait until the link has noted the loss."""
    await a.emit(*ids)
    await a.emit(f"x{upto + 1}", type="other")
    await a.ask("events.prune", group="edge")
    noted = f"{GAP_ROWS} AND upto = {upto}"
    await until(lambda: a.rows(noted), "a to have noted the loss")


async def _stands(a: Site, at: int) -> bool:
    cursor = await a.cursor("b")
    return (cursor.position, cursor.sent_upto) == (at, at)


async def test_a_new_link_claims_nothing_of_what_was_lost_before_it_began(sites: MakeSites) -> None:
    a, b, c = await _hub(sites)
    await b.stop()
    await c.emit("c1", "c2")
    await c.emit("x3", type="other")
    await a.holds("x3")
    assert (await a.ask("events.prune", group="edge"))["removed"] == 2
    await b.start()
    await until(lambda: _stands(a, 3), "a to have opened the link")
    await a.stop()
    await a.start()
    await c.emit("c4")
    await b.holds("c4")
    assert (await _mark(b))[1:] == (2, 4), "what lay before was not seen"


# --- from v1 to v2 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replaced", [False, True], ids=["the same database", "a new node under the name"])
async def test_a_link_that_moves_to_v2_begins_at_the_beginning(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """What v1 answered proves nothing of what the node that speaks v2 has: it may be another one under the name."""
    monkeypatch.setattr(consumer, "REOPEN_AFTER", 0.0)
    a, b = sites("a", "b")
    await a.start()
    await b.start()
    await b.join(a, protocols=["v1"])
    await a.join(b, **PLAIN_GROUP)
    await _send(a, b, "e1", "e2")
    assert ((await a.cursor("b")).protocol, (await a.cursor("b")).sent_upto) == ("v1", 2)
    await b.stop()
    if replaced:
        b.lose_database()
    await b.start()
    await b.join(a, **PLAIN_GROUP)  # its own link to a asks in v2 now, so a asks, too
    await b.holds("e1", "e2")
    await until(lambda: _speaks(a, "v2"), "a to speak v2")
    await _send(a, b, "e3")
    assert await b.ids() == ["e1", "e2", "e3"]
    cursor = await a.cursor("b")
    assert (cursor.sent_upto, cursor.rewound_from) == (3, 2)
    assert (await _mark(b))[1:] == (0, 3), "the mark covers all, and so it may say so"
    assert set((await a.deliveries()).values()) == {"delivered"}


async def _speaks(a: Site, protocol: str) -> bool:
    return (await a.cursor("b")).protocol == protocol


async def test_a_link_by_v1_asks_for_v2_when_it_is_opened_and_not_before(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await b.start()
    await b.join(protocols=["v1"])
    await a.join(b, **PLAIN_GROUP)
    await _send(a, b, "e1")
    await b.join(**PLAIN_GROUP)
    await _send(a, b, "e2")
    assert await _speaks(a, "v1")
    await a.ask("links.pause", group="edge", peer="b")
    await a.settled()
    await a.ask("links.resume", group="edge", peer="b")
    await until(lambda: _speaks(a, "v2"), "a to speak v2")
    await _send(a, b, "e3")
    assert await b.ids() == ["e1", "e2", "e3"]


async def test_a_running_sender_asks_for_its_mark_when_a_new_epoch_begins(sites: MakeSites) -> None:
    """Only then does the receiver refuse late batches of the epoch before."""
    a, b = await _pair(sites)
    paths: list[str] = []

    def forward(request: ReceivedRequest) -> Forward:
        paths.append(request.path)
        return Forward()

    with FlakyPeer(free_port(), forward, target=b.port) as between:
        await a.apply(peer("b", between.port))
        await _send(a, b, "e1")
        asked = paths.count("/v2/link")
        await a.running.log.database.write(renew_epoch)
        await a.running.log.look_around()
        await until(lambda: paths.count("/v2/link") == asked + 1)
        await _send(a, b, "e2")
        assert await b.ids() == ["e1", "e2"]
