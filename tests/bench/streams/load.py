"""What all contestants share: latencies, rates, payloads, and the check that everything arrived."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eventd.bench.wire import percentile

WARM_UP = 500
"""Requests, or messages, before anything is measured."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles of latencies, in microseconds."""

    p50: float
    p99: float
    p999: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latencies:
        """Return the percentiles of measured latencies."""
        return cls(*(percentile(seconds, percent) * 1000 for percent in (50, 99, 99.9)))

    def figures(self, name: str) -> dict[str, float]:
        """Return the figures by name."""
        return {f"{name}_p50_us": self.p50, f"{name}_p99_us": self.p99, f"{name}_p999_us": self.p999}


@dataclass(slots=True)
class Rate:
    """A rate per second, and the share of a core that this process used meanwhile."""

    begun: float
    cpu: float
    per_second: float = 0.0

    @classmethod
    def begin(cls) -> Rate:
        """Start the clock."""
        return cls(time.perf_counter(), time.process_time())

    def end(self, count: int) -> Rate:
        """Stop the clock after so many."""
        seconds = time.perf_counter() - self.begun
        self.per_second, self.cpu = count / seconds, (time.process_time() - self.cpu) / seconds
        return self


def payload(number: int, size: int) -> bytes:
    """Return a payload, which is text and says which one it is."""
    return b"%016d" % number + b"x" * (size - 16)


def number_of(payload: bytes) -> int:
    """Return the number of a payload."""
    return int(payload[:16])


def require_all(numbers: Iterable[int], count: int) -> None:
    """Raise AssertionError unless the payloads from 0 on arrived, each once and in order."""
    for wanted, number in enumerate(numbers):
        if wanted != number:
            raise AssertionError(f"payload {number} arrived where {wanted} was expected")
        count -= 1
    if count:
        raise AssertionError(f"{count} payloads are missing")
