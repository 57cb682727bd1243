"""A stop in steps: it closes what was opened, in the reverse order, and says what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

WorkCounts = Callable[[], Mapping[str, int]]
"""Returns the amounts of work under way, by kind."""


class StopState(NamedTuple):
    """What a stop waits for: the part that is being closed, and the amounts of open connections and of work, by kind.

    Kinds with a count of 0 are left out.
    """

    closing: str
    connections: Mapping[str, int] = {}
    work: Mapping[str, int] = {}


class OpenParts:
    """The parts that were opened, to be closed."""

    def __init__(self) -> None:
        self._closing = ""
        self._parts: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = []
        self._counts: list[WorkCounts] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, name: str, close: Callable[[], Coroutine[Any, Any, None]], work: WorkCounts | None = None) -> None:
        """Add a part that was opened, and the function that closes it. `work` counts what a stop waits for in it."""
        self._parts.append((name, close))
        if work is not None:
            self._counts.append(work)

    async def close_all(self) -> None:
        """Close all parts, the latest first. After an error or a cancellation, another call closes the rest."""
        while self._parts:
            self._closing, close = self._parts.pop()
            await close()

    def state(self, connections: Mapping[str, int]) -> StopState:
        """Return what the stop waits for, with these open connections."""
        work = {kind: count for counts in self._counts for kind, count in counts().items()}
        return StopState(self._closing, _without_zeros(connections), _without_zeros(work))


def _without_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    return {kind: count for kind, count in counts.items() if count}
