"""The hub renders a view once for all its visitors, no more often than it may, and no view without visitors."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from eventd.console.live.hub import ENTRY_SHARE, INTERVAL_SECONDS, MEASURED, VIEW_SHARE, Hub, LiveView
from eventd.errors import Unavailable
from eventd.testing import ManualClock, give_turns, until


class Counted:
    """A view of which the renderings are counted; each takes `seconds` on the clock."""

    def __init__(self, clock: ManualClock, seconds: float = 0.0) -> None:
        self.clock = clock
        self.seconds = seconds
        self.times = 0
        self.error = ""

    async def __call__(self) -> bytes:
        self.times += 1
        self.clock.advance(self.seconds)
        if self.error:
            raise Unavailable(self.error)
        return b"content"


def spawn(coroutine: Coroutine[Any, Any, Any], _name: str, **_expects: Any) -> asyncio.Task[Any]:
    return asyncio.ensure_future(coroutine)


async def measured(clock: ManualClock, *views: LiveView) -> None:
    """Wait until what these views cost is known: their next rendering depends on it."""
    for _ in range(MEASURED - 1):
        await give_turns()
        clock.advance(len(views) / ENTRY_SHARE)
    await until(lambda: all(view.renderings == MEASURED for view in views), "each to be rendered often enough")
    await give_turns()


async def ended(hub: Hub, clock: ManualClock, view: LiveView) -> None:
    """Wait until the view is rendered no more, since its only viewer left."""
    hub.leave(view)
    clock.advance(60)
    await until(lambda: not hub._views, "the view to be forgotten")


async def test_one_rendering_serves_all_viewers_and_none_is_made_without() -> None:
    clock = ManualClock()
    view, hub = Counted(clock), Hub(clock, spawn)
    seen = [hub.enter("links", view) for _ in range(50)]
    assert len(set(map(id, seen))) == 1
    await until(lambda: seen[0].event is not None, "the view to be rendered")
    assert (view.times, hub.viewers) == (1, 50)
    for one in seen:
        hub.leave(one)
    clock.advance(2)
    await until(lambda: not hub._views, "the view to be forgotten")
    assert (view.times, hub.viewers) == (1, 0)


async def test_a_view_that_takes_long_is_rendered_less_often() -> None:
    clock = ManualClock()
    view, hub = Counted(clock, seconds=1.0), Hub(clock, spawn)
    seen = hub.enter("overview", view)
    await measured(clock, seen)
    for _ in range(int(1 / VIEW_SHARE) - 2):
        clock.advance(1)
        await asyncio.sleep(0)
    assert view.times == MEASURED
    clock.advance(2)
    await until(lambda: view.times == MEASURED + 1, "the next rendering")
    await ended(hub, clock, seen)


async def test_a_slow_first_rendering_does_not_delay_the_second() -> None:
    clock = ManualClock()
    view, hub = Counted(clock, seconds=0.06), Hub(clock, spawn)
    seen = hub.enter("overview", view)
    await until(lambda: view.times == 1, "the first rendering, in which the node did other work, too")
    view.seconds = 0.01
    for _ in range(5):
        clock.advance(INTERVAL_SECONDS)
        await give_turns()
    assert view.times == 6, "once a second: the view can be rendered in 0.01 s"
    await ended(hub, clock, seen)


async def test_a_view_is_rendered_again_soon_when_what_it_lacked_has_arrived() -> None:
    clock = ManualClock()
    view, hub = Counted(clock, seconds=1.0), Hub(clock, spawn)
    seen = hub.enter("overview", view)
    await measured(clock, seen)
    clock.advance(5)
    await give_turns()
    assert view.times == MEASURED
    hub.renew("overview")
    await until(lambda: view.times == MEASURED + 1, "the next rendering")
    hub.renew("links")
    await ended(hub, clock, seen)


async def test_many_views_together_take_no_more_of_the_time_than_one() -> None:
    clock = ManualClock()
    hub, views = Hub(clock, spawn), [Counted(clock, seconds=0.1) for _ in range(5)]
    seen = [hub.enter(f"view {number}", view) for number, view in enumerate(views)]
    await measured(clock, *seen)
    begun = sum(view.times for view in views)
    for _ in range(40):
        clock.advance(1)
        await give_turns()
    assert 1 * 5 < sum(view.times for view in views) - begun <= 2 * 5, "for a fortieth of 40 s, each 0.1 s"
    for one in seen:
        hub.leave(one)
    clock.advance(20)
    await until(lambda: not hub._views, "the views to be forgotten")


async def test_a_view_that_cannot_be_rendered_says_why_and_comes_back() -> None:
    clock = ManualClock()
    view, hub = Counted(clock), Hub(clock, spawn)
    view.error = "the database is busy"
    seen = hub.enter("links", view)
    await until(lambda: seen.problem == "the database is busy", "the problem to be noted")
    view.error = ""
    clock.advance(1.1)
    await until(lambda: seen.event is not None and not seen.problem, "the view to come back")
    await ended(hub, clock, seen)


async def test_views_that_nothing_looks_at_any_more_do_not_delay_the_others() -> None:
    clock = ManualClock()
    hub, views = Hub(clock, spawn), [Counted(clock, seconds=0.01) for _ in range(50)]
    seen = [hub.enter(f"view {number}", view) for number, view in enumerate(views)]
    await until(lambda: all(view.times == 1 for view in views), "each to be rendered once")
    for one in seen[1:]:
        hub.leave(one)
    for _ in range(8):
        clock.advance(1)
        await give_turns()
    rendered = views[0].times
    for _ in range(5):
        clock.advance(1.1)
        await give_turns()
    assert views[0].times >= rendered + 4, "once a second again"
    assert len(hub._views) == 1
    await ended(hub, clock, seen[0])


class SlowView:
    """A view that takes a second to render, with one viewer; what it costs is known."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.content = Counted(self.clock, seconds=1.0)
        self.hub = Hub(self.clock, spawn)

    async def open(self) -> LiveView:
        seen = self.enter()
        await measured(self.clock, seen)
        return seen

    def enter(self) -> LiveView:
        return self.hub.enter("overview", self.content)


async def test_a_view_is_rendered_at_once_for_a_viewer_whose_page_may_be_newer_than_its_last_rendering() -> None:
    world = SlowView()
    seen = await world.open()
    world.clock.advance(5)
    await give_turns()
    assert world.content.times == MEASURED
    changed = seen.changed
    world.enter()
    await until(lambda: seen.renderings == MEASURED + 1, "the rendering for the second viewer")
    assert changed.done(), "the second viewer waits for it, although it is the same as before"
    world.hub.leave(seen)
    await ended(world.hub, world.clock, seen)


async def test_a_rendering_younger_than_a_second_is_followed_by_another_when_the_second_is_over() -> None:
    world = SlowView()
    world.content.seconds = 0.2
    seen = await world.open()
    world.enter()
    world.clock.advance(0.7)
    await give_turns()
    assert seen.renderings == MEASURED
    world.clock.advance(0.2)
    await until(lambda: seen.renderings == MEASURED + 1, "the rendering for the second viewer")
    world.hub.leave(seen)
    await ended(world.hub, world.clock, seen)


async def test_a_viewer_who_comes_last_waits_as_long_as_the_first() -> None:
    world = SlowView()
    seen = await world.open()
    for _ in range(20):
        entered, renderings = world.clock.monotonic(), seen.renderings
        world.enter()
        while seen.renderings == renderings:
            assert world.clock.monotonic() <= entered + 1 / ENTRY_SHARE + 1, "what came before is not paid for"
            world.clock.advance(0.5)
            await give_turns()
    for _ in range(20):
        world.hub.leave(seen)
    await ended(world.hub, world.clock, seen)


async def test_a_rendering_that_waited_for_other_work_does_not_delay_the_next() -> None:
    world = SlowView()
    world.content.seconds = 0.2
    seen = await world.open()
    world.content.seconds = 9.0
    world.clock.advance(0.2 / VIEW_SHARE)
    await until(lambda: seen.renderings == MEASURED + 1, "a rendering that takes long")
    world.clock.advance(0.2 / VIEW_SHARE - 9.0)
    await until(lambda: seen.renderings == MEASURED + 2, "the next: the view is not slow")
    await ended(world.hub, world.clock, seen)


async def test_viewers_who_enter_and_leave_have_a_view_rendered_no_more_often_than_it_may_be() -> None:
    world = SlowView()
    begun = world.clock.monotonic()
    seen = await world.open()

    def may_take() -> float:
        return (world.clock.monotonic() - begun) * ENTRY_SHARE

    for _ in range(200):
        world.hub.leave(world.enter())
        world.clock.advance(1)
        await give_turns()
    assert world.content.times <= may_take() + 1, "each takes a second"
    world.hub.leave(seen)
    for _ in range(200):
        one = world.enter()
        await give_turns()
        world.hub.leave(one)
        world.clock.advance(1)
        await give_turns()
    assert world.content.times <= may_take() + 1, "also for viewers who leave at once"
    world.clock.advance(60)
    await until(lambda: not world.hub._views, "the view to be forgotten")
