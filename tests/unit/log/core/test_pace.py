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
    """The members of a log that a pace uses; a step takes `seconds`, or `seconds_each` for each row."""

    def __init__(self, seconds: float) -> None:
        self.clock = ManualClock()
        self.wakeups = Wakeups()
        self.is_writing = False
        self.seconds = seconds
        self.seconds_each = 0.0
        self.sizes: list[int] = []
        self.database = self

    async def write(self, step: Callable[[Connection], Any]) -> Any:
        return step(NOBODY)

    def step(self, _: Connection, size: int) -> int:
        self.sizes.append(size)
        self.clock.advance(self.seconds_each * size or self.seconds)
        return size


def paced(log: QuietLog, *, size: int = 100, least: int = 10, most: int = 1000) -> Pace:
    return Pace(cast(EventLog, log), size=size, least=least, most=most)


async def rest_of(log: QuietLog, step: asyncio.Task[int]) -> float:
    """Return for how long a step rests before it runs; 0 if it has run."""
    for _ in range(10):
        await asyncio.sleep(0)
    return 0.0 if step.done() else log.clock.waits[0]


async def next_rest(log: QuietLog, pace: Pace, **options: Any) -> float:
    step = asyncio.create_task(pace.write_step(log.step, amount=int, **options))
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


async def test_what_is_behind_takes_its_turns_without_rest_and_with_ever_larger_steps() -> None:
    log = QuietLog(100 * STEP_SECONDS)
    pace = paced(log)
    log.is_writing = True
    assert [await next_rest(log, pace, is_behind=True) for _ in range(5)] == [0.0] * 5
    assert log.sizes == [100, 200, 400, 800, 1000]


async def test_steps_that_find_much_less_than_they_may_do_leave_the_size_alone() -> None:
    log = QuietLog(STEP_SECONDS / 10)
    pace = paced(log)
    for seconds, is_behind in ((STEP_SECONDS / 10, False), (STEP_SECONDS / 10, True), (STEP_SECONDS * 10, False)):
        log.seconds = seconds
        await pace.write_step(log.step, amount=lambda size: size // 4, is_behind=is_behind)
        assert pace.size == 100


async def test_what_is_behind_takes_larger_steps_also_where_they_end_before_their_size() -> None:
    """Whole blocks of events seldom add up to the size of a step."""
    log = QuietLog(STEP_SECONDS)
    pace = paced(log)
    for _ in range(4):
        await pace.write_step(log.step, amount=lambda size: size - 1, is_behind=True)
    assert log.sizes == [100, 200, 400, 800]


async def test_a_time_that_does_not_depend_on_the_size_makes_no_step_small() -> None:
    """On a busy node a step mostly waits for the interpreter lock."""
    log = QuietLog(STEP_SECONDS * 4)
    pace = paced(log)
    for _ in range(50):
        await pace.write_step(log.step, amount=int)
    assert min(log.sizes) >= 30
    assert max(log.sizes[-10:]) >= 500


async def test_steps_get_as_large_as_their_time_allows_within_bounds() -> None:
    log = QuietLog(STEP_SECONDS / 10)
    pace = paced(log)
    for _ in range(6):
        await pace.write_step(log.step, amount=int)
    assert log.sizes == [100, 200, 400, 800, 1000, 1000]
    log.seconds_each = STEP_SECONDS / 20
    for _ in range(12):
        await pace.write_step(log.step, amount=int)
    assert 15 <= log.sizes[-1] <= 25
    log.seconds_each = STEP_SECONDS
    for _ in range(3):
        await pace.write_step(log.step, amount=int)
    assert log.sizes[-1] == 10


async def test_on_a_disk_that_hangs_the_rest_is_bounded() -> None:
    log = QuietLog(60.0)
    pace = paced(log)
    log.is_writing = True
    await next_rest(log, pace)
    assert await next_rest(log, pace) == LONGEST_REST
