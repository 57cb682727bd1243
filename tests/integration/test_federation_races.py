"""What is declared while records are under way: nothing slips through between the old and the new."""

from __future__ import annotations

import pytest

from eventd.store import changes
from tests.integration.conftest import MakeSites
from tests.support.declared import declare, peer
from tests.support.sites import Site


async def _declare(site: Site, *documents: dict[str, object]) -> None:
    """Declare, and do not wait until the node takes notice."""
    await site.ask("resources.apply", sources=[{"name": "test", "text": declare(*documents)}])


async def test_what_is_sent_by_the_old_selector_after_a_wider_one_was_declared_skips_nothing(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "POLL", 0.5)  # the node takes notice of it that much later
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    await a.apply(peer("b", b.port, types=["x"]))
    await a.emit("x0", type="x")
    await a.caught_up("b")
    await _declare(a, peer("b", b.port, types=["x", "y"]))
    await a.emit("y1", type="y")
    await a.emit("x1", type="x")
    await b.holds("x1")  # by the old selector, which passed over y1
    await a.settled()
    await b.holds("x0", "y1", "x1")
    await a.caught_up("b")
    assert sorted(await b.ids()) == ["x0", "x1", "y1"]
    assert set((await a.deliveries()).values()) == {"delivered"}


async def test_a_selector_that_is_changed_and_changed_back_unnoticed_does_not_stop_the_link(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "POLL", 0.3)
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    await a.apply(peer("b", b.port, types=["x"]))
    await _declare(a, peer("b", b.port, types=["x", "y"]))
    await _declare(a, peer("b", b.port, types=["x"]))
    await a.settled()
    await a.emit("x1", type="x")
    await b.holds("x1")
