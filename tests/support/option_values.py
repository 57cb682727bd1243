"""Values of the options of the tools of the tests."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Collection


def names_of(what: str, known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Return what reads a list of these names with commas; it raises `ArgumentTypeError` for another name."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(word.strip() for word in text.split(","))
        for name in names:
            if name not in known:
                raise ArgumentTypeError(f"'{name}' is not a {what}; write some of: {', '.join(known)}")
        return names

    return read


def read_count(text: str) -> int:
    """Return a number from 1 on. Raises `ArgumentTypeError`."""
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"'{text}' is not a number from 1 on")
    return int(text)
