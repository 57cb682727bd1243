"""Supervised tasks: each failure is logged and counted; essential tasks are restarted, a vital one stops the node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eventd.observe.metrics import Metrics
from eventd.runtime.log_pause import MOST_REASONS
from eventd.runtime.supervisor import AGAIN, STEADY_SECONDS, Failure, Supervisor
from eventd.testing import ManualClock, give_turns, until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def counted() -> list[str]:
    return []


@pytest.fixture
async def supervisor(clock: ManualClock, counted: list[str]) -> AsyncIterator[Supervisor]:
    made = Supervisor(clock, counted.append)
    yield made
    await made.stop()


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = []
    for record in caplog.records:
        assert (record.levelno, record.message, record.name) == (logging.ERROR, "task failed", "eventd.tasks")
        error = record.exc_info[1] if record.exc_info else None
        found.append({"task": vars(record)["task"], "outcome": vars(record)["outcome"], "error": type(error)})
    return found


async def fail(error: Exception) -> None:
    raise error


async def test_a_task_that_nobody_awaits_does_not_die_unseen(
    supervisor: Supervisor, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    supervisor.spawn(fail(KeyError("gone")), "routers that were changed")
    await until(lambda: counted)
    assert counted == [Failure.ENDED]
    assert logged(caplog) == [{"task": "routers that were changed", "outcome": "ended", "error": KeyError}]


async def test_an_error_that_its_owner_expects_is_a_result(
    supervisor: Supervisor, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    expected = supervisor.spawn(fail(TimeoutError()), "delivery", expects=(OSError, ValueError))
    with pytest.raises(TimeoutError):
        await expected
    other = supervisor.spawn(fail(KeyError()), "delivery", expects=(OSError, ValueError))
    with pytest.raises(KeyError):
        await other
    assert counted == [Failure.ENDED]
    assert logged(caplog) == [{"task": "delivery", "outcome": "ended", "error": KeyError}]


async def test_what_must_live_is_run_again_ever_more_rarely_until_it_runs_steadily(
    supervisor: Supervisor, clock: ManualClock, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    runs = 0
    steady: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def chore() -> None:
        nonlocal runs
        runs += 1
        if runs == 4:
            await steady
        if runs < 6:
            raise KeyError(runs)

    task = supervisor.keep(chore, "sweep")
    for failures in (1, 2, 3):
        await until(lambda failures=failures: runs == failures and clock.waits)  # type: ignore[misc]
        assert clock.waits == [pytest.approx(AGAIN.base * 2 ** (failures - 1))]
        clock.advance(clock.waits[0])
    await until(lambda: runs == 4)
    clock.advance(STEADY_SECONDS + 1)
    steady.set_result(None)
    await until(lambda: clock.waits)
    assert clock.waits == [pytest.approx(AGAIN.base)], "after a steady run a failure is the first again"
    clock.advance(1)
    await until(lambda: runs == 5 and clock.waits)
    clock.advance(1)
    await asyncio.wait_for(task, 5)
    assert counted == [Failure.RESTARTED] * 5
    assert {one["task"] for one in logged(caplog)} == {"sweep"}


async def test_a_failure_that_repeats_is_logged_once_a_minute_and_counted_each_time(
    supervisor: Supervisor, clock: ManualClock, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that stays full must not be filled further by the log."""

    async def chore() -> None:
        raise OSError("disk full") if len(counted) != 2 else ValueError("something else")

    supervisor.keep(chore, "history")
    for failures in range(1, 12):
        await until(lambda failures=failures: len(counted) == failures and clock.waits)  # type: ignore[misc]
        clock.advance(clock.waits[0])
    told = [(type(line.exc_info[1]), vars(line)["attempts"]) for line in caplog.records if line.exc_info]
    assert told == [(OSError, 1), (ValueError, 3), (OSError, 11)], "81 s after the first"


async def test_no_failure_is_hidden_by_another_that_repeats(
    supervisor: Supervisor, clock: ManualClock, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Reasons share pauses: a failure of another kind has a line of its own, whatever its text is."""

    async def chore(defect: int) -> None:
        raise OSError("disk full") if len(counted) % 2 == 0 else ValueError(defect)

    for defect in range(4 * MOST_REASONS):  # the texts of some of them share the pause of the full disk
        supervisor.keep(lambda defect=defect: chore(defect), f"history {defect}")  # type: ignore[misc]
        await until(lambda defect=defect: len(counted) == 2 * defect + 1 and clock.waits)  # type: ignore[misc]
        clock.advance(AGAIN.base)
        await until(lambda defect=defect: len(counted) == 2 * defect + 2 and clock.waits)  # type: ignore[misc]
        of_task = [line for line in caplog.records if vars(line)["task"] == f"history {defect}" and line.exc_info]
        assert [type(line.exc_info[1]) for line in of_task if line.exc_info] == [OSError, ValueError], defect
        await supervisor.stop()


async def test_a_wait_that_is_cancelled_from_elsewhere_ends_no_task_that_must_live(
    supervisor: Supervisor, clock: ManualClock, counted: list[str]
) -> None:
    waits: list[asyncio.Future[None]] = []

    async def chore() -> None:
        waits.append(asyncio.get_running_loop().create_future())
        await waits[-1]

    task = supervisor.keep(chore, "feed")
    await until(lambda: waits)
    waits[0].cancel()
    await until(lambda: clock.waits)
    clock.advance(1)
    await until(lambda: len(waits) == 2)
    assert (counted, task.done()) == ([Failure.RESTARTED], False)


async def test_what_was_asked_to_end_is_not_run_again_though_it_fails_on_the_way(
    supervisor: Supervisor, clock: ManualClock, counted: list[str]
) -> None:
    async def chore() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError

    task = supervisor.keep(chore, "beat")
    await give_turns()
    task.cancel()
    with pytest.raises(KeyError):
        await task
    assert (counted, clock.waits) == ([Failure.ENDED], [])


@pytest.mark.parametrize("error", [KeyError("gone"), None])
async def test_the_end_of_what_is_vital_ends_the_node(
    supervisor: Supervisor, counted: list[str], caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    supervisor.guard(fail(error) if error else give_turns(), "claim")
    with pytest.raises(KeyError if error else RuntimeError, match="gone" if error else "the task 'claim' ended"):
        await asyncio.wait_for(asyncio.shield(supervisor.failed), 5)
    assert counted == ([Failure.FATAL] if error else [])
    assert [one["task"] for one in logged(caplog)] == (["claim"] if error else [])


async def test_a_stop_ends_all_and_counts_none(clock: ManualClock, counted: list[str]) -> None:
    supervisor = Supervisor(clock, counted.append)
    tasks = [
        supervisor.spawn(asyncio.Event().wait(), "a"),
        supervisor.keep(asyncio.Event().wait, "b"),  # type: ignore[arg-type]
        supervisor.guard(asyncio.Event().wait(), "c"),  # type: ignore[arg-type]
    ]
    await give_turns()
    await supervisor.stop()
    assert [task.cancelled() for task in tasks] == [True] * 3
    assert (counted, supervisor.failed.done()) == ([], False)


async def test_failures_are_a_metric_with_what_follows(clock: ManualClock) -> None:
    metrics = Metrics()
    supervisor = Supervisor(clock, metrics.task_failed)
    supervisor.spawn(fail(KeyError()), "a")
    supervisor.keep(lambda: fail(KeyError()), "b")
    supervisor.guard(fail(KeyError()), "c")
    await until(supervisor.failed.done)
    shown = metrics.render().decode()
    for failure in Failure:
        assert f'routerd_eventd_task_failures_total{{status="{failure}"}} 1.0' in shown
    await supervisor.stop()
