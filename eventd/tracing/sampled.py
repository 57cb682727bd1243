"""Remembers the trace contexts of the sampled events that came last, until they are sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventd.tracing.contexts import MOST_HINTS, TraceContext

MOST_EVENTS: Final = 4096
"""How many events are remembered. Older ones have no link to the span that recorded them: only a picture is poorer."""


class SampledEvents:
    """The contexts of sampled events by their position in the log of this node. Not stored: a restart forgets them."""

    def __init__(self) -> None:
        self._contexts: dict[int, TraceContext] = {}

    def remember(self, positions: Iterable[int], context: TraceContext) -> None:
        """Remember the context of these events, of the first `MOST_HINTS` at most."""
        for position, _ in zip(positions, range(MOST_HINTS), strict=False):
            self._contexts.pop(position, None)
            self._contexts[position] = context
        while len(self._contexts) > MOST_EVENTS:
            del self._contexts[next(iter(self._contexts))]

    def between(self, after: int, upto: int) -> list[tuple[int, TraceContext]]:
        """Return the contexts of positions in `(after, upto]`, in order, at most `MOST_HINTS`."""
        if not self._contexts:
            return []
        if upto - after < len(self._contexts):
            found = [(at, self._contexts[at]) for at in range(after + 1, upto + 1) if at in self._contexts]
        else:
            found = sorted((at, context) for at, context in self._contexts.items() if after < at <= upto)
        return found[:MOST_HINTS]

    def clear(self) -> None:
        """Forget all events."""
        self._contexts.clear()
