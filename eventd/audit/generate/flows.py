"""The flow of the events of one source over one link: batch by batch, with the records of each end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from eventd.audit.generate.history import COMMIT
from eventd.audit.generate.pseudo_random import Ints, Mask
from eventd.runtime.clock import SECOND


def none() -> Ints:
    """No numbers."""
    return np.zeros(0, np.int64)


DELIVERED: Final = "delivered"
IN_PATH: Final = "in_path"


@dataclass(eq=False)
class Flow:
    """Batches from `sender` to `peer` with events that the history `source` made.

    Batch k carries those of the events in `rows` (numbers, rising) from `edges[k]` up to before `edges[k + 1]`: each
    has a row in the sender's ledger. `held` are those that the peer recorded. Times are true, without clock errors.
    `last` is the last event that each batch's range covers. `feed` brought the events to a sender that is not their
    source.

    `kept` and `given`: whether the sender's and the peer's ledgers have the batches; `alone`: they are no part
    of the link's ordinary course; `known`: events of each batch that the peer had; `probe`: it went out empty.
    `altered`: batches of which the sender shows another receipt than the peer gave.
    """

    uid: int
    group: int
    sender: int
    source: int
    peer: int
    rows: Ints
    held: Ints
    edges: Ints
    last: Ints
    sent: Ints
    recorded: Ints
    acked: Ints
    attempts: Ints
    version: Ints
    feed: Flow | None = None
    outcome: str = DELIVERED
    refused: Ints = field(default_factory=none)
    kept: bool = True
    given: bool = True
    alone: bool = False
    repair: bool = False
    known: int = 0
    probe: bool = False
    altered: frozenset[int] = frozenset()
    # What follows from all courses together.
    row_at: Ints = field(default_factory=none)
    held_at: Ints = field(default_factory=none)
    accepted: Ints = field(default_factory=none)
    refusals: Ints = field(default_factory=none)
    after: Ints = field(default_factory=none)
    upto: Ints = field(default_factory=none)
    mark: Ints = field(default_factory=none)
    position: Ints = field(default_factory=none)
    seq: Ints = field(default_factory=none)

    @property
    def batches(self) -> int:
        """How many there are."""
        return len(self.sent)

    @property
    def commits(self) -> Ints:
        """When each part of it came into the peer's log."""
        return self.recorded

    @property
    def empty(self) -> Mask:
        """Batches of which nothing was left to send."""
        nothing: Mask = self.accepted + self.refusals + self.known == 0
        return nothing & (not self.probe)

    def batch_of(self, number: int) -> int:
        """The batch that an event is in."""
        return int(np.searchsorted(self.edges, number, "right")) - 1

    def close(self, expiring: Ints) -> None:
        """Count what is in each batch. `expiring`: the source's events that expired before they could be sent."""
        self.row_at = np.searchsorted(self.rows, self.edges)
        self.held_at = np.searchsorted(self.held, self.edges)
        lines = np.diff(self.row_at)
        self.refusals = np.diff(np.searchsorted(self.refused, self.edges))
        expired = np.diff(np.searchsorted(common(self.rows, expiring), self.edges))
        if self.outcome == IN_PATH:
            self.accepted = np.zeros_like(lines)
        elif self.kept:
            self.accepted = lines - self.refusals - expired - self.known
        else:
            self.accepted = np.diff(self.held_at)


@dataclass(eq=False)
class Traffic:
    """How long things take on one link. `base`: the usual way to the peer in microseconds."""

    random: np.random.Generator
    base: float = field(default=15_000.0)

    def carry(self, ready: Ints) -> tuple[Ints, Ints, Ints]:
        """When batches that are ready at these (rising) times are sent, recorded and acknowledged: each in order."""
        count = len(ready)
        sent = _rising(ready + self._spread(count, 800, 0.8))
        recorded = _rising(sent + self._spread(count, self.base, 0.35))
        acked = _rising(recorded + self._spread(count, 0.6 * self.base, 0.35))
        return sent, recorded, acked

    def _spread(self, count: int, usual: float, width: float) -> Ints:
        return self.random.lognormal(np.log(usual), width, count).astype(np.int64) + 1


@dataclass(eq=False)
class Load:
    """Batches before they go: batch k carries the events from `edges[k]` on and is ready at `ready[k]`."""

    ready: Ints
    edges: Ints
    attempts: Ints

    def hold_back(self, numbers: Ints, begin: int, end: int) -> None:
        """What became ready while the peer was away goes in full batches after it came back."""
        first, beyond = np.searchsorted(self.ready, (begin, end))
        if first == beyond:
            return
        low, high = np.searchsorted(numbers, (self.edges[first], self.edges[beyond]))
        starts = numbers[np.arange(low, high, COMMIT)]
        tries = np.ones_like(starts)
        tries[:1] += 1 + int(np.log2((end - int(self.ready[first])) / SECOND + 1))
        self.edges = np.concatenate((self.edges[:first], starts, self.edges[beyond:]))
        again = end + 5_000 * np.arange(1, len(starts) + 1)
        self.ready = np.concatenate((self.ready[:first], again, self.ready[beyond:]))
        self.attempts = np.concatenate((self.attempts[:first], tries, self.attempts[beyond:]))


def last_of(rows: Ints, edges: Ints) -> Ints:
    """The last of the rows in each batch; none of them is empty."""
    return rows[np.searchsorted(rows, edges[1:]) - 1]


def common(rows: Ints, some: Ints) -> Ints:
    """Those of a few numbers that are among many rising ones."""
    return some[_among(rows, some)] if len(some) and len(rows) else none()


def without(rows: Ints, some: Iterable[int] | Ints) -> Ints:
    """Rising numbers but for a few."""
    few = np.unique(np.fromiter(some, np.int64))
    found = common(rows, few)
    return np.delete(rows, np.searchsorted(rows, found)) if len(found) else rows


def _among(rows: Ints, some: Ints) -> Mask:
    found: Mask = rows[np.minimum(np.searchsorted(rows, some), len(rows) - 1)] == some
    return found


def _rising(times: Ints) -> Ints:
    steps = np.arange(len(times))
    return np.maximum.accumulate(times - steps) + steps
