"""Counts of requests from rates."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.console.pages.link_charts import Acceptance, _acceptance


def shown(requests: list[float | None], failed: list[float | None]) -> dict[str, Any]:
    series = {"callback": "billing", "requests": requests, "failed": failed}
    return {"intervalSeconds": 5, "series": [series]}


@pytest.mark.parametrize(
    ("requests", "failed", "counted"),
    [
        ([1.0, 2.0, 0.0], [0.0, 1.0, 0.0], Acceptance(3, 2)),
        ([0.0, None, 3.0], [0.0, None, 0.0], Acceptance(3, 3)),
        ([*[None] * 150, 3.0], [*[None] * 150, 3.0], Acceptance(3, 0)),
    ],
    ids=["each tick", "a tick without a sample", "a callback that is new"],
)
def test_the_requests_are_those_that_the_samples_counted(
    requests: list[float | None], failed: list[float | None], counted: Acceptance
) -> None:
    assert _acceptance(shown(requests, failed)) == {"billing": counted}


def test_a_callback_without_requests_has_no_share() -> None:
    assert _acceptance(shown([0.0, None], [0.0, None])) == {}


def test_rates_without_counts_have_no_share() -> None:
    assert _acceptance({"intervalSeconds": 5, "series": [{"callback": "billing", "requestsPerSecond": [0.2]}]}) == {}
