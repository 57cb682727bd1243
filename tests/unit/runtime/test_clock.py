"""Waits that are stored as wall times, while the wall clock is set."""

from __future__ import annotations

import pytest

from eventd.runtime.clock import SECOND, Countdown, Moment, SystemClock
from eventd.testing import NOW, ManualClock

DAY = 86400 * SECOND
ENDS = NOW + 100 * SECOND


@pytest.mark.parametrize("step", [-DAY, DAY])
@pytest.mark.parametrize("begun_here", [False, True])
def test_a_step_of_the_wall_clock_moves_no_wait_that_was_seen(step: int, begun_here: bool) -> None:
    clock = ManualClock()
    countdown = Countdown(clock)
    if begun_here:
        countdown.begin(NOW, ENDS)
    assert countdown.left(NOW, ENDS) == 100
    clock.advance(30)
    clock.set_wall(clock.now() + step)
    assert (countdown.passed(NOW, ENDS), countdown.left(NOW, ENDS)) == (30, 70)
    clock.advance(100)
    assert countdown.left(NOW, ENDS) == 0


@pytest.mark.parametrize(("now", "left"), [(-DAY, 100), (0, 100), (40 * SECOND, 60), (100 * SECOND, 0), (DAY, 0)])
def test_of_a_wait_of_an_earlier_process_no_more_is_left_than_there_was(now: int, left: float) -> None:
    clock = ManualClock(NOW + now)
    assert Countdown(clock).left(NOW, ENDS) == left


@pytest.mark.parametrize("length", [1, 3, 929_113, 1_999_999, 7_654_321])
def test_a_wait_is_over_at_its_very_end(length: int) -> None:
    clock = ManualClock()
    countdown = Countdown(clock)
    countdown.begin(NOW, NOW + length)
    clock.advance(length / SECOND)
    assert countdown.left(NOW, NOW + length) == 0


def test_another_wait_counts_anew() -> None:
    clock = ManualClock()
    countdown = Countdown(clock)
    assert countdown.left(NOW, ENDS) == 100
    clock.advance(50)
    assert countdown.left(NOW, ENDS + SECOND) == 51
    clock.set_wall(NOW)
    countdown.begin(NOW, ENDS)
    assert countdown.left(NOW, ENDS) == 100


def test_steady_time_is_wall_time_until_the_wall_clock_is_set() -> None:
    clock = ManualClock()
    clock.advance(5)
    assert Moment.of(clock) == (NOW + 5 * SECOND, NOW + 5 * SECOND)
    clock.set_wall(NOW - DAY)
    clock.advance(1)
    assert Moment.of(clock) == (NOW - DAY + SECOND, NOW + 6 * SECOND)


def test_processes_with_one_origin_have_one_steady_time() -> None:
    first = SystemClock()
    assert abs(first.steady() - first.now()) < SECOND
    before, then, after = first.steady(), SystemClock(first.origin).steady(), first.steady()
    assert before <= then <= after
