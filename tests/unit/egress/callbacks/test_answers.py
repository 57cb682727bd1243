"""What each HTTP status means for a callback's message."""

from __future__ import annotations

from eventd.egress.callbacks.endpoint import Meaning, meaning_of

EXPECTED = {
    **dict.fromkeys(range(100, 600), Meaning.BLOCKED),
    **dict.fromkeys(range(200, 300), Meaning.DELIVERED),
    **dict.fromkeys([408, 425, 429, *range(501, 600)], Meaning.UNAVAILABLE),
    **dict.fromkeys([400, 413, 422, 500], Meaning.REFUSED),
    410: Meaning.GONE,
}


def test_every_status_has_its_meaning() -> None:
    assert {status: meaning_of(status) for status in range(100, 600)} == EXPECTED
