"""Limits the streams that one session, or one key with all its sessions, takes of those of a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from eventd.log.topics.errors import Throttled

LEAST: Final = 3
"""A session may always have as many streams: a browser opens no more at a time."""


class StreamHolder(NamedTuple):
    """What holds a stream: a `key` or a `session`, by a value that only this one has. `share`: its part of all."""

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
