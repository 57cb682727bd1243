"""Which queries of marks count: those signed since the group began to be served, whatever the wall clock did since."""

from __future__ import annotations

import pytest

from eventd.ingress.mark_queries import LinkForgotten, MarkQueries
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from federation.ranges import Range
from federation.wire import BatchHeader

HOUR = 3600
BATCH = "01a0c450-7341-7537-abfb-62cadb9f3f92"


def continued() -> BatchHeader:
    """Return the header of a batch that continues a link at position 1."""
    covered = Range(epoch="0123456789abcdef", incarnation=1, after=1, upto=2)
    return BatchHeader(from_node="a", to_node="b", group="g", batch_id=BATCH, range=covered)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def seconds(clock: ManualClock) -> int:
    return clock.now() // SECOND


def test_a_query_from_before_the_start_does_not_count(clock: ManualClock) -> None:
    queries = MarkQueries(clock)
    queries.remember("a", seconds(clock) - 1, ["a"])
    with pytest.raises(LinkForgotten):
        queries.require(continued(), None)
    queries.remember("a", seconds(clock), ["a"])
    queries.require(continued(), None)


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_clock_that_is_set_after_the_start_decides_nothing(clock: ManualClock, step: int) -> None:
    queries = MarkQueries(clock)
    clock.advance(60)
    clock.set_wall(clock.now() + step * SECOND)
    queries.remember("a", seconds(clock) - 61, ["a"])
    with pytest.raises(LinkForgotten):
        queries.require(continued(), None)
    queries.remember("a", seconds(clock), ["a"])
    queries.require(continued(), None)
