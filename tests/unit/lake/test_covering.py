from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eventd.lake.coverage import Span, choose, holes

SPANS = st.builds(lambda after, length: Span(after, after + length), st.integers(0, 12), st.integers(1, 6))


def numbers(spans: list[Span]) -> list[int]:
    return [number for span in spans for number in range(span.after + 1, span.upto + 1)]


def test_ranges_that_follow_each_other_are_all_chosen() -> None:
    spans = [Span(0, 5), Span(5, 9), Span(9, 10)]
    assert choose(spans[::-1]) == spans


def test_of_two_attempts_the_way_that_reaches_farthest_is_chosen() -> None:
    assert choose([Span(0, 5), Span(0, 7), Span(5, 9)]) == [Span(0, 5), Span(5, 9)]
    assert choose([Span(0, 5), Span(0, 7), Span(7, 9), Span(5, 6)]) == [Span(0, 7), Span(7, 9)]


def test_behind_a_hole_it_goes_on() -> None:
    assert choose([Span(0, 5), Span(7, 9)]) == [Span(0, 5), Span(7, 9)]
    assert holes([Span(0, 5), Span(7, 9)], Span(0, 12)) == [Span(5, 7), Span(9, 12)]


def test_a_hole_is_told_only_where_somebody_looks() -> None:
    spans = [Span(2, 5), Span(7, 9)]
    assert holes(spans, Span(3, 5)) == []
    assert holes(spans, Span(0, 6)) == [Span(0, 2), Span(5, 6)]
    assert holes(spans, Span(7, 8)) == []
    assert holes([], Span(0, 3)) == [Span(0, 3)]
    assert holes([], Span(3, 3)) == []


@given(st.lists(SPANS, max_size=8))
def test_no_number_is_chosen_twice(spans: list[Span]) -> None:
    chosen = numbers(choose(spans))
    assert len(chosen) == len(set(chosen))
    assert chosen == sorted(chosen)


@given(st.lists(SPANS, min_size=1, max_size=8))
def test_holes_are_what_nothing_covers(spans: list[Span]) -> None:
    missing = set(range(1, 21)) - set(numbers(spans))
    assert numbers(holes(spans, Span(0, 20))) == sorted(missing)
