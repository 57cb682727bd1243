"""The settings of generated ledgers, and their faults."""

from __future__ import annotations

from typing import Final

import msgspec

from eventd.audit.report.figures import span
from eventd.errors import Invalid
from eventd.runtime.clock import SECOND

MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
START: Final = 1_767_571_200 * SECOND
"""2026-01-05T00:00:00Z: fixed, so that the same settings generate the same ledgers."""
TAIL: Final = 20 * MINUTE
"""Time without new events before the end, so that every delivery has arrived by any clock."""


class GeneratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a generator. Equal settings generate equal files, byte for byte. Times are in microseconds.

    All nodes together emit `events`; each is sent to every other node. A node's clock is wrong by up to `skew` in
    either direction. Faults: `lose` events at one peer each, `duplicate` deliveries, `forge` events or receipts, `loop`
    deliveries to a source or by a second sender.
    """

    nodes: int = 5
    events: int = 100_000
    seed: int = 1
    span: int = 24 * HOUR
    skew: int = 0
    lose: int = 0
    duplicate: int = 0
    forge: int = 0
    loop: int = 0

    @property
    def start(self) -> int:
        """Return the start of the simulated period."""
        return START

    @property
    def end(self) -> int:
        """Return the end of the simulated period, at which every node is taken out of service."""
        return self.start + self.span

    @property
    def fault_events(self) -> int:
        """Return the number of faults, which is also the maximum number of events with one."""
        return self.lose + self.duplicate + self.forge + self.loop


def check(settings: GeneratorSettings) -> None:
    """Check the settings. Raises Invalid if they cannot be met."""
    bounds = {"nodes": (2, 500), "events": (1, 10**10), "seed": (0, 2**32 - 1)}
    for name in ("nodes", "events", "seed", "lose", "duplicate", "forge", "loop"):
        least, most = bounds.get(name, (0, 10**12))
        value = getattr(settings, name)
        if not least <= value <= most:
            raise Invalid(f"--{name} is {value}", hint=f"write a number from {least} to {most}")
    if not HOUR <= settings.span <= 366 * 24 * HOUR:
        raise Invalid(f"--span is {span(settings.span / SECOND)}", hint="write a duration from 1h to 366d")
    if not 0 <= settings.skew <= 12 * HOUR:
        raise Invalid(f"--skew is {span(settings.skew / SECOND)}", hint="write a duration up to 12h")
    if 20 * settings.fault_events > settings.events:
        hint = f"raise --events to {20 * settings.fault_events}: each fault needs 20 events"
        raise Invalid(f"{settings.events:,} events are too few for {settings.fault_events:,} faults", hint=hint)
