"""The contexts of sampled events are bounded, and found by position."""

from __future__ import annotations

from eventd.tracing.contexts import MOST_HINTS, TraceContext
from eventd.tracing.sampled import MOST_RANGES, SampledEvents


def context(number: int) -> TraceContext:
    return TraceContext(f"{number:032x}", f"{number:016x}", sampled=True)


def test_events_are_found_by_their_positions() -> None:
    events = SampledEvents()
    assert events.between(0, 10**18) == []
    events.remember([2, 9], context(2))
    events.remember(range(12, 15), context(12))
    events.remember([], context(99))
    assert events.between(2, 13) == [(9, context(2)), (12, context(12)), (13, context(12))]
    assert events.between(0, 10**18) == [(2, context(2)), (9, context(2)), *((at, context(12)) for at in (12, 13, 14))]
    assert events.between(9, 11) == events.between(14, 20) == []
    events.clear()
    assert events.between(0, 100) == []


def test_the_newest_events_of_a_batch_have_links_and_the_oldest_are_forgotten() -> None:
    events = SampledEvents()
    events.remember(range(1, 10_001), context(1))
    found = events.between(0, 10**18)
    assert [at for at, _ in found] == [*range(10_001 - MOST_HINTS, 10_001)]
    for number in range(MOST_RANGES):
        events.remember([20_000 + number], context(number))
    assert events.between(0, 19_999) == []
    assert len(events.between(20_000, 30_000)) == MOST_HINTS


def test_a_request_with_many_known_events_does_not_displace_all_others() -> None:
    events = SampledEvents()
    events.remember([1], context(1))
    events.remember(range(10, 10_000, 2), context(2))
    assert events.between(0, 1) == [(1, context(1))]
