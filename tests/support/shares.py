"""The order of tests for pytest-xdist: each process gets a part of the list, and idle ones take from others' ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_shares(slow: Sequence[T], others: Sequence[T], processes: int, *, file: Callable[[T], Hashable]) -> list[T]:
    """Return all tests in the order of the processes' parts, slow tests first in each.

    So none waits at the end for another's long test. The slow tests of a file stay together: their process starts what
    they share, such as a node, once.
    """
    parts: list[list[T]] = [[] for _ in range(processes)]
    for _, of_file in itertools.groupby(slow, key=file):
        min(parts, key=len).extend(of_file)
    rest, left = iter(others), len(slow) + len(others)
    for number, part in enumerate(parts):
        size = left // (processes - number)  # as xdist divides them
        part += itertools.islice(rest, max(0, size - len(part)))
        left -= len(part)
    return [*itertools.chain(*parts), *rest]
