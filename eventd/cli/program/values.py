"""Converts words of the command line to values, with an explanation if one is invalid.

The library would use pydantic, which takes as long to load as everything else that a command for a server needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Literal, Self, get_args, get_origin

from typer.models import OptionInfo

from eventd.text.quoting import quoted

DIGITS: Final = 18
"""Maximum number of digits of a whole number on the command line."""
EMPTY_SETTINGS: Final = ("--lake",)
"""Flags of settings whose empty value is documented: it disables what a variable or the file sets."""


class MayBeEmpty(OptionInfo):
    """An option for which an empty value is meaningful. All others refuse one on the command line."""

    def __init__(self, flag: str, **about: Any) -> None:
        super().__init__(default=..., param_decls=(flag,), **about)


class Duration(int):
    """Microseconds, written and shown as `30s`, `5m` or `7d`."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse a duration. Raises `Invalid`."""
        from eventd.text.duration import parse_duration

        return cls(parse_duration(text))

    def __str__(self) -> str:
        from eventd.text.duration import brief_duration

        return brief_duration(int(self))


class Size(int):
    """Bytes, written and shown as `350`, `512KiB` or `8MiB`."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse a size. Raises `Invalid`."""
        from eventd.text.size import parse_size

        return cls(parse_size(text))

    def __str__(self) -> str:
        from eventd.text.size import format_size

        return format_size(int(self))


def read_word(word: str, kind: Any, least: float | None = None, most: float | None = None) -> Any:
    """Return the value of a word as type `kind`; a number must be from `least` to `most`, both included.

    Raises `ValueError` or `Invalid` with the problem.
    """
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        return _read_choice(word, kind)
    if isinstance(kind, type) and issubclass(kind, int | float):
        return _read_number(word, kind, least, most)
    return kind(word)


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the allowed words of a parameter; empty if it is not a choice."""
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else ()


def _read_choice(word: str, kind: Any) -> Any:
    """Return the choice that matches a word.

    In a choice such as `jsonpath=TEMPLATE`, the part after `=` may be any text.
    """
    choices = choices_of(kind)
    found = next((choice for choice in choices if choice == word), None)
    if found is not None:
        return found
    if any(free and word.startswith(name + free) for name, free, _ in (choice.partition("=") for choice in choices)):
        return word
    raise ValueError(f"{quoted(word)} is not one of {', '.join(map(str, choices))}")


def _read_number(word: str, kind: type, least: float | None, most: float | None) -> Any:
    read: Callable[[str], Any] = getattr(kind, "read", None) or (_whole if kind is int else _decimal)
    number = read(word)
    if least is not None and number < least:
        raise ValueError(f"must be at least {kind(least)}, not {quoted(word)}")
    if most is not None and number > most:
        raise ValueError(f"must be at most {kind(most)}, not {quoted(word)}")
    return number


def _whole(word: str) -> int:
    digits = word.strip().removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"must be a whole number, not {quoted(word)}")
    if len(digits) > DIGITS:
        raise ValueError(f"must have at most {DIGITS} digits, not {quoted(word)}")
    return int(word)


def _decimal(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"must be a number, not {quoted(word)}")
    return number
