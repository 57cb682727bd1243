"""What pages show of operations that take long."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from eventd.console.view.recent import MOST_ANSWERS, PATIENCE_SECONDS, RecentAnswers
from eventd.errors import Unavailable
from eventd.testing import ManualClock, give_turns


class SlowAnswers:
    """An operation that takes `seconds`; its answers are numbers."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self.clock, self.seconds, self.asked, self.error = clock, seconds, 0, False

    async def __call__(self) -> int:
        self.asked += 1
        number = self.asked
        if self.seconds:
            await self.clock.sleep(self.seconds)
        if self.error:
            raise Unavailable("the database is away")
        return number


class Console:
    """The recent answers of one process, and the tasks that get them."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.clock = ManualClock()
        self.answers = RecentAnswers(self.clock, self._spawn)
        self.ask = SlowAnswers(self.clock, seconds)
        self.tasks: set[asyncio.Task[Any]] = set()

    def _spawn(self, work: Coroutine[Any, Any, Any], _name: str, **_expects: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        return task

    async def find(self, question: object = "doctor", whose: str = "admin", wait: float = 0.0) -> int | None:
        """Look at the page; after `wait` seconds the page is patient no longer."""
        looking = asyncio.ensure_future(self.answers.find(whose, question, self.ask))
        await give_turns()
        if wait:
            self.clock.advance(wait)
        found = await looking
        return None if found is None else found.content


async def test_what_is_quick_is_asked_each_time() -> None:
    console = Console()
    assert [await console.find() for _ in range(3)] == [1, 2, 3]


async def test_a_page_does_not_wait_for_what_takes_long_and_shows_it_later() -> None:
    console = Console(seconds=2.0)
    assert await console.find(wait=PATIENCE_SECONDS) is None
    assert await console.find(wait=PATIENCE_SECONDS) is None
    assert console.ask.asked == 1, "one at a time"
    console.clock.advance(2.0)
    await give_turns()
    assert await console.find() == 1


async def test_the_first_answer_is_reported_to_a_page_that_did_not_wait_for_it() -> None:
    console, arrived = Console(seconds=2.0), list[str]()
    looking = asyncio.ensure_future(
        console.answers.find("admin", "doctor", console.ask, then=lambda: arrived.append("first"))
    )
    await give_turns()
    console.clock.advance(PATIENCE_SECONDS)
    assert (await looking, arrived) == (None, [])
    console.clock.advance(2.0)
    await give_turns()
    assert arrived == ["first"]
    await console.find()
    assert arrived == ["first"]


async def test_what_takes_long_is_asked_for_a_tenth_of_the_time_and_the_last_answer_is_shown_meanwhile() -> None:
    console = Console(seconds=2.0)
    await console.find(wait=PATIENCE_SECONDS)
    console.clock.advance(1.9)
    await give_turns()
    console.clock.advance(17.9)
    assert await console.find() == 1
    assert console.ask.asked == 1
    console.clock.advance(0.2)
    assert await console.find(wait=PATIENCE_SECONDS) == 1
    assert console.ask.asked == 2


async def test_each_visitor_gets_what_it_may_see() -> None:
    console = Console(seconds=2.0)
    await console.find(whose="admin", wait=2.0)
    assert await console.find(whose="guest", wait=PATIENCE_SECONDS) is None
    assert console.ask.asked == 2


async def test_an_action_makes_the_answers_void_also_one_that_is_under_way_and_none_runs_beside_it() -> None:
    console = Console(seconds=2.0)
    await console.find(wait=PATIENCE_SECONDS)
    console.answers.forget()
    assert await console.find(wait=PATIENCE_SECONDS) is None
    assert console.ask.asked == 1, "one at a time, also after an action"
    console.clock.advance(2.0)
    await give_turns()
    assert console.ask.asked == 2
    assert await console.find(wait=PATIENCE_SECONDS) is None, "the first answer is of the time before the action"
    console.clock.advance(2.0)
    await give_turns()
    assert await console.find() == 2


async def test_after_an_action_the_last_answer_counts_as_outdated_until_there_is_a_new_one() -> None:
    console = Console(seconds=2.0)
    await console.find(wait=2.0)
    console.answers.forget()
    looking = asyncio.ensure_future(console.answers.find("admin", "doctor", console.ask))
    await give_turns()
    console.clock.advance(PATIENCE_SECONDS)
    found = await looking
    assert found is not None
    assert (found.content, found.is_outdated) == (1, True)
    console.clock.advance(2.0)
    await give_turns()
    assert await console.find() == 2


async def test_an_error_of_the_time_before_an_action_is_not_shown() -> None:
    console = Console(seconds=2.0)
    console.ask.error = True
    await console.find(wait=PATIENCE_SECONDS)
    console.answers.forget()
    console.clock.advance(2.0)
    await give_turns()
    console.ask.error = False
    console.clock.advance(2.0)
    await give_turns()
    assert await console.find() == 2


async def test_an_error_is_shown_once_and_the_next_page_asks_again() -> None:
    console = Console()
    console.ask.error = True
    with pytest.raises(Unavailable, match="the database is away"):
        await console.find()
    console.ask.error = False
    assert await console.find() == 2


async def test_the_answers_to_many_questions_are_not_all_kept() -> None:
    console = Console()
    for number in range(MOST_ANSWERS + 5):
        await console.find(number)
    assert len(console.answers._asked) == MOST_ANSWERS


async def test_a_question_that_is_running_is_kept_however_many_are_asked_after_it() -> None:
    console = Console(seconds=2.0)
    await console.find("doctor", wait=PATIENCE_SECONDS)
    console.ask.seconds = 0.0
    for number in range(MOST_ANSWERS + 5):
        await console.find(number)
    asked = console.ask.asked
    assert await console.find("doctor", wait=PATIENCE_SECONDS) is None
    assert console.ask.asked == asked
    assert len(console.answers._asked) == MOST_ANSWERS
