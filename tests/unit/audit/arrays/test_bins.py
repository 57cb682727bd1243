"""Durations are counted in bins, and percentiles are read from the counts."""

from __future__ import annotations

import numpy as np
import pytest

from eventd.audit.arrays.bins import BINS, bins_of, edges_of, latency, quantile


@pytest.mark.parametrize("duration", [0, 1, 7, 8, 1000, 10**6, 86_400 * 10**6])
def test_a_duration_lies_in_its_bin_and_a_bin_is_at_most_an_eighth_wide(duration: int) -> None:
    low, high = (float(edge[0]) for edge in edges_of(bins_of(np.array([duration]))))
    assert low <= duration < high
    assert high - low <= max(1.0, low / 8)


def test_a_negative_duration_lies_in_the_first_bin_and_an_endless_one_in_the_last() -> None:
    assert bins_of(np.array([-5, 2**62])).tolist() == [0, BINS - 1]


def test_a_percentile_is_off_by_less_than_an_eighth_and_the_longest_time_is_exact() -> None:
    durations = np.arange(1, 1001) * 1000
    counts = dict(zip(*np.unique(bins_of(durations), return_counts=True), strict=True))
    found = latency({int(at): int(n) for at, n in counts.items()}, int(durations.max()))
    assert found.count == 1000
    assert found.p50 == pytest.approx(0.5, rel=0.125)
    assert found.p99 == pytest.approx(0.99, rel=0.125)
    assert found.max == 1.0


def test_a_quantile_of_whole_numbers_is_one_of_them() -> None:
    assert quantile({1: 90, 3: 10}, 0.5) == 1
    assert quantile({1: 90, 3: 10}, 0.95) == 3
