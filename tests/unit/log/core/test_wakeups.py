"""Wakeups: a reader that notes the turn before it reads misses none, whatever happens between the read and the wait."""

from __future__ import annotations

from collections.abc import Collection

from eventd.log.core.wakeups import FEW_READERS, UNSEEN, Wakeups


async def test_a_sign_between_the_read_and_the_wait_is_not_missed() -> None:
    wakeups = Wakeups()
    watch = wakeups.watch((1,))
    turn = watch.turn
    wakeups.touch(1)
    assert watch.after(turn).done()
    assert not watch.after(watch.turn).done()


async def test_what_moves_no_head_is_a_sign_for_those_whom_it_concerns() -> None:
    wakeups = Wakeups()
    mine, other, every = wakeups.watch((1,)), wakeups.watch((2,)), wakeups.watch(None)
    waits = [watch.after(watch.turn) for watch in (mine, other, every)]
    beyond = mine.beyond(7)
    wakeups.touch(1)
    assert [wait.done() for wait in waits] == [True, False, True]
    assert beyond.done()
    wakeups.touch_all()
    assert waits[1].done()


async def test_an_append_is_a_sign_as_well() -> None:
    wakeups = Wakeups()
    mine, other = wakeups.watch((1,)), wakeups.watch((2,))
    waits = [watch.after(watch.turn) for watch in (mine, other)]
    wakeups.appended(1, 1, {1: True})
    assert [wait.done() for wait in waits] == [True, False]
    wakeups.foreign(2)
    assert waits[1].done()
    assert (mine.turn, other.turn) == (2, 1)


async def test_who_has_given_up_waiting_is_left_alone() -> None:
    wakeups = Wakeups()
    watch = wakeups.watch((1,))
    gone, waits = watch.after(watch.turn), watch.after(watch.turn)
    gone.cancel()
    wakeups.touch(1)
    assert waits.done()
    assert gone.cancelled()


def test_readers_that_share_a_watch_count_each() -> None:
    wakeups = Wakeups()
    wakeups.watch(None)
    wakeups.watch((1,))
    shared = wakeups.watch((1, 2))
    shared.readers = FEW_READERS - 1
    assert wakeups.are_few((1,))
    shared.readers = FEW_READERS
    assert (wakeups.are_few((1,)), wakeups.are_few((2,)), wakeups.are_few((1, 2))) == (False, True, False)


async def test_listeners_are_told_which_topics_and_none_where_nobody_knows() -> None:
    wakeups, told = Wakeups(), list[Collection[int] | None]()
    wakeups.listeners.append(lambda topics: told.append(None if topics is None else sorted(topics)))
    wakeups.appended(1, 2, {1: True, 2: False})
    wakeups.touch(3)
    wakeups.foreign(9)
    wakeups.touch_all()
    assert told == [[1, 2], [3], None, None]


async def test_a_reader_of_some_families_is_woken_by_others_only_before_it_falls_behind() -> None:
    wakeups = Wakeups()
    orders, all_of_them = wakeups.watch((1,), families=frozenset({"orders"})), wakeups.watch((1,))
    waits = [watch.beyond(0) for watch in (orders, all_of_them)]
    wakeups.appended(1, 1, {1: True}, {"users"})
    assert [wait.done() for wait in waits] == [False, True]
    wakeups.appended(2, 3, {1: True}, {"users", "orders"})
    assert waits[0].done()
    unknown = orders.beyond(3)
    wakeups.appended(4, 4, {1: True}, None)
    assert unknown.done()
    behind = orders.beyond(4)
    wakeups.appended(5, 3 + UNSEEN, {1: True}, {"users"})
    assert not behind.done()
    wakeups.appended(4 + UNSEEN, 4 + UNSEEN, {1: True}, {"users"})
    assert behind.done()


async def test_families_are_needed_while_a_reader_names_some() -> None:
    wakeups = Wakeups()
    wakeups.watch((1,))
    assert not wakeups.needs_families
    watch = wakeups.watch((1,), families=frozenset({"orders"}))
    assert wakeups.needs_families
    for _ in range(2):
        wakeups.unwatch(watch)
        assert not wakeups.needs_families


async def test_a_wait_for_a_far_position_ends_when_the_head_is_beyond_it() -> None:
    wakeups = Wakeups()
    watch = wakeups.watch((1,))
    near, far = watch.beyond(2), watch.beyond(9)
    wakeups.appended(1, 2, {1: True})
    assert not near.done()
    wakeups.appended(3, 3, {1: True})
    assert (near.done(), far.done()) == (True, False)
    wakeups.appended(4, 10, {1: True})
    assert far.done()
