"""Names that a holder of a shared key invents: the state for them is bounded, and no node loses an event by it."""

from __future__ import annotations

import asyncio

import pytest

from eventd.ingress import batch, mark_queries, reorder_buffer
from eventd.node import retention
from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.sites import Site
from tests.support.v2_sender import V2Sender, line


async def _come(b: Site, number: int) -> None:
    """A sender of a new name asks where it stands, and brings one event."""
    sender = V2Sender(b.port, node=f"x{number}")
    for request in (sender.query(), sender.batch(line(f"x{number}", node=sender.node))):
        assert (await asyncio.to_thread(sender.send, request)).status == 200


async def test_names_without_end_take_no_memory_without_end(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark_queries, "MOST_ASKED", 8)
    monkeypatch.setattr(reorder_buffer, "MOST_LINKS", 8)
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
    await b.join()
    await b.apply(peer("a", a.port))  # after the group: what is remembered follows the peers of the moment
    await a.join(b)
    await a.emit("e0")
    await b.holds("e0")
    ingress = b.running.groups["edge"].ingress
    for number in range(40):
        await _come(b, number)
    assert len(ingress.mark_queries._asked) == 9
    assert "a" in ingress.mark_queries._asked
    assert len(ingress._reorder._passed) == 8
    await a.emit("e1")
    await b.holds("e0", "e1", *[f"x{number}" for number in range(40)])
    assert (await a.cursor("b")).rewound_from is None


async def test_names_without_end_take_no_rows_without_end(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two rounds of retention. The mark of a peer stays, however long it has been silent."""
    monkeypatch.setattr(batch, "MOST_UNDECLARED", 5)
    monkeypatch.setattr(batch, "SPARE", 2)
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start(prune_interval="1h")
    await b.join()
    await b.apply(peer("a", a.port))
    await a.join(b)
    await a.emit("e0")
    await b.holds("e0")
    for number in range(30):
        await _come(b, number)
        marks = [name for (name,) in await b.rows("SELECT node FROM inbound_links ORDER BY updated_at")]
        assert len(marks) <= 1 + 5 + 2
        assert {"a", f"x{number}"} <= {*marks}
    for table in ("cursors", "selectors", "refusals", "topics"):
        assert not await b.rows(f"SELECT * FROM {table} WHERE {_NAMED[table]} LIKE '%x1%'")


_NAMED = {"cursors": "name", "selectors": "cursor", "refusals": "peer", "topics": "name"}


async def test_a_sender_whose_mark_was_forgotten_goes_on_and_loses_nothing(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_UNDECLARED", 3)
    a, b = sites("a", "b")
    await a.start()
    await b.start(prune_interval="100ms")
    await b.join()
    await a.join(b)
    await a.emit("e1", "e2")
    await a.caught_up("b")
    for number in range(5):
        await _come(b, number)

    async def forgotten() -> bool:
        return not await b.rows("SELECT 1 FROM inbound_links WHERE node = 'a'")

    await until(forgotten, "the mark of a to go")
    await a.emit("e3")  # while both remember each other
    await b.holds("e3")
    for number in range(5, 10):
        await _come(b, number)
    await until(forgotten, "it to go again")
    await b.stop()
    await b.start()
    await a.emit("e4")
    await b.holds("e1", "e2", "e3", "e4")
    await a.caught_up("b")
    mine = [event_id for event_id in await b.ids() if event_id.startswith("e")]
    assert mine == ["e1", "e2", "e3", "e4"]
    assert set((await a.deliveries()).values()) == {"delivered"}
