"""Pulse, the scaling probe and health."""

from __future__ import annotations

import asyncio

import pytest

from eventd.errors import DatabaseUnavailable
from eventd.testing import NOW, ManualClock, until
from tests.support.routemaster import PLAIN, ROOT, StartSurface, SurfaceServer


async def test_the_pulse_is_204_while_the_database_can_be_written(
    surface: SurfaceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await surface.token("app")
    for user in (ROOT, token):
        heard = await surface.ask("GET", "/pulse", user=user)
        assert (heard.status, heard.body) == (204, b"")

    async def refuse() -> None:
        raise DatabaseUnavailable("the disk is full")

    monkeypatch.setattr(surface.log, "try_writing", refuse)
    heard = await surface.ask("GET", "/pulse", user=token)
    assert (heard.status, heard.body) == (500, b"")


class Due:
    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[float] = []

    async def count_due(self, within: float) -> int:
        self.asked.append(within)
        return self.count


@pytest.mark.parametrize(("due", "slow"), [(9, False), (10, True), (11, True)])
async def test_the_scaling_probe_takes_a_second_when_too_many_batches_are_due(
    start_surface: StartSurface, due: int, slow: bool
) -> None:
    clock, batches = ManualClock(), Due(due)
    surface = await start_surface(clock=clock, due=batches, config=PLAIN._replace(scaling_threshold=10))
    asked = asyncio.ensure_future(surface.ask("GET", "/pulse/scaling", user=ROOT))
    if slow:
        await until(lambda: clock.waits, "the probe to wait")
        assert not asked.done()
        clock.advance(1.0)
    heard = await asked
    assert (heard.status, heard.body, batches.asked) == (204, b"", [1.0])


async def test_due_batches_are_counted_once_at_a_time(start_surface: StartSurface) -> None:
    class Counting(Due):
        at_once = most = 0

        async def count_due(self, within: float) -> int:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await asyncio.sleep(0.01)
            self.at_once -= 1
            return await super().count_due(within)

    batches = Counting(0)
    surface = await start_surface(due=batches)
    await asyncio.gather(*(surface.ask("GET", "/pulse/scaling", user=ROOT) for _ in range(5)))
    assert (len(batches.asked), batches.most) == (5, 1)


async def test_health_shows_that_it_answers_and_the_time(start_surface: StartSurface) -> None:
    surface = await start_surface(clock=ManualClock())
    heard = await surface.ask("GET", "/health")
    assert (heard.status, heard.body, heard.headers["content-type"]) == (200, b"{}", "application/json")
    for target in ("/health/ping", "/health/ping.json"):
        heard = await surface.ask("GET", target)
        assert (heard.status, heard.body) == (200, b'{"pong":"2026-11-20 12:00:00 +0000"}')
    assert NOW // 1_000_000 == 1795176000
