"""Which rare branches of the nodes' code a run has taken: a campaign that never took one proves nothing about it.

They are read from what nodes count anyway, and from the names of their storage operations: the product has no counters
for this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry

from eventd.simulation.checks.calls import CALLS
from eventd.simulation.faults.fault import POSTGRES, SQLITE
from eventd.simulation.load.follows import FOLLOW
from eventd.simulation.load.queue_jobs import CLAIM
from eventd.simulation.load.routes import ROUTE_WRITE
from eventd.simulation.load.sockets import PUBLISH, SOCKET
from eventd.simulation.load.watches import TOMBSTONE, WATCH
from eventd.simulation.world.journal import Journal
from eventd.simulation.world.machine import Machine

_PREFIX: Final = "routerd_eventd_"
_NOT_FOUND: Final = 404
_RECREATED: Final = "recreated"
_KEYED: Final = ("write", "watched write", ROUTE_WRITE, "job", PUBLISH)
"""The kinds of questions that have an idempotency key."""
_OUTCOMES: Final = ("reason", "result", "status", "kind")
"""Labels that say what happened; others say to whom."""


RARE: Final[Mapping[str, tuple[str, ...]]] = {
    "rewind": ("operation rewind",),
    "repaired": ("operation end_cursor",),
    "letter": ("outbox_delivery refused",),
    "range ahead": ("outbox_failures range_ahead",),
    "answer timed out": ("outbox_failures timeout",),
    "event repeated": ("receiver_duplicate",),
    "nonce replayed": ("receiver_reject replayed",),
    "outside the clock window": ("receiver_reject ahead", "receiver_reject stale"),
    "body broken off": ("receiver_reject read_body",),
    "database refused": ("receiver_reject database_unavailable",),
    "unsynced commits settled": ("operation settle_unsynced",),
    "flushed afterwards": ("operation touch_head",),
    "committed in the loop": ("commits_in_loop",),
    "task restarted": ("task_failures restarted",),
    "consistency proven": ("operation prove_consistency",),
    "pending proof settled": ("operation settle_pending",),
    "older copy found": ("history_findings older_copy",),
    **{branch: (f"call {branch}",) for branch in CALLS},
    "lease taken over": ("journal redelivered",),
    "key repeated": ("journal deduped",),
    "session unknown": ("journal unknown session",),
    "reader of another epoch": ("journal recreated",),
    "write-ahead log begun anew": ("disk restarts",),
    "transaction lost": ("session lost",),
    "commit unanswered": ("session unanswered",),
}
"""The branches that matter, by name, with what is counted for each."""
NOT_TAKEN: Final[Mapping[str, tuple[str, ...]]] = {
    SQLITE: ("claim regained", "session refused", "transaction lost", "commit unanswered"),
    POSTGRES: (
        *("committed in the loop", "write-ahead log begun anew"),
        *("older copy found", "epoch renewed at a start", "reader of another epoch"),
    ),
}
"""The branches that nodes with such a database do not take, or not by the faults that runs have on it."""


def count_branches(machines: Iterable[Machine], journal: Journal, calls: Counter[str]) -> dict[str, int]:
    """Return how often the processes of these machines have taken each rare branch; `calls`: see `counted_calls`."""
    found: Counter[str] = Counter({f"call {branch}": times for branch, times in calls.items()})
    found.update(_answered(journal))
    for machine in machines:
        found["disk restarts"] += machine.disk.restarts
        if machine.sessions is not None:
            found["session lost"] += machine.sessions.lost_transactions
            found["session unanswered"] += machine.sessions.unanswered_commits
        for pool in machine.pools:
            for name, times in pool.operations.items():
                found[f"operation {name}"] += times
        for node in machine.nodes():
            for name, times in _counted(node.metrics.registry):
                found[name] += times
    return {name: sum(found[one] for one in counted) for name, counted in RARE.items()}


def _answered(journal: Journal) -> Iterator[str]:
    """Yield a name for each answer that shows a branch."""
    for asked in journal.asked:
        if asked.kind == WATCH:
            if asked.status == _NOT_FOUND:
                yield "journal unknown session"
            events = [event.data["reason"] for event in asked.answer[1] if event.kind == TOMBSTONE]
            yield from ("journal recreated" for reason in events if reason == _RECREATED)
        elif asked.kind == SOCKET:
            tombstones = [message.data for message in asked.answer if message.data["op"] == TOMBSTONE]
            yield from ("journal recreated" for each in tombstones if each["reason"] == _RECREATED)
        elif asked.is_good and asked.kind == CLAIM:
            yield from ("journal redelivered" for job in asked.answer["claimed"] if job["deliveries"] > 1)
        elif asked.is_good and asked.kind == FOLLOW and (asked.answer["tombstone"] or {}).get("reason") == _RECREATED:
            yield "journal recreated"
        elif asked.is_good and asked.kind in _KEYED and asked.answer["deduped"]:
            yield "journal deduped"


def _counted(registry: CollectorRegistry) -> Iterator[tuple[str, int]]:
    for family in registry.collect():
        if family.type != "counter":
            continue
        for sample in family.samples:
            if sample.name.endswith("_total") and sample.value:
                outcome = " ".join(sample.labels[label] for label in _OUTCOMES if label in sample.labels)
                yield f"{family.name.removeprefix(_PREFIX)} {outcome}".strip(), int(sample.value)
