"""Checks of queues: one lease at a time, an ack only by it, and each job done, waiting, or once a dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.queue_jobs import CLAIM, DEAD_LETTERS, DELIVERIES, JOB_LISTING, QUEUE
from eventd.simulation.world.journal import Asked, Journal


@dataclass(frozen=True, slots=True)
class GivenLease:
    """A job that a worker was given: it holds until `ends` at least, unless the worker returns it or the node ends."""

    seq: int
    lease_id: str
    deliveries: int
    asked_at: float
    answered_at: float
    ends: float


class QueueReference:
    """What must be true of the queue of one node by the answers of one run."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        every = [asked for asked in journal.asked if asked.host == host]
        own = [asked for asked in every if not journal.may_have_lost(asked)]
        self._settled = [asked for asked in every if asked.kind in ("ack", "nack")]
        self._jobs = [asked for asked in own if asked.kind == "job" and asked.is_good]
        self._leases = [lease for asked in own if asked.kind == CLAIM and asked.is_good for lease in _leases_of(asked)]
        self._acks = [asked for asked in own if asked.kind == "ack"]
        self._lists = [asked for asked in every if asked.kind == JOB_LISTING]
        self._power = journal.times(host, "power")
        self._starts = journal.times(host, "start")

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        yield from self._given_twice()
        yield from self._late_acks()
        yield from self._done_and_given()
        yield from self._ends()

    def _found(self, detail: str, at: float) -> Violation:
        return Violation("V15", self._host, detail, at - self._begin)

    def _given_twice(self) -> Iterator[Violation]:
        """A job has one lease at a time, each with a number of deliveries of its own, none beyond the maximum."""
        for at, later in enumerate(self._leases):
            if later.deliveries > DELIVERIES:
                yield self._found(f"job {later.seq} was handed out {later.deliveries} times", later.answered_at)
            for before in self._leases[:at]:
                if before.seq != later.seq:
                    continue
                first, second = sorted((before, later), key=lambda lease: lease.deliveries)
                if self._lost_power(before.asked_at, later.answered_at):
                    continue  # it may have taken a claim
                if first.deliveries == second.deliveries:
                    yield self._found(f"job {first.seq} has two deliveries {first.deliveries}", later.answered_at)
                elif second.answered_at < first.ends and not self._is_over(first, second.answered_at):
                    yield self._found(f"job {first.seq} was given away during its lease", second.answered_at)

    def _is_over(self, lease: GivenLease, at: float) -> bool:
        """Return whether the lease may have ended by a time: its worker has returned it, or the node started again."""
        returned = any(
            lease.lease_id in asked.question["lease_ids"] and asked.asked_at <= at for asked in self._settled
        )
        return returned or any(lease.asked_at <= start <= at for start in self._starts)

    def _lost_power(self, begin: float, end: float) -> bool:
        return any(begin <= at <= end for at in self._power)

    def _late_acks(self) -> Iterator[Violation]:
        """A job is done only by the lease that it has."""
        for ack in self._acks:
            for seq, lease_id in _done_by(ack):
                leases = [lease for lease in self._leases if lease.seq == seq]
                own = max((lease.deliveries for lease in leases if lease.lease_id == lease_id), default=DELIVERIES)
                later = [lease.answered_at for lease in leases if lease.deliveries > own]
                if any(at < ack.asked_at and not self._lost_power(at, ack.answered_at) for at in later):
                    yield self._found(f"job {seq} was done by a lease that had ended", ack.answered_at)

    def _done_and_given(self) -> Iterator[Violation]:
        """A job that is done is neither given nor listed again."""
        done = {seq: ack.answered_at for ack in self._acks for seq, _ in _done_by(ack)}
        for lease in self._leases:
            if done.get(lease.seq, lease.asked_at) < lease.asked_at:
                yield self._found(f"job {lease.seq} was done, and given again", lease.answered_at)
        for listing in self._lists:
            if listing.path == QUEUE:
                for each in listing.answer["records"]:
                    if done.get(each["$seq"], listing.asked_at) < listing.asked_at:
                        yield self._found(f"job {each['$seq']} was done, and is listed", listing.answered_at)

    def _ends(self) -> Iterator[Violation]:
        """Each job is at last waiting, perhaps done, or once a dead letter; a dead letter was not done."""
        last = {listing.path: [each["data"]["number"] for each in listing.answer["records"]] for listing in self._lists}
        if not self._lists:
            return
        waiting, dead = last.get(QUEUE, []), last.get(DEAD_LETTERS, [])
        at = self._lists[-1].answered_at
        for number, count in Counter([*waiting, *dead]).items():
            if count > 1:
                yield self._found(f"job number {number} is there {count} times", at)
        seqs = {
            each["data"]["number"]: seq
            for asked in self._jobs
            for each, seq in zip(asked.question["records"], asked.answer["seqs"], strict=True)
        }
        perhaps = {seq for asked in self._settled if asked.kind == "ack" for seq in asked.question["seqs"]}
        done = {seq for ack in self._acks for seq, _ in _done_by(ack)}
        for number, seq in seqs.items():
            if number not in waiting and number not in dead and seq not in perhaps:
                yield self._found(f"job {seq} was acknowledged and lost", at)
            if seq in done and number in dead:
                yield self._found(f"job {seq} was done, and is a dead letter", at)


def _leases_of(asked: Asked) -> Iterator[GivenLease]:
    ends = asked.asked_at + asked.question["lease_ms"] / 1000
    for job in asked.answer["claimed"]:
        yield GivenLease(job["$seq"], job["lease_id"], job["deliveries"], asked.asked_at, asked.answered_at, ends)


def _done_by(ack: Asked) -> Iterator[tuple[int, str]]:
    """Yield the seqs that an ack has certainly ended, with their leases."""
    if not ack.is_good:
        return
    for seq, lease_id in zip(ack.question["seqs"], ack.question["lease_ids"], strict=True):
        if seq not in ack.answer["skipped"]:
            yield seq, lease_id
