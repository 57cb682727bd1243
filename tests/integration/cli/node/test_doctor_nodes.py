"""Doctor next to running nodes: its findings on real links, and that the repairs it starts complete."""

from __future__ import annotations

from typing import Any

from eventd.api.admin.deliveries.redelivery import PeerLink
from eventd.log.cursors.cursors import set_paused
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import announce
from eventd.testing import until
from federation.event import format_time
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.sites import Site


async def pair(sites: MakeSites) -> tuple[Site, Site]:
    """a, which sends to b."""
    a, b = sites("a", "b")
    await a.start()
    await b.start()
    b.secret.write_text(a.secret.read_text())
    await b.join()
    await a.join(b)
    return a, b


async def statuses(site: Site) -> dict[str, str]:
    answer = await site.ask("doctor.examine")
    return {check.get("code", check["name"]): check["status"] for check in answer["checks"]}


async def test_a_healthy_pair_passes_and_a_dead_peer_is_told(sites: MakeSites) -> None:
    a, b = await pair(sites)
    await a.emit("e1", "e2")
    await a.caught_up("b")
    answer = await a.ask("doctor.examine", remediationPlan=True)
    assert (answer["summary"]["overall"], answer["remediationPlan"]["actions"]) == ("pass", [])
    assert (answer["federation"]["totalEvents"], answer["federation"]["totalDelivered"]) == (2, 2)
    deliveries = [one for one in (await b.ask("doctor.examine"))["checks"] if "history" not in one.get("code", "")]
    assert {one["status"] for one in deliveries} == {"skip"}, "it sends to no peer"

    await b.stop()
    await a.emit("e3")
    await a.in_state("b", "backing-off")
    found = await statuses(a)
    assert (found["pending-deliveries"], found["link-down"], found["expected-delivery"]) == ("warn", "warn", "pass")


async def test_fixing_a_link_that_is_held_up_makes_it_try_at_once(sites: MakeSites) -> None:
    a, b = await pair(sites)
    await a.apply(peer("b", b.port, retry={"baseBackoff": "10m", "maxBackoff": "1h"}))
    await a.emit("e1", ttl="1h")
    await a.caught_up("b")
    await b.stop()
    await a.emit("e1", ttl="2h")
    await a.in_state("b", "backing-off")
    await b.start()
    assert (await a.cursor("b")).attempts == 1, "the next attempt is in ten minutes"
    ((action, changed),) = [(each["action"], each["changed"]) for each in (await a.ask("doctor.fix"))["fix"]]
    assert (action, changed) == ("force-repush-stale-ttl", True)
    await a.caught_up("b")
    assert await b.ids() == ["e1", "e1"]
    assert [each["changed"] for each in (await a.ask("doctor.fix"))["fix"]] == []


async def test_a_refresh_overtakes_what_waits_and_nothing_comes_twice(sites: MakeSites) -> None:
    a, b = await pair(sites)
    await a.emit("e1", ttl="1h")
    await a.caught_up("b")
    await a.ask("links.pause", group="edge", peer="b")
    await a.settled()
    await a.emit("e2", "e3")
    await a.emit("e1", ttl="2h")
    refreshed = (await a.stored())[-1]
    assert (await statuses(a))["stale-ttl"] == "fail"

    await a.running.log.database.write(_send_ahead, refreshed.position, a.clock.now())

    async def sent_ahead() -> bool:
        return not (await a.link("b"))["repairs"]

    await until(sent_ahead, "the refresh to be acknowledged")
    assert await b.ids() == ["e1", "e1"], "what waited has not come along"
    assert (await statuses(a))["stale-ttl"] == "pass"

    await a.ask("links.resume", group="edge", peer="b")
    await a.caught_up("b")
    assert await b.ids() == ["e1", "e1", "e2", "e3"]
    shown: dict[str, Any] = (await b.ask("events.list", group="edge"))["events"][0]
    assert shown["expiresAt"] == format_time(refreshed.expires_at)
    assert (await a.ask("doctor.examine"))["summary"]["overall"] == "pass"


def _send_ahead(conn: Connection, position: int, now: int) -> None:
    """What fixing starts on a link that is far behind; this one is paused, so that it stays behind."""
    announce(conn)
    name = PeerLink.read(conn, "edge", "b").start_at(conn, [position], now)
    set_paused(conn, name, at=None, by="")
