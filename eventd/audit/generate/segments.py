"""A segment before it is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from eventd.audit.generate.mixing import Ints
from eventd.audit.generate.world import World
from eventd.lake.schema import Book


class Part(NamedTuple):
    """Rows with numbers in (after, upto] of a book, of the epoch `turn`. `at`: of the first, by the node's clock."""

    book: Book
    turn: int
    after: int
    upto: int
    at: int
    tables: Iterable[Any]


def turns_of(world: World, node: int, at: Ints) -> Ints:
    """Which of the node's epochs each true time falls into: 0 or 1."""
    turn = world.turns.get(node)
    return np.zeros_like(at) if turn is None else (at >= turn).astype(np.int64)
