"""The first sentence of a report says how many deliveries are known by the sender's claim alone."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.audit.assembly.report_details import headline
from eventd.audit.report.report import Totals


@pytest.mark.parametrize(
    ("figures", "first"),
    [
        ({}, "12 of 12 delivered."),
        ({"claimed": 5}, "12 of 12 delivered, 5 of them by the sender's claim alone."),
        ({"claimed": 12}, "12 of 12 delivered, all of them by the sender's claim alone."),
        ({"claimed": 5, "unproven": 3}, "12 of 15 delivered, 5 of them by the sender's claim alone."),
    ],
)
def test_the_first_sentence_says_how_many_deliveries_are_claims(figures: dict[str, Any], first: str) -> None:
    totals = Totals(**{"expected": 12, "delivered": 12, "completeness": 100.0} | figures)
    assert headline(totals, [], sure=True)[0] == first


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (1, ("1 is pending: not due yet.", "1 was not due: ")),
        (2, ("2 are pending: not due yet.", "2 were not due: ")),
    ],
)
def test_one_delivery_is_named_in_the_singular(n: int, words: tuple[str, str]) -> None:
    told = headline(Totals(expected=2 * n, pending=n, expired=n, completeness=100.0), [], sure=True)
    assert all(any(sentence.startswith(part) for sentence in told) for part in words)
