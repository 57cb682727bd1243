"""Emits events while faults happen, and records what was acknowledged."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.support.running import ApiError, NodeProcess

TYPES = ("t.even", "t.odd")
FAILED = (OSError, http.client.HTTPException, AssertionError, ValueError, ApiError)
"""Errors of a request to a node that is dead, not up yet, or in trouble."""


@dataclass
class Emitted:
    """One id: when it was first emitted, and the request that was acknowledged first (monotonic seconds)."""

    source: str
    type: str
    short: bool
    first: float
    sent: float = 0.0
    acknowledged: float = 0.0
    again: bool = False
    """Whether it was emitted more than once: as a repeat, a refresh, or after a missing answer."""


@dataclass
class Ledger:
    """What all emitters know together."""

    events: dict[str, Emitted] = field(default_factory=dict)
    lost: list[tuple[str, float, float]] = field(default_factory=list)
    """Acknowledged events that a restored node lost because they were emitted after its copy was made."""
    asked: int = 0
    answered: int = 0

    def promised(self) -> Iterator[tuple[str, Emitted]]:
        """Yield what was acknowledged, is not expired, and was not on a disk that was discarded."""
        for event_id, event in list(self.events.items()):
            if event.acknowledged and not event.short and not self._was_lost(event):
                yield event_id, event

    def _was_lost(self, event: Emitted) -> bool:
        return any(
            source == event.source and event.acknowledged >= since and event.sent <= until
            for source, since, until in self.lost
        )

    def touched_by_a_restore(self, event: Emitted) -> bool:
        """Return whether peers may hold the event from a history of its node that a restore undid."""
        return any(source == event.source and event.first <= until for source, _, until in self.lost) and (
            event.again or self._was_lost(event)
        )


class Emitter(threading.Thread):
    """Emits at one node until it is stopped: new ids in units of 1 to 10, repeats, refreshes, short lifetimes.

    `pause` is the mean time between two units, in seconds.
    """

    def __init__(self, node: NodeProcess, ledger: Ledger, name: str, seed: str, *, pause: float) -> None:
        super().__init__(name=f"emitter {node.name}", daemon=True)
        self.node = node
        self.ledger = ledger
        self._name = f"{node.name}-{name}"
        self._pause = pause
        self._chance = Random(seed)
        self._end = threading.Event()
        self._number = 0

    def run(self) -> None:
        while not self._end.is_set():
            ids, kind, ttl = self._unit()
            for _ in range(1 + self._chance.randint(0, 2)):  # a client without an answer retries, or gives up
                if self._end.is_set() or self._emit(ids, kind, ttl):
                    break
                self._end.wait(0.05)
            self._end.wait(self._pause * (0.4 + 1.2 * self._chance.random()))

    def finish(self) -> None:
        self._end.set()
        self.join(40)
        assert not self.is_alive()

    def _unit(self) -> tuple[list[str], str, str]:
        if self._number and self._chance.random() < 0.1:
            known = f"{self._name}-{self._chance.randrange(self._number):06}"
            return [known], self.ledger.events[known].type, self._chance.choice(("1440h", ""))
        ids = [f"{self._name}-{self._number + at:06}" for at in range(self._chance.randint(1, 10))]
        self._number += len(ids)
        kind, ttl = self._chance.choice(TYPES), self._chance.choices(("", "720h", "300ms"), (60, 35, 5))[0]
        now = time.monotonic()
        for each in ids:
            self.ledger.events[each] = Emitted(self.node.name, kind, ttl == "300ms", now)
        return ids, kind, ttl

    def _emit(self, ids: list[str], kind: str, ttl: str) -> bool:
        events = [self.ledger.events[each] for each in ids]
        begun = time.monotonic()
        self.ledger.asked += 1
        for event in events:
            event.again = event.again or begun > event.first + 0.01 or bool(event.sent)
            event.sent = event.sent if event.acknowledged else begun
        try:
            self.node.emit(*ids, type=kind, **({"ttl": ttl} if ttl else {}))
        except FAILED:
            return False
        self.ledger.answered += 1
        for event in events:
            event.acknowledged = event.acknowledged or time.monotonic()
        return True
