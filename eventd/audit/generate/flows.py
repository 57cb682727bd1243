"""The flow of one source's events over one link, batch by batch, as recorded at both ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from eventd.audit.generate.emitters import COMMIT
from eventd.audit.generate.pseudo_random import Ints, Mask
from eventd.runtime.clock import SECOND


def no_numbers() -> Ints:
    """Return an empty array of integers."""
    return np.zeros(0, np.int64)


DELIVERED: Final = "delivered"
IN_PATH: Final = "in_path"


@dataclass(eq=False)
class Flow:
    """Batches from `sender` to `peer` with events of the emitter `source`.

    `rows` are the ascending numbers of its events, each with a row in the sender's ledger; `held` are those that the
    peer recorded. Batch k carries the numbers from `edges[k]` up to but not including `edges[k + 1]`; its range ends
    with event `last[k]`. Times are true, without clock errors. For a relayed flow, `feed` is the flow that brought the
    events to the sender.

    `kept`: the batches are in the sender's ledger; `given`: in the peer's. `alone`: the batches are not part of the
    link's regular sequence. `known`: how many events of each batch the peer already held. `probe`: the batch was sent
    empty. `altered`: indexes of batches for which the sender's receipt differs from the one that the peer gave.
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
    refused: Ints = field(default_factory=no_numbers)
    kept: bool = True
    given: bool = True
    alone: bool = False
    repair: bool = False
    known: int = 0
    probe: bool = False
    altered: frozenset[int] = frozenset()
    # Computed once all flows are known.
    row_at: Ints = field(default_factory=no_numbers)
    held_at: Ints = field(default_factory=no_numbers)
    accepted: Ints = field(default_factory=no_numbers)
    refusals: Ints = field(default_factory=no_numbers)
    after: Ints = field(default_factory=no_numbers)
    upto: Ints = field(default_factory=no_numbers)
    mark: Ints = field(default_factory=no_numbers)
    position: Ints = field(default_factory=no_numbers)
    seq: Ints = field(default_factory=no_numbers)

    @property
    def batches(self) -> int:
        """Return the number of the flow's batches."""
        return len(self.sent)

    @property
    def commit_times(self) -> Ints:
        """Return the true time at which the peer recorded each batch."""
        return self.recorded

    @property
    def empty(self) -> Mask:
        """Return a mask, True for each batch that was not sent because it had no event left to send."""
        nothing: Mask = self.accepted + self.refusals + self.known == 0
        return nothing & (not self.probe)

    def batch_of(self, number: int) -> int:
        """Return the index of the batch whose range of numbers has the event `number`."""
        return int(np.searchsorted(self.edges, number, "right")) - 1

    def count_events(self, expiring: Ints) -> None:
        """Set, for each batch, where its events begin in `rows` and `held`, and how many were accepted and refused.

        `expiring` are the numbers of the source's events that expired before they could be sent.
        """
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
class LinkTiming:
    """The delays of one link. `base`: the median time from sending a batch to its recording, in microseconds."""

    random: np.random.Generator
    base: float = field(default=15_000.0)

    def schedule(self, ready: Ints) -> tuple[Ints, Ints, Ints]:
        """Return when batches that are ready at `ready` are sent, recorded and acknowledged: three ascending arrays."""
        count = len(ready)
        sent = _rising(ready + self._spread(count, 800, 0.8))
        recorded = _rising(sent + self._spread(count, self.base, 0.35))
        acked = _rising(recorded + self._spread(count, 0.6 * self.base, 0.35))
        return sent, recorded, acked

    def _spread(self, count: int, usual: float, width: float) -> Ints:
        return self.random.lognormal(np.log(usual), width, count).astype(np.int64) + 1


@dataclass(eq=False)
class PendingBatches:
    """Batches that wait to be sent: batch k carries event numbers from `edges[k]` on, and is ready at `ready[k]`."""

    ready: Ints
    edges: Ints
    attempts: Ints

    def hold_back(self, numbers: Ints, begin: int, end: int) -> None:
        """Merge the batches that became ready during an outage of the peer into full batches, ready after its end."""
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
    """Return the number of the last event of each batch; no batch may be empty."""
    return rows[np.searchsorted(rows, edges[1:]) - 1]


def common(rows: Ints, some: Ints) -> Ints:
    """Return those of the numbers `some` that occur in the ascending array `rows`."""
    return some[_among(rows, some)] if len(some) and len(rows) else no_numbers()


def without(rows: Ints, some: Iterable[int] | Ints) -> Ints:
    """Return the ascending array `rows` without the numbers that are in `some`."""
    few = np.unique(np.fromiter(some, np.int64))
    found = common(rows, few)
    return np.delete(rows, np.searchsorted(rows, found)) if len(found) else rows


def _among(rows: Ints, some: Ints) -> Mask:
    found: Mask = rows[np.minimum(np.searchsorted(rows, some), len(rows) - 1)] == some
    return found


def _rising(times: Ints) -> Ints:
    steps = np.arange(len(times))
    return np.maximum.accumulate(times - steps) + steps
