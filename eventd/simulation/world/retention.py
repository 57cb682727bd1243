"""The small retention of a node's group, as it is declared, and what it may have taken by what clients know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

DRIFT: Final = 0.02
"""By how much a node's seconds are longer or shorter than true ones at most."""
SLACK_SECONDS: Final = 1.1
"""By how much a wall time may be wrong until it is corrected after the faults, and a little more."""


@dataclass(frozen=True, slots=True)
class SmallRetention:
    """How few events a node keeps: the newest `max_events`, none older than `max_age` seconds; None: no limit.

    `keeps`: its own events wait for its peers. `interval`: seconds between two runs of retention.
    `is_clock_set`: the node's wall time is set during the run, so that an event may seem to be of any age.
    """

    max_events: int | None = None
    max_age: float | None = None
    keeps: bool = True
    interval: float = 1.0
    is_clock_set: bool = False

    def document(self) -> dict[str, Any]:
        """Return the retention as a part of the group's spec."""
        spec: dict[str, Any] = {"undelivered": "keep" if self.keeps else "drop"}
        if self.max_events is not None:
            spec["maxEvents"] = self.max_events
        if self.max_age is not None:
            spec["maxAge"] = f"{round(self.max_age * 1000)}ms"
        return spec

    def may_take(self, seq: int | None, head: int, age: float) -> bool:
        """Return whether an event may be evicted, with a seq (None: not known) in a log that ends at `head`.

        `age`: the highest that it can have, in true seconds.
        """
        by_number = self.max_events is not None and (seq is None or seq <= head - self.max_events)
        return by_number or self.may_take_by_age(age)

    def may_take_by_age(self, age: float) -> bool:
        """Return whether an event may be evicted because of its age."""
        if self.max_age is None:
            return False
        return self.is_clock_set or age * (1 + DRIFT) + SLACK_SECONDS >= self.max_age

    def must_have_taken(self, age: float) -> bool:
        """Return whether an event that nothing holds back must be evicted because of its age, of which one is sure."""
        return self.max_age is not None and age > self.max_age + self.interval + SLACK_SECONDS
