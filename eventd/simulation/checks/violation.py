"""What a run has found wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold: its name, where, what is wrong, and when it was first seen to be.

    `at` is the time of the loop, in seconds since the begin of the run.
    """

    invariant: str
    host: str
    detail: str
    at: float

    def __str__(self) -> str:
        return f"{self.invariant} at {self.host}, {self.at:.3f} s: {self.detail}"
