"""Limits on the requests, streams and memory that one key, and all keys together, may hold at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from eventd.api.bodies.bodies import BodyMemory
from eventd.api.keys.api_key import ApiKey
from eventd.log.topics.errors import Throttled
from eventd.log.topics.topics import Ceilings


class Limits(NamedTuple):
    """The limits from the settings; 0: unlimited, except `max_body_bytes`, which is at least 1 KiB.

    `max_topics`, `max_routers` and `max_total_bytes` apply to the node, the others to each process.
    """

    max_topics: int = 100_000
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1_000
    max_inflight_per_key: int = 1_000
    max_total_bytes: int = 0
    max_body_bytes: int = 64 << 20

    @classmethod
    def of(cls, settings: object) -> Limits:
        """Return the limits of settings, which have a field of each name."""
        return cls(**{name: getattr(settings, name) for name in cls._fields})

    @property
    def ceilings(self) -> Ceilings:
        """Return the limits of all topics together: on their number and on their bytes."""
        return Ceilings(self.max_topics, self.max_total_bytes)


class ConcurrencyLimiter:
    """Admits at most `most` uses at a time, and `most_per_key` of each key; 0: unlimited.

    `taken`: the current number of uses. `what` names them in errors.
    """

    def __init__(self, what: str, most: int, most_per_key: int) -> None:
        self._what = what
        self._most = most
        self._most_per_key = most_per_key
        self._by_key: Counter[bytes] = Counter()
        self.taken = 0

    @contextmanager
    def take(self, key: ApiKey) -> Iterator[None]:
        """Count one use while the block runs. Raises `Throttled`."""
        if 0 < self._most <= self.taken:
            raise Throttled(f"{self._most} {self._what} are already open: close one, or retry later")
        if 0 < self._most_per_key <= self._by_key[key.digest]:
            raise Throttled(f"this key has {self._most_per_key} {self._what} open already: close one, or retry later")
        self.taken += 1
        self._by_key[key.digest] += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._by_key[key.digest] -= 1
            if not self._by_key[key.digest]:
                del self._by_key[key.digest]


class ConcurrencyLimits:
    """The limits of a process: requests per key, streams (SSE and WebSockets together), and the memory for bodies."""

    def __init__(self, limits: Limits) -> None:
        self.bodies = BodyMemory.of_process(limits.max_body_bytes)
        self.requests = ConcurrencyLimiter("requests", 0, limits.max_inflight_per_key)
        self.streams = ConcurrencyLimiter("streams", limits.max_sse_connections, limits.max_sse_connections_per_key)
