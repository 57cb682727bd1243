"""The reference's law, as the benchmark of callbacks simulates it, does what was observed of it."""

from __future__ import annotations

import random

from tests.bench.callback_recovery import simulate_reference


def test_a_dead_receiver_is_tried_46_times_in_the_first_five_seconds_and_then_once_a_minute() -> None:
    tries = {
        outage: [simulate_reference(outage, 1, random.Random(seed)).tries for seed in range(20)]
        for outage in (5, 60, 660)
    }
    assert set(tries[5]) == {46, 47}
    assert all(7 <= late - early <= 11 for early, late in zip(tries[60], tries[660], strict=True))


def test_a_receiver_that_comes_back_gets_what_waits_over_minutes() -> None:
    found = [simulate_reference(600, 50, random.Random(seed)) for seed in range(20)]
    assert all(one.first <= 90 for one in found)
    assert all(60 < one.all_of_it < 180 for one in found)


def test_a_healthy_receiver_gets_everything_at_once() -> None:
    assert simulate_reference(0, 50, random.Random(1)) == (0, 0, 0)
