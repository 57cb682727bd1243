"""The time to wait from an answer's `Retry-After`."""

from __future__ import annotations

import pytest

from eventd.egress.transport.retry_after import retry_after
from eventd.net.exchange import Answer

NOON = 1_795_176_000_000_000
"""2026-11-20T12:00:00Z, a Friday, in microseconds."""


def asked(text: str) -> float | None:
    return retry_after(Answer(503, {"retry-after": text}, b""), NOON)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("25", 25.0),
        (" 25 ", 25.0),
        ("9" * 400, 999_999_999.0),
        ("Fri, 20 Nov 2026 12:00:25 GMT", 25.0),
        ("Fri, 20 Nov 2026 12:00:25 -0000", 25.0),
        ("Fri, 20 Nov 2026 13:00:25 +0100", 25.0),
        ("Fri, 20 Nov 2026 11:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 251_607_124_799.0),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 251_607_211_139.0),
        ("Mon, 01 Jan 0001 00:00:00 +2359", 0.0),
    ],
)
def test_a_time_to_wait(text: str, seconds: float) -> None:
    assert asked(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-5",
        "1e9",
        "25 s",
        "Fri, 20 Nov 99999 12:00:25 GMT",
        f"Fri, 20 Nov {10**30} 12:00:25 GMT",
        f"Fri, {'9' * 5000} Nov 2026 12:00:25 GMT",
        "Fri, 20 Nov 2026 99:00:25 GMT",
        "Fri, 20 Nov 2026 12:00:25 +9999",
        f"Fri, 20 Nov 2026 12:00:25 +{'9' * 50}",
        "\x00" * 100,
        "Fri,,,,::::" * 1000,
    ],
)
def test_what_is_no_time_says_nothing(text: str) -> None:
    assert asked(text) is None
