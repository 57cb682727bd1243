"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from eventd.text.plural import counted


@pytest.mark.parametrize(
    ("number", "words", "shown"),
    [
        (0, ("event",), "0 events"),
        (1, ("event",), "1 event"),
        (2, ("event",), "2 events"),
        (1_234_567, ("byte",), "1,234,567 bytes"),
        (1, ("part has", "parts have"), "1 part has"),
        (3, ("part has", "parts have"), "3 parts have"),
    ],
)
def test_a_number_and_its_noun_agree(number: int, words: tuple[str, ...], shown: str) -> None:
    assert counted(number, *words) == shown
