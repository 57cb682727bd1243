"""Shares of the writer: bounds by key and together, order within a key, and turns of keys."""

from __future__ import annotations

import asyncio

from eventd.api.admin.events.writer_shares import WriterShares, WriterTurn


async def test_a_key_at_its_bound_waits_and_another_does_not() -> None:
    shares = WriterShares(key_events=10, process_events=20)
    first, second, third = (shares.ask(b"a", events) for events in (8, 3, 1))
    assert [turn.is_granted for turn in (first, second, third)] == [True, False, False], "in their order"
    assert shares.ask(b"b", 10).is_granted
    shares.give_back(b"a", 8)
    assert second.is_granted
    assert third.is_granted
    assert shares.held == 14


async def test_keys_take_turns_once_the_process_is_at_its_bound() -> None:
    shares = WriterShares(key_events=10, process_events=10)
    held = shares.ask(b"a", 10)
    assert held.is_granted
    waiting = {key: [shares.ask(key, 5) for _ in range(3)] for key in (b"a", b"b")}
    shares.give_back(b"a", 10)
    assert [[turn.is_granted for turn in turns] for turns in waiting.values()] == [[True, False, False]] * 2
    shares.give_back(b"a", 5)
    shares.give_back(b"b", 5)
    assert [[turn.is_granted for turn in turns] for turns in waiting.values()] == [[True, True, False]] * 2


async def test_a_large_message_is_not_passed_by_small_ones_of_other_keys() -> None:
    shares = WriterShares(key_events=10, process_events=20)
    assert [shares.ask(key, 8).is_granted for key in (b"a", b"b")] == [True, True]
    large = shares.ask(b"c", 8)
    small = [shares.ask(key, 2) for key in (b"a", b"b", b"a")]
    assert [turn.is_granted for turn in (large, *small)] == [False] * 4, "2 would fit, but 8 came before"
    shares.give_back(b"a", 8)
    assert [turn.is_granted for turn in (large, *small)] == [True, True, True, False]


async def test_a_turn_that_is_given_up_lets_those_behind_it_follow() -> None:
    shares = WriterShares(key_events=10, process_events=20)
    assert [shares.ask(key, 8).is_granted for key in (b"a", b"b")] == [True, True]
    large, small = shares.ask(b"c", 8), shares.ask(b"d", 2)
    large.future.set_result(None)
    shares.withdraw()
    assert small.is_granted


async def test_a_key_at_its_own_bound_does_not_hold_up_others() -> None:
    shares = WriterShares(key_events=10, process_events=20)
    assert shares.ask(b"a", 10).is_granted
    assert not shares.ask(b"a", 10).is_granted
    assert shares.ask(b"b", 10).is_granted


async def test_a_message_whose_connection_has_ended_gets_no_share() -> None:
    shares = WriterShares(key_events=10, process_events=10)
    assert shares.ask(b"a", 10).is_granted
    gone, cancelled, next_one = shares.ask(b"a", 10), shares.ask(b"a", 10), shares.ask(b"a", 10)
    gone.future.set_result(None)
    cancelled.future.cancel()
    shares.give_back(b"a", 10)
    assert [turn.is_granted for turn in (gone, cancelled, next_one)] == [False, False, True]
    shares.give_back(b"a", 10)
    assert (shares.held, shares._lines, dict(shares._by_key)) == (0, {}, {})


async def test_a_granted_turn_wakes_its_waiter() -> None:
    shares = WriterShares(key_events=1, process_events=1)
    shares.ask(b"a", 1)
    turns: list[WriterTurn] = [shares.ask(b"a", 1)]
    shares.give_back(b"a", 1)
    await asyncio.wait_for(turns[0].future, 10)
