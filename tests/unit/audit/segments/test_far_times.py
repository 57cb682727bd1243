"""The memory that a segment takes depends on its rows, and not on how far apart the times of its events are.

The node that emits an event reports its time: any of the years 1 to 9999.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from eventd.audit.segments.delivery_cells import sum_deliveries
from eventd.audit.segments.event_cells import sum_events
from eventd.audit.segments.hourly_skew import HourlySkew
from eventd.audit.segments.row_marks import PairKey, candidates
from eventd.lake.layout import MINUTE
from eventd.lake.schema import Ledger
from federation.event import FIRST_TIME, LAST_TIME
from tests.support.ledger_rows import TO_B, columns_of, delivery_row, event_row

MOST = 50_000_000
"""Bytes that a few rows may take: much less than one for each minute, or ten for each hour, of the years 1 to 9999."""
TIMES = (FIRST_TIME, 0, LAST_TIME)


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Let the test fail if it ever takes more than `MOST` bytes."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST


def test_uneven_slots_are_found_among_events_of_any_times() -> None:
    rows = columns_of(Ledger.EVENTS, [event_row(n, event_at=at) for n, at in enumerate((*TIMES, MINUTE))])
    uneven = {PairKey("g", "a", "b"): np.array([FIRST_TIME // MINUTE, 1, LAST_TIME // MINUTE])}
    assert candidates(rows, uneven).tolist() == [0, 2, 3]


def test_uneven_slots_are_those_of_the_same_pair() -> None:
    rows = columns_of(
        Ledger.DELIVERIES, [delivery_row(n, event_at=at, peer=peer) for n, at in enumerate(TIMES) for peer in "bc"]
    )
    uneven = {
        PairKey("g", "a", "b"): np.array([LAST_TIME // MINUTE]),
        PairKey("g", "a", "c"): np.array([0]),
        PairKey("g", "x", "c"): np.array([FIRST_TIME // MINUTE]),
        PairKey("g", "a", "a"): np.array([], np.int64),
    }
    assert candidates(rows, uneven).tolist() == [3, 4]
    assert candidates(rows, {}).tolist() == []


def test_events_of_any_times_have_cells() -> None:
    rows = columns_of(Ledger.EVENTS, [event_row(n, event_at=at, recorded_at=0) for n, at in enumerate(TIMES, 1)])
    cells = sum_events("1", rows, [TO_B]).to_pylist()
    assert {row["time"] for row in cells} >= {at // MINUTE for at in TIMES}


def test_deliveries_of_any_times_have_cells_with_the_skew_of_the_nearest_hour() -> None:
    rows = [delivery_row(n, event_at=at, peer_recorded_at=at) for n, at in enumerate(TIMES)]
    cells = sum_deliveries("1", columns_of(Ledger.DELIVERIES, rows), {"b": HourlySkew((0,), (7,))}).to_pylist()
    assert {row["time"] for row in cells} >= {at // MINUTE for at in TIMES}
