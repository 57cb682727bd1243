"""Checks of topics, routers, queues, watches, subscriptions and callbacks after the faults."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.chaos.client_program import LEASE_MILLISECONDS
from tests.chaos.load import Lease, Ledger, NodeLedger, Written
from tests.chaos.member import Member
from tests.chaos.work import DELIVERIES, DERIVED, TOPICS, WORK, records

_DURABLE = ("orders", "jobs")


class WorkVerdict:
    """Checks the loads of one node. `skewed` says that its wall clock was wrong, `unsynced` that its database server
    ended without what was not flushed."""

    def __init__(self, member: Member, ledger: Ledger, *, skewed: bool, unsynced: bool) -> None:
        self.member = member
        self.name = member.name
        self.own: NodeLedger = ledger.nodes[member.name]
        self.ledger = ledger
        self.skewed = skewed
        self.unsynced = unsynced
        self.restored = ledger.was_restored(member.name)

    def violations(self, ids: list[str], derived: list[str]) -> Iterator[str]:
        """Yield what is wrong. `ids` are all events of the node in order, `derived` the events that its plugin
        answered for, once for each answer."""
        loads = self.member.loads
        if {"topics", "watch"} & {*loads}:
            yield from self._topics()
        if "queue" in loads:
            yield from self._queue()
        if "watch" in loads:
            yield from self._watch()
        if "derive" in loads:
            yield from self._derived({*ids}, derived)
        if "callback" in loads:
            yield from self._callback(ids)

    # --- topics ---------------------------------------------------------------------------------------------

    def _promised(self, topic: str) -> Iterator[tuple[str, Written]]:
        for key, written in self.own.writes.items():
            lost = self.ledger.may_be_lost(self.name, written.sent, written.acknowledged)
            if written.topic == topic and written.acknowledged and not lost:
                yield key, written

    def _topics(self) -> Iterator[str]:
        held = {topic: records(self.member.running, topic) for topic in TOPICS}
        for topic in ("orders", "notes"):
            yield from self._source(topic, held[topic])
        orders = [(each["data"], each["$tag"]) for each in held["orders"]]
        loud = [each for each in orders if each[1] == "loud"]
        for dest, wanted in (("billed", orders), ("archive", orders), ("loud", loud)):
            copies = [(each["data"], each["$tag"]) for each in held[dest]]
            if copies != wanted:
                missing, more = Counter(wanted) - Counter(copies), Counter(copies) - Counter(wanted)
                yield (
                    f"V12 {self.name}: {dest} has {len(copies)} copies of {len(wanted)} records:"
                    f" {[*missing][:3]} missing, {[*more][:3]} too many, or in another order"
                )

    def _source(self, topic: str, held: list[dict[str, Any]]) -> Iterator[str]:
        at = {each["$seq"]: (each["data"], each["$tag"]) for each in held}
        seqs = [each["$seq"] for each in held]
        if seqs != [*range(1, len(seqs) + 1)]:
            yield f"V7 {self.name}: {topic} has seqs {seqs[:3]}…{seqs[-3:]} for {len(seqs)} records"
        if doubled := [data for data, count in Counter(data for data, _ in at.values()).items() if count > 1]:
            yield f"V5 {self.name}: {topic} has {doubled[:5]} twice, which were written under one key"
        if self.unsynced and topic not in _DURABLE:
            return
        for key, written in self._promised(topic):
            there = [at.get(seq) for seq in written.seqs]
            if there != [tuple(each) for each in written.records]:
                yield f"V3 {self.name}: {topic} acknowledged {key} at {written.seqs}, and holds {there}"

    # --- queues ---------------------------------------------------------------------------------------------

    def _queue(self) -> Iterator[str]:
        waiting = {each["$seq"]: each["data"] for each in records(self.member.running, "jobs")}
        dead = [each["data"] for each in records(self.member.running, "failed-jobs")]
        if doubled := [data for data, count in Counter(dead).items() if count > 1]:
            yield f"V15 {self.name}: dead letters {doubled[:5]} are there twice"
        leases: dict[int, list[Lease]] = {}
        for lease in self.own.leases.values():
            leases.setdefault(lease.seq, []).append(lease)
        for key, written in self._promised("jobs"):
            for seq, (data, _) in zip(written.seqs, written.records, strict=True):
                acked = any(lease.acked for lease in leases.get(seq, ()))
                if waiting.get(seq) != data and data not in dead and not acked:
                    yield f"V15 {self.name}: job {seq} of {key} was acknowledged and lost"
        if not self.restored:
            for seq, its in leases.items():
                yield from self._leases(seq, its, waiting, dead)

    def _leases(self, seq: int, leases: list[Lease], waiting: dict[int, str], dead: list[str]) -> Iterator[str]:
        leases = sorted(leases, key=lambda lease: lease.deliveries)
        done = next((lease.done for lease in leases if lease.done), 0.0)
        if done and seq in waiting:
            yield f"V15 {self.name}: job {seq} is done, and waits"
        for lease in leases:
            if done and lease.asked > done:
                yield f"V15 {self.name}: job {seq} was done, and given again"
            if lease.deliveries > DELIVERIES:
                yield f"V15 {self.name}: job {seq} was handed out {lease.deliveries} times"
        for first, second in itertools.pairwise(leases):
            if first.deliveries == second.deliveries:
                yield f"V15 {self.name}: job {seq} has two leases of delivery {first.deliveries}"
            ends = first.asked + LEASE_MILLISECONDS / 1000
            if not self.skewed and second.answered < ends and not 0 < first.settled < second.answered:
                yield f"V15 {self.name}: job {seq} was given again {ends - second.answered:.2f} s before its lease ends"
            if first.done and first.settled > second.answered:
                yield f"V15 {self.name}: job {seq} was done by a lease that had ended"

    # --- readers --------------------------------------------------------------------------------------------

    def _watch(self) -> Iterator[str]:
        if self.restored:
            return
        held = {each["$seq"]: each["data"] for each in records(self.member.running, "orders")}
        head = max(held, default=0)
        if self.member.client is not None:
            self.member.client.catch_up(head)
        seen = dict(self.own.seen)
        if wrong := [seq for seq, data in self.own.seen if held.get(seq) != data]:
            yield f"V14 {self.name}: a watch showed seqs {wrong[:5]} with other data than they have"
        if missed := sorted({*range(1, head + 1)} - {*seen}):
            yield f"V14 {self.name}: a watch missed seqs {missed[:5]} of {head}"
        if {*self.own.tombstones} - ({"recreated"} if self.unsynced else set()):
            yield f"V14 {self.name}: a watch got the tombstones {self.own.tombstones}, and nothing was removed"

    def _derived(self, ids: set[str], derived: list[str]) -> Iterator[str]:
        counted = Counter(derived)
        work = [each for each, event in self.ledger.promised() if event.type == WORK and each in ids]
        if missing := [each for each in work if not counted[each]]:
            yield f"V13 {self.name}: {len(missing)} of {len(work)} events had no effect: {missing[:5]}"
        if not self.restored and (doubled := [each for each, count in counted.items() if count > 1]):
            yield f"V13 {self.name}: {doubled[:5]} had their effect twice: {DERIVED}"

    def _callback(self, ids: list[str]) -> Iterator[str]:
        arrived = self.member.mesh.work.receivers[self.name].first_seen()
        place = {each: at for at, each in enumerate(arrived)}
        wanted = [each for each, _ in self.ledger.promised() if each in {*ids}]
        if missing := [each for each in wanted if each not in place]:
            yield f"V4 {self.name}: the callback did not deliver {len(missing)} events: {missing[:5]}"
        plain = {each for each, event in self.ledger.promised() if not event.again}
        there = [place[each] for each in ids if each in place and each in plain]
        if not self.restored and there != sorted(there):
            yield f"V6 {self.name}: the callback delivered events in another order than the log"
