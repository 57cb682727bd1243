"""Two and three nodes that exchange their events: all of them, once, in order, and none back to its source."""

from __future__ import annotations

import asyncio

from eventd.testing import NOW, ManualClock, until
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.sites import Site


async def _mesh(*nodes: Site) -> None:
    for node in nodes:
        await node.start()
        await node.join()
    for node in nodes:  # every listener is up already: no link has to back off
        await node.join(*[other for other in nodes if other is not node])


async def test_three_nodes_come_to_hold_all_events_once_and_in_source_order(sites: MakeSites) -> None:
    nodes = sites("a", "b", "c")
    await _mesh(*nodes)
    said = {node.name: [f"{node.name}-{number}" for number in range(15)] for node in nodes}
    await asyncio.gather(*(node.emit(event) for node in nodes for event in said[node.name]))
    everything = [event for events in said.values() for event in events]
    for node in nodes:
        await node.holds(*everything)
    for node in nodes:
        assert sorted(await node.ids()) == sorted(everything)
        for source in nodes:
            assert await node.ids(source=source.name) == await source.ids(source=source.name)


async def test_a_received_event_never_goes_back_nor_on(sites: MakeSites) -> None:
    a, b, c = sites("a", "b", "c")
    await _mesh(a, b, c)
    await a.emit("one")
    await b.holds("one")
    await c.holds("one")
    assert await b.deliveries() == {}  # selected for no peer: neither back to a nor on to c
    assert (await b.cursor("a")).sent_upto == (await b.cursor("c")).sent_upto == 0
    assert [seen["node"] for seen in (await a.ask("links.status", group="edge"))["inbound"]] == []


async def test_a_relay_sends_on_but_never_to_where_an_event_has_been(sites: MakeSites) -> None:
    a, b, c = sites("a", "b", "c")
    for node in (a, b, c):
        await node.start()
    await a.join(b)
    await b.join()
    await b.apply(peer("a", a.port, relay=True), peer("c", c.port, relay=True))
    await c.join()
    key = {"id": "of-b", "owner": "b", "secretFile": str(b.secret), "speaksFor": "*"}
    for node in (a, b, c):
        await node.apply(_with_keys(node, key))
    await a.emit("one")
    await c.holds("one")
    await b.caught_up("a", "c")
    assert (await b.deliveries())["one", "a"] == "in_path"
    assert (await b.deliveries())["one", "c"] == "delivered"
    [one] = await c.stored()
    assert one.path == "a,b"
    assert await a.ids() == ["one"]


def _with_keys(node: Site, *keys: dict[str, str]) -> dict[str, object]:
    from tests.support.declared import group

    return group(node.name, port=node.port, secret=node.secret, auth={"keys": list(keys)})


async def test_a_refresh_is_sent_on_and_is_one_event_with_the_later_expiry(sites: MakeSites) -> None:
    clock = ManualClock()
    a, b = sites("a", "b", clock=clock)
    await _mesh(a, b)
    await a.emit("one", ttl="60s", observedAt="2026-11-20T12:00:00Z")
    await b.holds("one")
    await a.emit("one", ttl="120s", observedAt="2026-11-20T12:00:00Z")

    async def refreshed() -> bool:
        return len(await b.ids()) == 2

    await until(refreshed, "the refresh to arrive")
    await a.caught_up("b")
    shown = (await b.ask("events.list", group="edge"))["events"]
    assert [(event["id"], event["expiresAt"]) for event in shown] == [("one", "2026-11-20T12:02:00Z")]
    assert (await b.stored())[-1].expires_at == NOW + 120_000_000
    assert await a.deliveries() == {("one", "b"): "delivered"}


async def test_what_expired_on_the_way_is_not_sent_and_is_said_to_be_expired(sites: MakeSites) -> None:
    clock = ManualClock()
    a, b = sites("a", "b", clock=clock)
    await a.start()
    await a.join(b)
    await a.in_state("b", "backing-off", "unreachable")
    await a.emit("dies", ttl="10s")
    await a.emit("lives", ttl="1h")
    await b.start()
    await b.join()
    clock.advance(11)
    await b.holds("lives")
    await a.caught_up("b")
    assert await b.ids() == ["lives"]
    assert await a.deliveries() == {("dies", "b"): "expired", ("lives", "b"): "delivered"}
    summary = (await a.ask("deliveries.summary", group="edge"))["summary"]
    assert [(row["expired"], row["delivered"]) for row in summary] == [(1, 1)]


async def test_an_event_is_sent_up_to_the_very_microsecond_it_expires_in(sites: MakeSites) -> None:
    clock = ManualClock()
    a, b = sites("a", "b", clock=clock)
    await _mesh(a, b)
    clock.set_wall(NOW)
    await a.emit("now", expiresAt="2026-11-20T12:00:00Z")
    await b.holds("now")
    clock.set_wall(NOW + 1)
    await a.emit("late", expiresAt="2026-11-20T12:00:00Z")
    await a.emit("mark")
    await b.holds("mark")
    assert "late" not in await b.ids()


async def test_a_visible_event_is_there_within_milliseconds(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _mesh(a, b)
    await a.emit("warm")
    await b.holds("warm")
    loop = asyncio.get_running_loop()
    waits = []
    for number in range(10):
        begun = loop.time()
        await a.emit(f"e{number}")
        await b.holds(f"e{number}")
        waits.append(loop.time() - begun)
    assert sorted(waits)[5] < 0.25, f"half of the events took longer than {sorted(waits)[5]:.3f} s"
