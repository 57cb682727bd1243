"""Calls that block have threads of their own, and those that hang leave some to the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from eventd.runtime import blocking_calls
from eventd.runtime.blocking_calls import COUNT, BlockingCalls
from eventd.runtime.threads import THREADS
from eventd.testing import until


@pytest.fixture
def release() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


def wait(release: threading.Event) -> str:
    release.wait(60)
    return "late"


async def test_callers_with_one_key_share_the_call_and_its_error() -> None:
    calls, made = BlockingCalls(THREADS, "t"), list[int]()
    gate = threading.Event()

    def fail() -> None:
        made.append(1)
        gate.wait(10)
        raise ValueError("no")

    tasks = [asyncio.create_task(calls.run("k", "", fail)) for _ in range(100)]
    await until(lambda: made)
    gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert {str(error) for error in found} == {"no"}
    assert len(made) == 1
    assert await calls.run("k", "", lambda: 7) == 7, "the next call is a new one"
    calls.close()


async def test_places_that_are_slow_cannot_take_all_threads(
    monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    monkeypatch.setattr(blocking_calls, "SLOW_SECONDS", 0.02)
    calls, running = BlockingCalls(THREADS, "t"), list[int]()

    def hang() -> str:
        running.append(1)
        return wait(release)

    first = [asyncio.create_task(calls.run(place, place, hang)) for place in "ab"]
    await until(lambda: set(calls._slow) == {"a", "b"})
    tasks = [asyncio.create_task(calls.run(f"{number}", "ab"[number % 2], hang)) for number in range(2 * COUNT)]
    await until(lambda: len(running) == 2 + COUNT // 2)
    async with asyncio.timeout(5):
        assert await calls.run("new", "c", lambda: 2) == 2
    assert len(running) == 2 + COUNT // 2
    release.set()
    assert await asyncio.gather(*first, *tasks) == ["late"] * (2 + 2 * COUNT)
    await calls.run("quick", "a", lambda: 1)
    assert "a" not in calls._slow
    calls.close()


async def test_a_caller_that_gives_up_waits_no_more_and_too_many_do_not_wait(
    monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    monkeypatch.setattr(blocking_calls, "MOST_WAITING", 2)
    calls = BlockingCalls(THREADS, "t")
    tasks = [asyncio.create_task(calls.run(f"{number}", "", lambda: wait(release))) for number in range(COUNT)]
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(calls.run(key, "", lambda: "done")) for key in ("x", "y")]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="2 others wait"):
        await calls.run("z", "", lambda: "done")
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    third = asyncio.create_task(calls.run("z", "", lambda: "done"))
    release.set()
    assert await asyncio.gather(waiting[1], third) == ["done", "done"]
    assert await asyncio.gather(*tasks) == ["late"] * COUNT
    calls.close()


async def test_no_thread_is_started_after_the_end() -> None:
    calls = BlockingCalls(THREADS, "t")
    assert await calls.run("a", "", lambda: 1) == 1
    calls.close()
    for _ in range(COUNT + 1):  # no turn is lost either
        with pytest.raises(OSError, match="no further calls"):
            await calls.run("a", "", lambda: 1)


async def test_calls_without_a_thread_fail_and_later_ones_get_their_turn() -> None:
    class Exhausted(ThreadPoolExecutor):
        is_exhausted = True

        def submit(self, *args: Any, **named: Any) -> Any:
            if self.is_exhausted:
                raise RuntimeError("can't start new thread")
            return super().submit(*args, **named)

    calls = BlockingCalls(Exhausted, "t")
    for number in range(2 * COUNT):
        with pytest.raises(OSError, match="can't start new thread"):
            await calls.run(f"{number}", "", lambda: 1)
    Exhausted.is_exhausted = False
    async with asyncio.timeout(5):
        assert await calls.run("0", "", lambda: 1) == 1
    calls.close()
