"""The contexts of sampled events are bounded, and found by position."""

from __future__ import annotations

from eventd.tracing.contexts import MOST_HINTS, TraceContext
from eventd.tracing.sampled import MOST_EVENTS, SampledEvents


def context(number: int) -> TraceContext:
    return TraceContext(f"{number:032x}", f"{number:016x}", sampled=True)


def test_events_are_found_by_their_positions() -> None:
    events = SampledEvents()
    assert events.between(0, 10**18) == []
    events.remember([5], context(5))
    events.remember([2, 9], context(2))
    assert events.between(2, 9) == [(5, context(5)), (9, context(2))]
    assert events.between(0, 10**18) == [(2, context(2)), (5, context(5)), (9, context(2))]
    assert events.between(5, 6) == []
    events.clear()
    assert events.between(0, 100) == []


def test_the_oldest_are_forgotten_and_one_request_does_not_displace_all() -> None:
    events = SampledEvents()
    events.remember(range(1, MOST_EVENTS), context(1))
    assert len(events.between(0, 10**18)) == MOST_HINTS
    assert events.between(MOST_HINTS, MOST_EVENTS) == []
    for position in range(10_000, 10_000 + MOST_EVENTS):
        events.remember([position], context(position))
    assert events.between(0, 9_999) == []
    assert len(events.between(10_000, 10_000 + MOST_EVENTS)) == MOST_HINTS
