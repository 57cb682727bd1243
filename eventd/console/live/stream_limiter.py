"""Limits how many of the streams of a process one session, or one key with all its sessions, may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from eventd.log.topics.errors import Throttled

LEAST: Final = 3
"""Number of streams that a session may always have: a browser opens no more at a time."""


class StreamHolder(NamedTuple):
    """The holder of a stream: a key or a session (`kind`), with its unique value.

    `share`: the part of all streams that it may hold.
    """

    kind: str
    value: Hashable
    share: float


class StreamLimiter:
    """Counts the streams of a process by their holders. `most`: the maximum number of all, which the hub limits."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[StreamHolder] = Counter()

    @contextmanager
    def take(self, holders: tuple[StreamHolder, ...]) -> Iterator[None]:
        """Count a stream while the block runs. Raises `Throttled`."""
        for holder in holders:
            most = max(LEAST, int(self._most * holder.share))
            if self._taken[holder] >= most:
                raise Throttled(f"{most} pages of this {holder.kind} are kept up to date already: this one is not")
        self._taken.update(holders)
        try:
            yield
        finally:
            self._taken.subtract(holders)
            for holder in holders:
                if not self._taken[holder]:
                    del self._taken[holder]
