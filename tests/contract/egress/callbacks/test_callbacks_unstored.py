"""A database that cannot be written, and a wall clock that is wrong: endpoints do not suffer from either."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.egress.callbacks.cursor import CallbackCursor
from eventd.errors import DatabaseUnavailable
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.testing import NOW, ManualClock, give_turns, until
from tests.support.callback_receivers import Receiver, Reply
from tests.support.called_back import HOURLY, CalledBack, callback

HOUR = 3600


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("status", [204, 503, 400])
async def test_a_result_that_cannot_be_stored_is_not_asked_for_again_and_again(
    called: CalledBack, receiver: Receiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, status: int, lost: bool
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise DatabaseUnavailable("the disk is full")

    receiver.always(status)
    await called.declare(callback(receiver.url))
    await called.caught_up()
    await called.callbacks.stop(0.0)
    await called.emit("e1")
    if lost:  # the endpoint gets a report first
        await called.emit("e2")
        topic = await called.log.topic("group:g")
        await called.log.database.write(evict, topic, EvictionLimits(max_records=1, keep_undelivered=False), now=NOW)
    with monkeypatch.context() as full:
        full.setattr(CallbackCursor, "settle", refuse)
        full.setattr(CallbackCursor, "_postpone", refuse)
        full.setattr(called.log, "try_writing", refuse)
        await called.restart()
        await until(lambda: receiver.requests)
        for _ in range(60):
            await until(lambda: clock.waits, "the callback to wait")
            clock.advance(1)
        assert len(receiver.requests) == 1
    receiver.always(204)

    async def advance() -> bool:
        clock.advance(1)
        return (await called.cursor()).position == 1 + lost

    await until(advance)
    assert receiver.events[-1] == ("e2" if lost else "e1")
    assert len(receiver.requests) <= 5


@pytest.mark.parametrize("hours", [-300, -3, 3, 300])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_step_of_the_wall_clock_moves_no_retry_and_disables_nothing(
    called: CalledBack, receiver: Receiver, clock: ManualClock, hours: int, restarts: bool
) -> None:
    async def retried(times: int) -> None:
        for _ in range(20):  # each advance is one second: the back-off is 2 or 4 s, and at most 10 s after a restart
            await until(lambda: clock.waits)
            if (await called.cursor()).attempts >= times:
                return
            clock.advance(1)
        raise AssertionError(f"not tried {times} times")

    receiver.always(503)
    await called.declare(callback(receiver.url, disable_after=120 * HOUR * 10**6))
    await called.emit("e1")
    await called.failed(1)
    for number, step in enumerate((hours, -hours), start=2):
        clock.set_wall(clock.now() + step * HOUR * 10**6)
        if restarts:
            await called.restart()
        await retried(number)
        cursor = await called.cursor()
        assert cursor.failing_since is not None
        assert 0 <= clock.now() - cursor.failing_since < 60 * 10**6
    assert (cursor.paused_at, called.changes) == (None, [])
    receiver.always(204)
    await called.rest(cursor)
    await called.caught_up()
    assert receiver.events == ["e1"]


@pytest.mark.parametrize("hours", [-300, -3, 3, 300])
async def test_a_step_of_the_wall_clock_does_not_move_the_end_of_a_window(
    called: CalledBack, receiver: Receiver, clock: ManualClock, hours: int
) -> None:
    await called.declare(callback(receiver.url, format="batch", max_events=10, window=10 * 10**6))
    await called.emit("e1")
    await until(lambda: clock.waits)
    clock.set_wall(clock.now() + hours * HOUR * 10**6)
    clock.advance(9)
    await called.emit("e2")
    await give_turns()
    await until(lambda: clock.waits, "the window to stay open")
    assert not receiver.requests
    clock.advance(2)
    await until(lambda: receiver.requests)
    assert receiver.events[0] == "e1"


async def test_the_time_of_slow_requests_counts_as_failing(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, backoff=HOURLY, disable_after=120 * HOUR * 10**6))
    await called.emit("e1")
    first = await called.failed(1)
    receiver.answer = lambda _: Reply(503, delay=0.2)
    for number in (2, 3):
        before = len(receiver.requests)
        await called.rest(await called.cursor())
        await until(lambda before=before: len(receiver.requests) > before)  # type: ignore[misc]
        clock.advance(1800)  # the endpoint takes half an hour
        cursor = await called.failed(number)
    assert cursor.failing_since == first.failing_since
    assert clock.now() - (cursor.failing_since or 0) >= 3 * HOUR * 10**6
