"""When topics were last read in this process. Kept in memory only: it shows current demand."""

from __future__ import annotations


class Recency:
    """The last read of up to `most` topics; beyond that, the least recently read are forgotten."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._read_ms: dict[int, int] = {}

    def touch(self, topic_id: int, now: int) -> None:
        """Note that a topic is read at the time `now`, in microseconds."""
        self._read_ms.pop(topic_id, None)
        self._read_ms[topic_id] = now // 1000
        if len(self._read_ms) > self._most:
            del self._read_ms[next(iter(self._read_ms))]

    def last_ms(self, topic_id: int) -> int | None:
        """Return when the topic was last read, in milliseconds; None: never in this process, or that is forgotten."""
        return self._read_ms.get(topic_id)
