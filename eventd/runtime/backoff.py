"""The delay after the n-th failure in a row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential with a cap and jitter. Times in seconds."""

    base: float = 0.2
    cap: float = 30.0
    jitter: float = 0.2

    def delay(self, attempts: int, chance: float, *, retry_after: float | None = None) -> float:
        """Return the seconds to wait after `attempts` (≥ 1) failures in a row.

        `chance` in [0, 1) spreads the retries of many peers: the result is up to `jitter` below the nominal delay. A
        destination that named a time (`retry_after`, seconds) gets at least that, up to `cap`: the answer that names it
        is not proven, and anyone on the path could otherwise stop deliveries to the destination.
        """
        nominal = min(self.cap, self.base * 2.0 ** min(attempts - 1, 40))
        spread = nominal * (1.0 - self.jitter * chance)
        return max(spread, min(retry_after, self.cap)) if retry_after is not None else spread
