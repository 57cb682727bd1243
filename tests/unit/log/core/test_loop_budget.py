"""When a transaction may run in the loop: a disk is trusted once it was fast, and not for a while when it was slow."""

from __future__ import annotations

import pytest

from eventd.log.core.loop_budget import FIRST_PAUSE, LONGEST_PAUSE, SHORT, SLOW, TRUSTED, LoopBudget
from eventd.testing import ManualClock

FAST = SHORT / 4
LONG = (SHORT + SLOW) / 2


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def budget(clock: ManualClock) -> LoopBudget:
    return LoopBudget(clock.monotonic)


def prove(budget: LoopBudget) -> None:
    for _ in range(TRUSTED):
        budget.note_flush(FAST)


def test_a_disk_is_trusted_after_short_flushes_and_not_before(budget: LoopBudget) -> None:
    opened = []
    for _ in range(TRUSTED):
        opened.append(budget.is_open)
        budget.note_flush(FAST)
    assert opened == [False] * TRUSTED
    assert budget.is_open


def test_flushes_that_are_neither_short_nor_slow_earn_no_trust(budget: LoopBudget) -> None:
    for _ in range(10 * TRUSTED):
        budget.note_flush(LONG)
        budget.note_flush(FAST)
    assert not budget.is_open


def test_one_long_transaction_ends_no_trust_and_several_do(budget: LoopBudget) -> None:
    prove(budget)
    budget.note_loop(LONG)
    assert budget.is_open
    for _ in range(TRUSTED):
        budget.note_loop(FAST)
    assert budget.is_open
    budget.note_loop(LONG)
    budget.note_loop(LONG)
    assert not budget.is_open
    prove(budget)
    assert budget.is_open, "without a pause"


def test_a_slow_flush_of_the_thread_or_a_failure_asks_for_a_new_proof(budget: LoopBudget) -> None:
    for doubt in (lambda: budget.note_flush(SLOW), budget.distrust):
        prove(budget)
        assert budget.is_open
        doubt()
        assert not budget.is_open


def paused(budget: LoopBudget, clock: ManualClock) -> float:
    """Let a transaction in the loop be slow; return for how long none may run there although the disk is fast."""
    prove(budget)
    assert budget.is_open
    budget.note_loop(SLOW)
    prove(budget)
    waited = 0.0
    while not budget.is_open:
        clock.advance(1.0)
        waited += 1.0
    return waited


def test_each_slow_transaction_in_the_loop_doubles_the_pause_up_to_a_bound(
    budget: LoopBudget, clock: ManualClock
) -> None:
    pauses = [paused(budget, clock) for _ in range(8)]
    assert pauses == [FIRST_PAUSE, 20, 40, 80, 160, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    clock.advance(LONGEST_PAUSE)
    assert paused(budget, clock) == FIRST_PAUSE, "after a calm time"
