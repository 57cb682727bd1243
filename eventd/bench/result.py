"""The result of a measurement, as it is printed, stored and compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eventd.bench.wire import percentile

Show = Callable[[str, int, int], None]
"""Shows progress: the name of the current step, the amount that is done, and the total, which is 0 if unknown."""


@dataclass(slots=True)
class UnverifiedResult:
    """The counts, times and latencies of a run, and further figures, before verification.

    `seconds` and `latencies` are in seconds; `busy` is the share of a core that this process used."""

    events: int
    seconds: float
    latencies: list[float]
    busy: float
    bytes: int = 0
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """What one run measured, the problems found by its verification, and its settings, machine, time and version."""

    bench: str
    measured: UnverifiedResult
    problems: list[str]
    settings: dict[str, Any]
    machine: dict[str, Any]
    time: str
    version: str

    @property
    def verified(self) -> bool:
        """Whether the verification found no problem."""
        return not self.problems

    def show(self) -> dict[str, Any]:
        """Return the fields of the JSON object that is printed and stored."""
        measured = self.measured
        seconds = max(measured.seconds, 1e-9)
        return {
            "bench": self.bench,
            "events": measured.events,
            "seconds": round(measured.seconds, 3),
            "events_per_second": round(measured.events / seconds, 1),
            "mb_per_second": round(measured.bytes / seconds / 1e6, 2),
            "p50_ms": percentile(measured.latencies, 50),
            "p95_ms": percentile(measured.latencies, 95),
            "p99_ms": percentile(measured.latencies, 99),
            "client_cpu": round(measured.busy, 2),
            "verified": self.verified,
            "problems": self.problems,
            "figures": measured.figures,
            "settings": self.settings,
            "machine": self.machine,
            "time": self.time,
            "version": self.version,
        }
