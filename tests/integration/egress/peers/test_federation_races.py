"""Resources applied while events are in transit: no event is missed between the old and the new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eventd.errors import DatabaseUnavailable
from eventd.node import reconciler as reconciler_module
from eventd.store.engine import changes
from tests.integration.conftest import MakeSites
from tests.support.declared import declare, peer
from tests.support.flaky_peer import FixedResponse, FlakyPeer, Forward
from tests.support.ports import free_port
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


async def test_what_is_declared_between_the_nodes_look_and_its_deed_is_not_undone(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node would take the new peer's cursor for that of a peer which is gone, and its pause would go with it."""
    (a,) = sites("a")
    await a.start()
    await a.join()
    database = a.running.log.database
    read, late = database.read, [True]

    async def reading(fn: Any, *args: Any, **kwargs: Any) -> Any:
        found = await read(fn, *args, **kwargs)
        if fn.__name__ == "read_declared" and late and late.pop():
            await _declare(a, peer("late", free_port()))
            await a.ask("links.pause", group="edge", peer="late")
        return found

    monkeypatch.setattr(database, "read", reading)
    await a.apply(peer("b", free_port()))
    assert not late
    assert (await a.link("late"))["state"] == "paused"


async def test_a_change_that_could_not_be_taken_over_is_tried_again_without_another_sign(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = sites("a", "b")
    for each in (a, b):
        await each.start()
        await each.join()
    follow, failures = reconciler_module.follow, [DatabaseUnavailable("the database is locked")]

    def failing(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return follow(*args)

    monkeypatch.setattr(reconciler_module, "follow", failing)
    await a.apply(peer("b", b.port))
    assert not failures
    await a.emit("e1")
    await b.holds("e1")


@pytest.fixture
def busy() -> Iterator[FlakyPeer]:
    """A peer that asks for an hour's time."""
    with FlakyPeer(free_port(), lambda _: FixedResponse(503, (("Retry-After", "3600"),))) as found:
        yield found


async def test_resuming_a_link_that_waits_tries_it_at_once(sites: MakeSites, busy: FlakyPeer) -> None:
    a, b = sites("a", "b")
    for each in (a, b):
        await each.start()
        await each.join()
    await a.apply(peer("b", busy.port))
    await a.emit("e1")
    await a.in_state("b", "backing-off", "http_503")
    busy.target = b.port
    busy.behave = lambda _: Forward()
    await a.ask("links.resume", group="edge", peer="b")
    await b.holds("e1")
