"""The loop on virtual time: time jumps, dead processes run nothing, and a loop that cannot continue ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from eventd.simulation.world.life import Life, present_life
from eventd.simulation.world.loop import BEGIN, Stuck, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.end()


def ticking(loop: VirtualLoop, seen: list[tuple[str, float]], name: str) -> Any:
    async def tick() -> None:
        while True:
            await loop.pause(1.0)
            seen.append((name, loop.time() - BEGIN))

    return tick()


def test_time_jumps_to_the_next_timer(loop: VirtualLoop) -> None:
    loop.run_until_complete(loop.pause(86_400.0))
    assert loop.time() == BEGIN + 86_400.0


def test_a_killed_process_runs_no_further_step(loop: VirtualLoop) -> None:
    seen: list[tuple[str, float]] = []
    lives = [Life(name, 1, "10.0.0.1") for name in "ab"]

    async def main() -> None:
        for life in lives:
            life.call(loop.create_task, ticking(loop, seen, life.host))
        await loop.pause(2.5)
        lives[0].is_dead = True
        await loop.pause(2.0)

    loop.run_until_complete(main())
    assert [at for name, at in seen if name == "a"] == [1.0, 2.0]
    assert [at for name, at in seen if name == "b"] == [1.0, 2.0, 3.0, 4.0]


def test_a_frozen_process_continues_with_its_steps_in_their_order(loop: VirtualLoop) -> None:
    life = Life("a", 1, "10.0.0.1")
    seen: list[tuple[int, float]] = []

    async def main() -> None:
        for number in range(3):
            due = 3 - number
            loop.call_later(due, lambda due=due: seen.append((due, loop.time() - BEGIN)), context=life.context())
        life.is_frozen = True
        await loop.pause(10.0)
        loop.thaw(life)
        await loop.pause(0.0)

    loop.run_until_complete(main())
    assert seen == [(1, 10.0), (2, 10.0), (3, 10.0)]


def test_tasks_and_callbacks_belong_to_the_process_that_made_them(loop: VirtualLoop) -> None:
    life = Life("a", 1, "10.0.0.1")

    async def nested() -> Life | None:
        await loop.pause(1.0)
        return present_life()

    async def main() -> tuple[Life | None, Life | None]:
        return await life.call(loop.create_task, nested()), present_life()

    assert loop.run_until_complete(main()) == (life, None)


def test_a_loop_without_timers_is_a_deadlock(loop: VirtualLoop) -> None:
    with pytest.raises(Stuck, match="deadlock"):
        loop.run_until_complete(loop.create_future())


def test_steps_without_time_passing_are_a_livelock(loop: VirtualLoop) -> None:
    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match=r"livelock.*spin"):
        loop.run_until_complete(spin())


def test_equal_steps_have_equal_sums() -> None:
    def play(seconds: float) -> int:
        loop = VirtualLoop()
        seen: list[tuple[str, float]] = []

        async def main() -> None:
            Life("a", 1, "").call(loop.create_task, ticking(loop, seen, "a"))
            await loop.pause(seconds)

        loop.run_until_complete(main())
        loop.end()
        return loop.sum

    assert play(3.5) == play(3.5)
    assert play(3.5) != play(4.5)
