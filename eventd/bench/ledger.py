"""Compares what was sent with what is read back: each number once, in the order of its connection. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

SHOWN = 3


class Ledger:
    """The numbers from 0 that were sent in batches, each on one of several connections.

    Batches of one connection are ordered; those of different ones may come in any order.
    """

    def __init__(self) -> None:
        self.count = 0
        self._begins: list[int] = []
        self._lines: list[int] = []

    def take(self, line: int, count: int) -> range:
        """Return the next `count` numbers, for a batch on the connection `line`; they count as sent from now on."""
        taken = range(self.count, self.count + count)
        self._begins.append(self.count)
        self._lines.append(line)
        self.count += count
        return taken

    def line_of(self, number: int) -> int:
        """Return the index of the connection on which a number was sent."""
        return self._lines[bisect_right(self._begins, number) - 1]

    def problems(self, found: Iterable[int | str]) -> list[str]:
        """Return a message for each way in which the numbers read back differ from those sent; empty if they do not.

        A text in `found` stands for an event that was not sent.
        """
        seen = bytearray(self.count)
        unknown: list[int | str] = []
        doubled: list[int] = []
        displaced: list[int] = []
        last: dict[int, int] = {}
        for number in found:
            if isinstance(number, str) or not 0 <= number < self.count:
                unknown.append(number)
                continue
            if seen[number]:
                doubled.append(number)
                continue
            seen[number] = 1
            line = self.line_of(number)
            if number < last.get(line, -1):
                displaced.append(number)
            last[line] = number
        missing = [number for number, is_seen in enumerate(seen) if not is_seen]
        problems: dict[str, Sequence[int | str]] = {
            "missing": missing,
            "duplicated": doubled,
            "out of order": displaced,
            "never sent": unknown,
        }
        return [words for what, numbers in problems.items() for words in _describe(numbers, self.count, what)]


def differing(theirs: Sequence[object], ours: Sequence[object], names: tuple[str, str]) -> list[str]:
    """Return a list of one message, on the first difference of two readings with these names; empty if equal."""
    if theirs == ours:
        return []
    at = next((at for at, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), min(len(theirs), len(ours)))
    held, sent = ([*map(str, row[at : at + 1]), "the end"][0] for row in (theirs, ours))
    return [f"{names[0]} differs from {names[1]} from the {ordinal(at + 1)} event on: {held} instead of {sent}"]


def ordinal(number: int) -> str:
    """Return a number as `1st`, `22nd` or `1,113th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _describe(numbers: Sequence[int | str], of: int, what: str) -> Iterator[str]:
    if numbers:
        shown = ", ".join(str(number) for number in numbers[:SHOWN]) + (", …" if len(numbers) > SHOWN else "")
        yield f"{len(numbers):,} of {of:,} {'is' if len(numbers) == 1 else 'are'} {what}: number {shown}"
