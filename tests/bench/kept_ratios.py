"""Compares ratios of figures to a yardstick of the same run with stored ones. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

WORSE = 0.20
"""The change from which a line of its own reports it: smaller changes vary with the load of the machine."""


class Measure(NamedTuple):
    """A measured figure: a rate (more is better) or a time (less is better)."""

    name: str
    unit: str
    yardstick: str
    is_rate: bool = False
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One measure over all rounds: medians. The ratio is the median of the rounds' own ratios."""

    measure: Measure
    figure: float
    bare: float
    ratio: float

    @classmethod
    def of(cls, measure: Measure, figures: Sequence[float], bares: Sequence[float]) -> Row:
        ratios = [figure / bare for figure, bare in zip(figures, bares, strict=True)]
        return cls(measure, statistics.median(figures), statistics.median(bares), statistics.median(ratios))

    def change(self, kept: float | None) -> float | None:
        """Return how much longer it takes than when the ratio was stored: 0.1 is 10 % more time. None: no
        stored ratio."""
        if not kept:
            return None
        return kept / self.ratio - 1 if self.measure.is_rate else self.ratio / kept - 1


def table(rows: Sequence[Row], kept: Mapping[str, float]) -> Iterator[str]:
    """Yield the table of figures, line by line."""
    cells = [("FIGURE", "", "", "BARE", "", "RATIO", "KEPT", "CHANGE")]
    for row in rows:
        name, unit, yardstick, _, digits = row.measure
        before = kept.get(name)
        figures = (f"{row.figure:,.{digits}f}", unit, f"{row.bare:,.{digits}f}", yardstick)
        ratios = (f"{row.ratio:.3f}", "-" if before is None else f"{before:.3f}", words_of(row.change(before)))
        cells.append((name, *figures, *ratios))
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    for row in cells:
        aligned = (cell.rjust if at in (1, 3, 5, 6) else cell.ljust for at, cell in enumerate(row))
        yield "  ".join(align(width) for align, width in zip(aligned, widths, strict=True)).rstrip()


def words_of(change: float | None) -> str:
    """Return a change as text."""
    if change is None:
        return "-"
    percent = round(change * 100)
    return f"{percent}% worse" if percent > 0 else f"{-percent}% better" if percent else "same"


def worse(rows: Sequence[Row], kept: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for each measure that became worse by more than `WORSE`."""
    for row in rows:
        change = row.change(kept.get(row.measure.name))
        if change is not None and change > WORSE:
            before = kept[row.measure.name]
            yield (
                f"worse: {row.measure.name} takes {change:.0%} more time than when it was kept, beside"
                f" {row.measure.yardstick}: ratio {row.ratio:.3f}, kept {before:.3f}"
            )


def to_keep(rows: Sequence[Row], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored: the ratios, and for readers of the file the figures that they are computed from."""
    figures = {row.measure.name: [round(row.figure, 6), round(row.bare, 6)] for row in rows}
    return {**machine, "ratios": {row.measure.name: round(row.ratio, 4) for row in rows}, "figures": figures}
