"""Selects segments that together hold each row of a ledger once, and finds the gaps between them.

A node that is killed may leave a segment whose rows it ships again in a segment with another range: then segments
overlap, and two chains of segments lead from one number to a later one. The chain that reaches farthest is chosen; the
segments outside of it hold no row that the chain lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar


class NumberRange(Protocol):
    """An object that covers the row numbers in (after, upto]."""

    @property
    def after(self) -> int: ...

    @property
    def upto(self) -> int: ...


RangedT = TypeVar("RangedT", bound=NumberRange)


class Span(NamedTuple):
    """The row numbers in (after, upto]."""

    after: int
    upto: int


def choose(ranges: Sequence[RangedT]) -> list[RangedT]:
    """Return a selection of the ranges without overlaps, in order.

    It begins with the chain from the lowest `after` that reaches farthest, and continues in the same way with the
    ranges that begin at or after the end of that chain.
    """
    chosen: list[RangedT] = []
    reach: int | None = None
    rest = sorted(ranges, key=lambda one: (one.after, one.upto))
    while rest:
        if reach is not None:
            rest = [one for one in rest if one.after >= reach]
            if not rest:
                break
        way = _farthest_way(rest)
        chosen += way
        reach = way[-1].upto
    return chosen


def _farthest_way(ranges: Sequence[RangedT]) -> list[RangedT]:
    """Return the chain that begins with the first of these sorted ranges and reaches farthest.

    In a chain, each range begins where the one before it ends.
    """
    came: dict[int, RangedT | None] = {ranges[0].after: None}
    for one in ranges:
        if one.after in came and one.upto not in came:
            came[one.upto] = one
    way: list[RangedT] = []
    at = came[max(came)]
    while at is not None:
        way.append(at)
        at = came[at.after]
    return way[::-1]


def holes(ranges: Sequence[RangedT], span: Span) -> list[Span]:
    """Return the parts of the span that no range covers, in order."""
    found, reach = [], span.after
    for one in sorted(ranges, key=lambda one: one.after):
        if one.after > reach and reach < span.upto:
            found.append(Span(reach, min(one.after, span.upto)))
        reach = max(reach, one.upto)
    if reach < span.upto:
        found.append(Span(reach, span.upto))
    return found
