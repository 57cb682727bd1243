"""Arguments of a command line, parsed as the type of their parameter."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest

from eventd.cli.program.values import Duration, Size, read_word
from eventd.errors import Invalid
from eventd.text.duration import DAY, SECOND


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


@pytest.mark.parametrize(
    ("kind", "word", "value"),
    [
        (str, "", ""),
        (str, " x\udce9", " x\udce9"),
        (int, "0", 0),
        (int, "007", 7),
        (int, "+5", 5),
        (int, "-5", -5),
        (int, " 5", 5),
        (float, "1.5", 1.5),
        (Path, "/nowhere/at/all", Path("/nowhere/at/all")),
        (Path, "~", Path("~")),
        (Literal["table", "wide"], "wide", "wide"),
        (Colour, "red", Colour.RED),
        (Duration, "1d12h", DAY * 3 // 2),
        (Size, "8KiB", 8192),
    ],
)
def test_a_word_is_read(kind: Any, word: str, value: Any) -> None:
    found = read_word(word, kind)
    assert found == value
    assert isinstance(found, type(value))


@pytest.mark.parametrize(
    ("kind", "word", "reason"),
    [
        (int, "x", "must be a whole number, not 'x'"),
        (int, "٥", "must be a whole number, not '٥'"),
        (int, "9" * 5000, "must have at most 18 digits, not "),
        (int, "0", "must be at least 1, not '0'"),
        (int, "101", "must be at most 100, not '101'"),
        (float, "nan", "must be a number, not 'nan'"),
        (float, "x", "must be a number, not 'x'"),
        (Literal["table", "wide"], "WIDE", "'WIDE' is not one of table, wide"),
        (Colour, "RED", "'RED' is not one of red, green"),
        (Duration, "soon", "'soon' is not a duration; write 30s, 5m or 168h"),
        (Size, "much", "'much' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB"),
        (Size, "1KiB", "must be at most 100, not '1KiB'"),
    ],
)
def test_what_it_cannot_be_is_refused_with_the_reason(kind: Any, word: str, reason: str) -> None:
    with pytest.raises((ValueError, Invalid)) as refused:
        read_word(word, kind, 1, 100)
    assert str(refused.value).startswith(reason)


def test_bounds_and_defaults_are_shown_as_they_are_written() -> None:
    assert (str(Duration.read("15m")), str(Size(350)), str(Size.read("8192KiB"))) == ("15m", "350", "8MiB")
    with pytest.raises(ValueError, match="must be at least 1s, not '5ms'"):
        read_word("5ms", Duration, SECOND)
