"""Pools without threads: jobs in order, answers later, and an orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from eventd.simulation.world.loop import BEGIN, VirtualLoop
from eventd.simulation.world.pools import SimulatedPool


class Steady:
    """Each job and each answer takes a second."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def job_seconds(self) -> float:
        return 1.0

    def job_done(self, name: str) -> None:
        self.done.append(name)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.end()


def test_one_thread_runs_its_jobs_one_after_the_other(loop: VirtualLoop) -> None:
    seen: list[tuple[int, float]] = []
    pool = SimulatedPool(loop, Steady(), 1, "writer")

    async def main() -> None:
        jobs = [pool.submit(lambda number=number: seen.append((number, loop.time() - BEGIN))) for number in range(3)]
        await asyncio.wrap_future(jobs[-1])

    loop.run_until_complete(main())
    assert seen == [(0, 1.0), (1, 3.0), (2, 5.0)]
    assert loop.time() - BEGIN == 6.0


def test_a_job_has_its_effect_before_its_answer(loop: VirtualLoop) -> None:
    seen: list[str] = []
    timing = Steady()
    pool = SimulatedPool(loop, timing, 1, "writer", lambda: seen.append("begin"))

    async def main() -> None:
        answer = pool.submit(seen.append, "effect")
        await loop.pause(1.5)
        assert (seen, answer.done(), timing.done) == (["begin", "effect"], False, ["writer"])
        await loop.pause(1.0)
        assert answer.done()

    loop.run_until_complete(main())


def test_an_error_of_a_job_is_that_of_its_answer(loop: VirtualLoop) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await asyncio.wrap_future(SimulatedPool(loop, Steady(), 1, "writer").submit(lambda: 1 // 0))

    loop.run_until_complete(main())


def test_a_pool_that_is_shut_finishes_what_was_queued(loop: VirtualLoop) -> None:
    seen: list[int] = []
    pool = SimulatedPool(loop, Steady(), 1, "writer")

    async def main() -> None:
        answers = [pool.submit(seen.append, number) for number in range(3)]
        await loop.pause(1.5)
        pool.shutdown(wait=True)
        assert seen == [0, 1, 2]
        with pytest.raises(RuntimeError):
            pool.submit(seen.append, 3)
        for answer in answers:
            await asyncio.wrap_future(answer)

    loop.run_until_complete(main())
    assert seen == [0, 1, 2]


def test_a_job_that_another_thread_does_takes_time_and_is_noted(loop: VirtualLoop) -> None:
    seen: list[str] = []
    timing = Steady()
    pool = SimulatedPool(loop, timing, 1, "writer", lambda: seen.append("begin"))

    async def main() -> None:
        assert pool.run_in_loop(lambda: len(seen)) == 1
        with pytest.raises(ZeroDivisionError):
            pool.run_in_loop(lambda: 1 // 0)

    loop.run_until_complete(main())
    assert loop.time() - BEGIN == 2.0
    assert timing.done == ["writer", "writer"]
