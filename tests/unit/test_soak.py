"""Slopes and verdicts of a soak."""

from __future__ import annotations

import math
from random import Random

import pytest

from tests.soak.samples import delivery_p99, read_buckets
from tests.soak.slopes import quantile_of, slope_of
from tests.soak.verdict import GROWS, LEFT, STEADY, TOO_SHORT, Series, judge, missing_load

METRICS = """\
# TYPE routerd_eventd_outbox_delivery_lag_seconds histogram
routerd_eventd_outbox_delivery_lag_seconds_bucket{group="edge",le="0.1",peer="b"} 90.0
routerd_eventd_outbox_delivery_lag_seconds_bucket{group="edge",le="1.0",peer="b"} 100.0
routerd_eventd_outbox_delivery_lag_seconds_bucket{group="edge",le="+Inf",peer="b"} 100.0
routerd_eventd_outbox_delivery_lag_seconds_bucket{group="edge",le="0.1",peer="c"} 10.0
routerd_eventd_outbox_delivery_lag_seconds_bucket{group="edge",le="1.0",peer="c"} 10.0
routerd_eventd_outbox_delivery_lag_seconds_bucket{group="edge",le="+Inf",peer="c"} 10.0
"""


def noisy(slope: float, *, count: int = 400, level: float = 100.0) -> list[tuple[float, float]]:
    chance = Random(1)
    return [(10.0 * at, level + slope * 10.0 * at + chance.gauss(0, 1)) for at in range(count)]


def test_a_slope_is_found_in_noise_and_outliers_hardly_move_it() -> None:
    samples = noisy(0.01)
    samples[5] = (50.0, 1e6)
    slope = slope_of(samples)
    assert slope.low < 0.01 < slope.high
    assert slope.value == pytest.approx(0.01, rel=0.2)


def test_without_a_slope_its_interval_has_0() -> None:
    slope = slope_of(noisy(0.0))
    assert slope.low < 0 < slope.high


def test_many_samples_are_thinned_out() -> None:
    assert slope_of([(float(at), 3.0 * at) for at in range(100_000)]).value == 3.0


@pytest.mark.parametrize(
    ("slope", "after", "verdict"),
    [(0.0, 101.0, STEADY), (0.01, 101.0, GROWS), (0.0, 140.0, LEFT), (-0.01, 90.0, STEADY)],
)
def test_a_verdict(slope: float, after: float, verdict: str) -> None:
    row = judge(Series("a", "memory (MiB)", noisy(slope), after))
    assert row is not None
    assert row["verdict"] == verdict


@pytest.mark.parametrize(("after", "verdict"), [(150.0, STEADY), (200.0, LEFT)])
def test_memory_that_fills_caches_in_the_first_half_comes_back_to_it(after: float, verdict: str) -> None:
    samples = [(at, value - max(0.0, 50.0 - at / 20.0)) for at, value in noisy(0.0, level=150.0)]
    row = judge(Series("a", "memory (MiB)", samples, after))
    assert row is not None
    assert row["verdict"] == verdict


def test_a_short_soak_judges_nothing() -> None:
    row = judge(Series("a", "threads", noisy(0.01, count=60), 101.0))
    assert row is not None
    assert row["verdict"] == TOO_SHORT


def test_too_few_samples_are_not_judged() -> None:
    assert judge(Series("a", "threads", [(0.0, 1.0), (1.0, 1.0)], None)) is None


def test_a_quantile_lies_within_its_bucket() -> None:
    assert quantile_of([0.1, 1.0, math.inf], [90.0, 100.0, 100.0], 0.95) == pytest.approx(0.55)
    assert quantile_of([0.1, 1.0, math.inf], [0.0, 0.0, 100.0], 0.95) == 1.0


def test_latencies_are_those_since_the_sample_before_and_over_all_links() -> None:
    now = read_buckets(METRICS)
    assert now == {0.1: 100.0, 1.0: 110.0, math.inf: 110.0}
    assert delivery_p99(now, now) is None
    assert delivery_p99({0.1: 100.0, 1.0: 100.0, math.inf: 100.0}, now) == pytest.approx(0.991)
    assert delivery_p99(
        {0.1: 500.0, 1.0: 500.0, math.inf: 500.0}, {0.1: 1.0, 1.0: 1.0, math.inf: 1.0}
    ) == pytest.approx(0.099)


@pytest.mark.parametrize(
    ("acknowledged", "words"),
    [
        (4800, ""),
        (4799, "4799 events acknowledged, less than 80% of 6000"),
    ],
)
def test_a_soak_with_less_load_than_planned_fails(acknowledged: int, words: str) -> None:
    assert missing_load(acknowledged, 60.0, 100.0) == words
