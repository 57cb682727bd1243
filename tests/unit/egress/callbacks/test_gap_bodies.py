"""The message that reports losses, in each format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventd.egress.callbacks.formats import BATCH, RECORDS, STANDARD, gap_body
from eventd.log.core.losses import CAP, TTL, Loss
from eventd.testing import NOW


def body(losses: list[Loss], format: str = STANDARD) -> Any:
    return json.loads(gap_body(losses, format, "orders", "epoch", callback="hook", id="gap_1", now=NOW))


@pytest.mark.parametrize(
    ("losses", "about"),
    [
        ([Loss(3, 5, CAP)], {"from": 3, "to": 5, "count": 3, "reason": "cap"}),
        ([Loss(3, 5, CAP), Loss(9, 9, CAP)], {"from": 3, "to": 9, "count": 4, "reason": "cap"}),
        ([Loss(3, 5, CAP), Loss(6, 9, TTL)], {"from": 3, "to": 9, "count": 7, "reason": "mixed"}),
    ],
    ids=["one range", "two ranges", "two reasons"],
)
def test_all_losses_are_one_range_with_their_number_and_reason(losses: list[Loss], about: dict[str, Any]) -> None:
    assert body(losses)["data"] == {"callback": "hook", **about}


def test_each_format_has_its_form() -> None:
    losses = [Loss(3, 3, CAP)]
    one = body(losses)
    assert (one["type"], one["id"], one["timestamp"]) == ("routerd.callback.gap", "gap_1", "2026-11-20T12:00:00Z")
    assert body(losses, BATCH) == [one]
    assert body(losses, RECORDS) == {"topic": "orders", "epoch": "epoch", "records": [], "gap": one["data"]}
