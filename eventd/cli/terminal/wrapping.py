"""Wraps the long cells of a table, so that its rows fit into the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

NARROWEST = 24
"""Characters that a wrapped column has at least, also if the table is then wider than the terminal."""


def fit(widths: Sequence[int], wraps: Sequence[bool], room: int) -> list[int]:
    """Return the widths of the columns of a table that is to have at most `room` characters, without its gaps.

    Only columns that may be wrapped become narrower: the widest first.
    """
    fitted = list(widths)
    flexible = sorted((at for at, one in enumerate(wraps) if one), key=lambda at: widths[at])
    left = room - sum(width for at, width in enumerate(widths) if not wraps[at])
    for place, at in enumerate(flexible):
        share = left // (len(flexible) - place)
        fitted[at] = min(widths[at], max(share, NARROWEST))
        left -= fitted[at]
    return fitted


def wrap(cells: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Return the lines of a row of which no cell is wider than its column, unless a single word of it is."""
    parts = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)
        for cell, width in zip(cells, widths, strict=True)
    ]
    return [[part[at] if at < len(part) else "" for part in parts] for at in range(max(map(len, parts)))]
