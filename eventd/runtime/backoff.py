"""The delay after the n-th failure in a row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """An exponential delay from `base` to `cap` seconds, shortened at random by up to the fraction `jitter`.

    `patience`: the longest delay in seconds that a destination may ask for, if that is more than `cap`.
    """

    base: float = 0.2
    cap: float = 30.0
    jitter: float = 0.2
    patience: float = 0.0

    def delay(self, attempts: int, chance: float, *, retry_after: float | None = None) -> float:
        """Return the seconds to wait after `attempts` (≥ 1) failures in a row.

        `chance` in [0, 1), a random number, spreads the retries of many peers. If the destination asked for a delay
        (`retry_after`, seconds), the result is at least that, but not above `cap` or `patience`: its answer is not
        signed, and anyone on the way could otherwise stop deliveries to it.
        """
        nominal = min(self.cap, self.base * 2.0 ** min(attempts - 1, 40))
        spread = nominal * (1.0 - self.jitter * chance)
        longest = max(self.cap, self.patience)
        return max(spread, min(retry_after, longest)) if retry_after is not None else spread
