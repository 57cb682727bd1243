"""The pace of background work, by a clock that each step moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from eventd.log.core.eventlog import EventLog
from eventd.log.core.pace import LONGEST_REST, RECENT_SECONDS, REST, STEP_SECONDS, Pace
from eventd.log.core.wakeups import Wakeups
from eventd.store.engine.database import Connection
from eventd.testing import ManualClock

NOBODY = cast(Connection, None)


class QuietLog:
    """The members of a log that a pace uses; a step takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.clock = ManualClock()
        self.wakeups = Wakeups()
        self.is_writing = False
        self.seconds = seconds
        self.sizes: list[int] = []
        self.database = self

    async def write(self, step: Callable[[Connection], Any]) -> Any:
        return step(NOBODY)

    def step(self, _: Connection, size: int) -> int:
        self.sizes.append(size)
        self.clock.advance(self.seconds)
        return size


def paced(log: QuietLog, *, size: int = 100, least: int = 10, most: int = 1000) -> Pace:
    return Pace(cast(EventLog, log), size=size, least=least, most=most)


async def rest_of(log: QuietLog, step: asyncio.Task[int]) -> float:
    """Return for how long a step rests before it runs; 0 if it has run."""
    for _ in range(10):
        await asyncio.sleep(0)
    return 0.0 if step.done() else log.clock.waits[0]


async def next_rest(log: QuietLog, pace: Pace, **options: Any) -> float:
    step = asyncio.create_task(pace.write_step(log.step, **options))
    rest = await rest_of(log, step)
    log.clock.advance(rest)
    await step
    return rest


async def test_while_nothing_else_is_written_steps_follow_each_other() -> None:
    log = QuietLog(STEP_SECONDS)
    pace = paced(log)
    assert [await next_rest(log, pace) for _ in range(5)] == [0.0] * 5


async def test_while_others_write_a_quarter_of_the_time_is_left_for_it() -> None:
    log = QuietLog(STEP_SECONDS)
    pace = paced(log)
    log.is_writing = True
    rests = [await next_rest(log, pace) for _ in range(4)]
    assert [round(rest, 6) for rest in rests] == [0.0] + [REST * STEP_SECONDS] * 3


async def test_the_time_between_two_steps_counts_as_rest() -> None:
    log = QuietLog(STEP_SECONDS)
    pace = paced(log)
    log.is_writing = True
    await next_rest(log, pace)
    log.clock.advance(STEP_SECONDS)
    assert round(await next_rest(log, pace), 6) == (REST - 1) * STEP_SECONDS


async def test_an_append_of_another_process_counts_as_a_write_too_and_for_a_while() -> None:
    log = QuietLog(STEP_SECONDS)
    pace = paced(log)
    log.wakeups.foreign(7)
    await next_rest(log, pace)
    assert await next_rest(log, pace) > 0
    log.clock.advance(RECENT_SECONDS)
    await next_rest(log, pace)
    assert await next_rest(log, pace) == 0


async def test_what_is_behind_takes_its_turns_without_rest_and_with_a_step_that_keeps_up() -> None:
    log = QuietLog(STEP_SECONDS)
    pace = paced(log)
    log.is_writing = True
    assert [await next_rest(log, pace, is_behind=True, least=300) for _ in range(3)] == [0.0] * 3
    assert log.sizes == [300, 300, 300]


async def test_steps_get_as_large_as_their_time_allows_within_bounds() -> None:
    log = QuietLog(STEP_SECONDS / 10)
    pace = paced(log)
    for _ in range(6):
        await pace.write_step(log.step)
    assert log.sizes == [100, 200, 400, 800, 1000, 1000]
    log.seconds = STEP_SECONDS * 100
    for _ in range(9):
        await pace.write_step(log.step)
    assert log.sizes[-1] == 10


async def test_on_a_disk_that_hangs_the_rest_is_bounded() -> None:
    log = QuietLog(60.0)
    pace = paced(log)
    log.is_writing = True
    await next_rest(log, pace)
    assert await next_rest(log, pace) == LONGEST_REST
