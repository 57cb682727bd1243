"""Counts the events, records and bytes that pass through one process, from one sample of the rates to the next.

Counting costs one look-up for each batch or block, also while no client reads the rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add
from types import MappingProxyType
from typing import NamedTuple, Protocol

GroupAndNode = tuple[str, str]
"""A group, and the name of a peer or of a sender in it."""

MOST_COUNTED = 2000
"""Maximum number of senders, and of callbacks, that are counted between two samples: a member of a group can invent
names."""


class AppendedBlock(Protocol):
    """The values of a log block that are counted; `own` is 1 if its records entered the log at this node."""

    @property
    def topic_id(self) -> int: ...

    @property
    def records(self) -> int: ...

    @property
    def own(self) -> int: ...


class CallbackCount(NamedTuple):
    """The requests to the endpoint of a callback, those of them that it did not accept, and the accepted events."""

    requests: int = 0
    failed: int = 0
    events: int = 0


_NO_CALLBACKS: Mapping[str, CallbackCount] = MappingProxyType({})


class TrafficSample(NamedTuple):
    """The traffic since the last sample.

    `links`: the events that each peer has acknowledged and the bytes of their batches; `inbound`: the new events of
    each sender; `topics`: by id, the records that entered the log at this node, and all others. `lags`: the seconds for
    which the oldest event that waits for each peer has waited, as last measured. `callbacks`: the requests to each.
    """

    links: dict[GroupAndNode, tuple[int, int]]
    inbound: dict[GroupAndNode, int]
    topics: dict[int, tuple[int, int]]
    lags: dict[GroupAndNode, float]
    callbacks: Mapping[str, CallbackCount] = _NO_CALLBACKS


class Traffic:
    """The counts of one process since the last `take`."""

    def __init__(self) -> None:
        self._links: dict[GroupAndNode, tuple[int, int]] = {}
        self._inbound: dict[GroupAndNode, int] = {}
        self._topics: dict[int, tuple[int, int]] = {}
        self._lags: dict[GroupAndNode, float] = {}
        self._callbacks: dict[str, CallbackCount] = {}

    def delivered(self, group: str, peer: str, events: int, size: int) -> None:
        """Count events that a peer has acknowledged, and the bytes of their batches."""
        before = self._links.get((group, peer), (0, 0))
        self._links[group, peer] = before[0] + events, before[1] + size

    def received(self, group: str, node: str, events: int) -> None:
        """Count new events that arrived from a node."""
        if (group, node) in self._inbound or len(self._inbound) < MOST_COUNTED:
            self._inbound[group, node] = self._inbound.get((group, node), 0) + events

    def requested(self, callback: str, *, failed: bool) -> None:
        """Count a request to the endpoint of a callback."""
        self._count_callback(callback, CallbackCount(1, int(failed)))

    def accepted(self, callback: str, events: int) -> None:
        """Count events that the endpoint of a callback has accepted."""
        self._count_callback(callback, CallbackCount(events=events))

    def _count_callback(self, callback: str, more: CallbackCount) -> None:
        if callback in self._callbacks or len(self._callbacks) < MOST_COUNTED:
            before = self._callbacks.get(callback, CallbackCount())
            self._callbacks[callback] = CallbackCount(*map(add, before, more))

    def appended(self, blocks: Iterable[AppendedBlock]) -> None:
        """Count the records of blocks that were appended to the log."""
        for block in blocks:
            own, others = self._topics.get(block.topic_id, (0, 0))
            if block.own:
                self._topics[block.topic_id] = own + block.records, others
            else:
                self._topics[block.topic_id] = own, others + block.records

    def lag(self, group: str, peer: str, seconds: float | None) -> None:
        """Set the lag of the link to a peer; None: the peer is no longer declared."""
        if seconds is None:
            self._lags.pop((group, peer), None)
        else:
            self._lags[group, peer] = seconds

    def take(self) -> TrafficSample:
        """Return what passed since the last call, and begin to count anew."""
        sample = TrafficSample(self._links, self._inbound, self._topics, dict(self._lags), self._callbacks)
        self._links, self._inbound, self._topics, self._callbacks = {}, {}, {}, {}
        return sample
