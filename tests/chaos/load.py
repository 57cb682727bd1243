"""What the clients of all nodes have asked, and what was acknowledged."""

from __future__ import annotations

import http.client
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.running import ApiError

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
class Written:
    """A batch for a topic, under a key of its own; `seqs` once it was acknowledged."""

    topic: str
    records: list[list[str]]
    sent: float
    acknowledged: float = 0.0
    seqs: list[int] = field(default_factory=list)


@dataclass
class Lease:
    """A job that was handed out, and when a worker settled it.

    `settled`: it asked to ack or return it; `acked`: it asked to ack it; `done`: the answer was that it is done.
    """

    seq: int
    lease_id: str
    deliveries: int
    asked: float
    answered: float
    settled: float = 0.0
    acked: float = 0.0
    done: float = 0.0


@dataclass
class NodeLedger:
    """What the client of one node knows of its topics."""

    writes: dict[str, Written] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    seen: list[tuple[int, str]] = field(default_factory=list)
    tombstones: list[str] = field(default_factory=list)
    watches: int = 0


class Ledger:
    """What all clients together know."""

    def __init__(self) -> None:
        self.events: dict[str, Emitted] = {}
        self.lost: list[tuple[str, float, float]] = []
        """Node and times: what a restored node had acknowledged in between, after its copy was made, is lost."""
        self.asked = 0
        self.answered = 0
        self.nodes: defaultdict[str, NodeLedger] = defaultdict(NodeLedger)
        self.errors: dict[str, int] = defaultdict(int)
        """How often the nodes answered with this error."""
        self._open: dict[tuple[str, int], dict[str, Any]] = {}
        self._lock = threading.Lock()

    def take(self, node: str, told: dict[str, Any]) -> None:
        """Take one line of a client."""
        with self._lock:
            match told["kind"]:
                case "answered":
                    self.answered += 1
                    self._answered(node, self._open.pop((node, told["number"])), told["answer"], told["at"])
                case "failed":
                    del self._open[node, told["number"]]
                    if told["refused"]:
                        self.errors[told["why"][:80]] += 1
                case "seen":
                    self.nodes[node].seen += [(seq, data) for seq, data in told["records"]]
                case "tombstone":
                    self.nodes[node].tombstones.append(told["reason"])
                case "watch began":
                    self.nodes[node].watches += 1
                case _:
                    self.asked += 1
                    self._open[node, told["number"]] = told
                    self._asked(node, told)

    def _asked(self, node: str, told: dict[str, Any]) -> None:
        at = told["at"]
        match told["kind"]:
            case "emit":
                for each in told["ids"]:
                    event = self.events.get(each)
                    if event is None:
                        event = self.events[each] = Emitted(node, told["type"], told["ttl"] == "300ms", at)
                    else:
                        event.again = True
                    event.sent = event.sent if event.acknowledged else at
            case "write":
                self.nodes[node].writes.setdefault(told["key"], Written(told["topic"], told["records"], at))
            case "ack" | "nack":
                for _, lease_id in told["held"]:
                    lease = self.nodes[node].leases[lease_id]
                    lease.settled = at
                    if told["kind"] == "ack":
                        lease.acked = at

    def _answered(self, node: str, asked: dict[str, Any], answer: Any, at: float) -> None:
        match asked["kind"]:
            case "emit":
                for each in asked["ids"]:
                    self.events[each].acknowledged = self.events[each].acknowledged or at
            case "write":
                written = self.nodes[node].writes[asked["key"]]
                written.acknowledged, written.seqs = at, answer["seqs"]
            case "claim":
                for job in answer["claimed"]:
                    lease = Lease(job["$seq"], job["lease_id"], job["deliveries"], asked["at"], at)
                    self.nodes[node].leases[lease.lease_id] = lease
            case "ack":
                for seq, lease_id in asked["held"]:
                    if seq not in answer["skipped"]:
                        self.nodes[node].leases[lease_id].done = at

    def promised(self) -> Iterator[tuple[str, Emitted]]:
        """Yield what was acknowledged, is not expired, and was not on a disk that was discarded."""
        for event_id, event in list(self.events.items()):
            if event.acknowledged and not event.short and not self._was_lost(event):
                yield event_id, event

    def was_restored(self, node: str) -> bool:
        """Return whether the node came back from an older copy."""
        return any(source == node for source, _, _ in self.lost)

    def may_be_lost(self, node: str, sent: float, acknowledged: float) -> bool:
        """Return whether a restore of the node undid what was stored between these times."""
        return any(source == node and acknowledged >= since and sent <= until for source, since, until in self.lost)

    def _was_lost(self, event: Emitted) -> bool:
        return self.may_be_lost(event.source, event.sent, event.acknowledged)

    def touched_by_a_restore(self, event: Emitted) -> bool:
        """Return whether peers may hold the event from a history of its node that a restore undid."""
        return any(source == event.source and event.first <= until for source, _, until in self.lost) and (
            event.again or self._was_lost(event)
        )
