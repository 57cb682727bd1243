"""Remembers the trace contexts of the sampled events that came last, until they are sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from eventd.tracing.contexts import MOST_HINTS, TraceContext

MOST_RANGES: Final = 1024
"""How many ranges of positions are remembered, mostly one for a request. Older events have no link to the span that
recorded them, so only the picture of their trace is less complete."""


class _SampledRange(NamedTuple):
    first: int
    last: int
    context: TraceContext


class SampledEvents:
    """The contexts of sampled events by their position in the log of this node. Not stored: a restart forgets them."""

    def __init__(self) -> None:
        self._ranges: deque[_SampledRange] = deque(maxlen=MOST_RANGES)

    def remember(self, positions: Sequence[int], context: TraceContext) -> None:
        """Remember the context of these events.

        If their positions are not consecutive, only of the first `MOST_HINTS`.
        """
        if not positions:
            return
        first, last = positions[0], positions[-1]
        if last - first == len(positions) - 1:
            self._ranges.append(_SampledRange(first, last, context))
        else:
            self._ranges += [_SampledRange(position, position, context) for position in positions[:MOST_HINTS]]

    def between(self, after: int, upto: int) -> list[tuple[int, TraceContext]]:
        """Return the contexts of positions in `(after, upto]`, in order, at most `MOST_HINTS`: of the last ones."""
        found: list[tuple[int, TraceContext]] = []
        for one in reversed(self._ranges):
            if one.last > after and one.first <= upto:
                positions = range(min(one.last, upto), max(one.first, after + 1) - 1, -1)
                found += [(position, one.context) for position in positions[: MOST_HINTS - len(found)]]
                if len(found) == MOST_HINTS:
                    break
        return sorted(found)

    def clear(self) -> None:
        """Forget all events."""
        self._ranges.clear()
