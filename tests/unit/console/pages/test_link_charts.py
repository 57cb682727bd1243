"""Counts of requests from rates."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.console.pages.link_charts import Acceptance, _acceptance


def shown(requests: list[float | None], failed: list[float | None]) -> dict[str, Any]:
    series = {"callback": "billing", "requestsPerSecond": requests, "failedPerSecond": failed}
    return {"intervalSeconds": 5, "series": [series]}


@pytest.mark.parametrize(
    ("requests", "failed", "counted"),
    [
        ([0.2, 0.4, 0.0], [0.0, 0.2, 0.0], Acceptance(3, 2)),
        ([0.0, None, 0.1], [0.0, None, 0.0], Acceptance(1, 1)),
        ([None, None, 1 / 15], [None, None, 1 / 15], Acceptance(1, 0)),
        ([0.2, None], [0.0, None], Acceptance(1, 1)),
    ],
    ids=["each tick", "a tick without a sample", "two ticks without one", "the newest tick without one"],
)
def test_a_sample_after_ticks_without_one_counts_for_these_as_well(
    requests: list[float | None], failed: list[float | None], counted: Acceptance
) -> None:
    assert _acceptance(shown(requests, failed)) == {"billing": counted}


def test_a_callback_without_requests_has_no_share() -> None:
    assert _acceptance(shown([0.0, None], [0.0, None])) == {}
