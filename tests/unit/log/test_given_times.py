"""The times that the node gives: later than every other of the same topic and URL, and what that takes is bounded."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from eventd.log.routemaster.times import REMEMBERED, give_time


def test_the_time_is_the_clock_s_unless_the_url_has_had_it() -> None:
    one = give_time(0, "", "https://a", 1000)
    two = give_time(one.base, one.recent, "https://b", 1000)
    again = give_time(two.base, two.recent, "https://a", 1000)
    assert (one.t, two.t, again.t) == (1000, 1000, 1001)
    assert give_time(again.base, again.recent, "https://a", 1005).t == 1005


def test_a_clock_that_is_set_back_gives_no_earlier_time() -> None:
    one = give_time(0, "", "https://a", 1000)
    assert give_time(one.base, one.recent, "https://b", 10).t == 1000
    assert give_time(one.base, one.recent, "https://a", 10).t == 1001


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(-2, 3)), max_size=400))
def test_every_time_is_later_than_the_last_of_its_url_and_little_is_remembered(steps: list[tuple[int, int]]) -> None:
    last: dict[str, int] = {}
    base, recent, now = 0, "", 1000
    for number, moved in steps:
        now, url = now + moved, f"https://a/{number}"
        t, base, recent = give_time(base, recent, url, now)
        assert t > last.get(url, -1)
        assert t >= now
        last[url] = t
        assert len(msgspec.json.decode(recent)) <= REMEMBERED


def test_many_urls_in_one_millisecond_are_not_remembered_but_passed() -> None:
    base, recent, seen = 0, "", list[int]()
    for number in range(REMEMBERED + 2):
        t, base, recent = give_time(base, recent, f"https://a/{number}", 1000)
        seen.append(t)
    assert seen == [1000] * (REMEMBERED + 1) + [1001]
