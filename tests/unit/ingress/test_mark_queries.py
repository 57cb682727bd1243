"""Which queries of marks count, whatever the wall clock did since the start; and which batches follow them."""

from __future__ import annotations

import pytest

from eventd.ingress.mark_queries import LinkForgotten, MarkQueries
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from federation.ranges import Mark, Range
from federation.wire import BatchHeader

HOUR = 3600
BATCH = "01a0c450-7341-7537-abfb-62cadb9f3f92"


def continued(after: int = 1, epoch: str = "0123456789abcdef") -> BatchHeader:
    """Return the header of a batch that continues a link at a position."""
    covered = Range(epoch=epoch, incarnation=1, after=after, upto=after + 1)
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
        queries.require(continued(), seconds(clock), None)
    queries.remember("a", seconds(clock), ["a"])
    queries.require(continued(), seconds(clock), None)


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_clock_that_is_set_after_the_start_decides_nothing(clock: ManualClock, step: int) -> None:
    queries = MarkQueries(clock)
    clock.advance(60)
    clock.set_wall(clock.now() + step * SECOND)
    queries.remember("a", seconds(clock) - 61, ["a"])
    with pytest.raises(LinkForgotten):
        queries.require(continued(), seconds(clock), None)
    queries.remember("a", seconds(clock), ["a"])
    queries.require(continued(), seconds(clock), None)


def test_a_batch_from_before_the_query_does_not_continue_an_unknown_link(clock: ManualClock) -> None:
    """It may be captured, and a receiver restored from a copy has lost the nonces that would refuse it."""
    queries = MarkQueries(clock)
    queries.remember("a", seconds(clock) + 5, ["a"])
    queries.require(continued(), seconds(clock) + 5, None)
    with pytest.raises(LinkForgotten):
        queries.require(continued(), seconds(clock) + 4, None)


def test_a_late_batch_of_an_earlier_epoch_does_not_replace_the_mark_of_the_present_one(clock: ManualClock) -> None:
    mark = Mark(epoch="new", incarnation=1, base=0, upto=1)
    queries = MarkQueries(clock)
    queries.remember("a", seconds(clock) + 5, ["a"])
    queries.require(continued(1, "new"), seconds(clock), mark)
    with pytest.raises(LinkForgotten):
        queries.require(continued(0, "old"), seconds(clock) + 4, mark)


def test_a_link_begins_at_0_without_a_query(clock: ManualClock) -> None:
    MarkQueries(clock).require(continued(0), 0, None)


def test_the_latest_query_counts_although_the_clock_of_its_sender_was_set_back(clock: ManualClock) -> None:
    queries = MarkQueries(clock)
    queries.remember("a", seconds(clock) + 500, ["a"])
    queries.remember("a", seconds(clock) + 5, ["a"])
    queries.require(continued(), seconds(clock) + 5, None)
