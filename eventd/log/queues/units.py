"""Units of queues: competing clients claim jobs for a time, and ack or nack them, or extend their leases.

A queue is a topic; a job is one of its records. The `node` of a claim is the client's name. A claim takes the returned
jobs, the oldest first, and then those that were never claimed. Nothing is kept in memory: a lease is a row, written
before the claim is answered, so a job never has two leases at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from eventd.errors import Invalid
from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.durability import DurabilityCache
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import NOTHING, AppendResult, Drafts
from eventd.log.queues.transaction import AvailableJob, DeadLetters, QueueTransaction, read_queue
from eventd.log.topics.topics import NO_CEILINGS, Ceilings
from eventd.store.rows.leases import (
    LEASE_MS,
    JobCounts,
    Lease,
    add_leases,
    extend_leases,
    first_end,
    free,
    mark_done,
    read_leases,
    renew_leases,
)
from federation.event import is_plain

MOST_NODE_BYTES = 128
MOST_SEQ = 2**63 - 1


class JobRequest(NamedTuple):
    """A request of the client `node`: up to `most` jobs for `lease_ms` milliseconds; None: for the queue's default."""

    node: str
    most: int
    lease_ms: int | None = None


class Job(NamedTuple):
    """A claimed job. `deliveries`: how often it was claimed, this time included. `body` is in its stored form.

    `deadline`, the end of the lease, and `recorded_at` are wall-clock times in microseconds.
    """

    seq: int
    lease_id: str
    deadline: int
    recorded_at: int
    deliveries: int
    body: str


class ClaimResult(NamedTuple):
    """The jobs for each request, in order, and the counts of the queue afterwards.

    If `gather_ms` is not 0, no job was claimed and the counts are 0: the caller must collect claims on this queue for
    so many milliseconds, and then submit them together.
    """

    topic_id: int
    jobs: Sequence[Sequence[Job]]
    standing: JobCounts
    gather_ms: int = 0


class _ClaimUnit:
    """Base of the units that assign jobs to requests. Raises `TopicNotFound` and `NotAQueue`."""

    cursor = None
    durable = False  # a queue may require it
    turn = Turn.FRONT
    is_brief = False

    def __init__(
        self, queue: str | int, wishes: Sequence[JobRequest], random: Callable[[int], bytes], ceilings: Ceilings
    ) -> None:
        self._queue = queue
        self._wishes = wishes
        self._random = random
        self._ceilings = ceilings
        self._dead = DeadLetters(ceilings)
        self._jobs: list[list[Job]] = []

    @property
    def topic_id(self) -> int | None:
        return self._dead.topic_id

    @property
    def weight(self) -> int:
        return max(1, sum(wish.most for wish in self._wishes) // 10)

    def _deal(self, tx: Transaction, line: TopicRow) -> tuple[QueueTransaction, Drafts]:
        """Claim jobs; return the transaction's changes to the queue, and the drafts of dead letters."""
        queue, self._dead = QueueTransaction.open(tx, line), DeadLetters(self._ceilings)
        if line.config.leases_durable:
            tx.must_flush = True
        found = queue.find(sum(wish.most for wish in self._wishes), self._dead)
        self._jobs = self._hand_out(tx, queue, found)
        return queue, self._dead.admit(tx, queue, self._random)

    def _hand_out(self, tx: Transaction, queue: QueueTransaction, found: Sequence[AvailableJob]) -> list[list[Job]]:
        """Write the leases, and return the jobs for each request."""
        hands: list[list[Job]] = [[] for _ in self._wishes]
        secret = self._random(8).hex()
        fresh: list[Lease] = []
        renewed: list[Lease] = []
        for index, job in zip(_turns(self._wishes), found, strict=False):
            wish = self._wishes[index]
            length = 1000 * bounded(wish.lease_ms, queue.line)
            deadline, free_at = tx.now + length, tx.steady + length + 1
            lease_id, deliveries = f"lease_{secret}{job.seq:x}", job.deliveries + 1
            lease = Lease(job.seq, wish.node, lease_id, free_at, deliveries, job.size, length + 1)
            (renewed if job.deliveries else fresh).append(lease)
            hands[index].append(Job(job.seq, lease.lease_id, deadline, job.recorded_at, lease.deliveries, job.body))
        add_leases(queue.conn, queue.topic_id, fresh)
        renew_leases(queue.conn, queue.topic_id, renewed)
        queue.held += len(fresh) + len(renewed)
        return hands


def _turns(wishes: Sequence[JobRequest]) -> Sequence[int]:
    """Return for each next job the index of the request that gets it: one each in turn, until all are met."""
    rounds = max((wish.most for wish in wishes), default=0)
    return [index for turn in range(rounds) for index, wish in enumerate(wishes) if turn < wish.most]


def bounded(lease_ms: int | None, line: TopicRow) -> int:
    """Return the milliseconds of a lease: as requested, but within `LEASE_MS`; for None, the queue's default."""
    return line.config.lease_ms if lease_ms is None else max(LEASE_MS[0], min(LEASE_MS[1], lease_ms))


def require_node(node: str) -> None:
    """Raise `Invalid` for a client name (`node`) that is empty, too long, or cannot be stored, as with U+0000."""
    if not node:
        raise Invalid("`node` is empty", hint="name the client that claims the jobs")
    if not is_plain(node) or len(node.encode()) > MOST_NODE_BYTES:
        problem = f"`node` is over {MOST_NODE_BYTES} bytes, or contains U+0000 or bytes that are not UTF-8"
        raise Invalid(problem, hint="shorten the name of the client, and leave out such characters")


class ClaimJobs(_ClaimUnit):
    """Assign jobs to several requests in turn, one to each, until all are met or no job is left.

    Result: `ClaimResult`. Also raises `Invalid` as `require_node` does. `gathered`: the claims were collected already;
    otherwise, a queue with `claim_jitter_ms` only answers with `gather_ms`. Jobs that were claimed as often as a queue
    with a topic of dead letters allows are written to that topic instead, or delayed if it or `ceilings` refuse them.
    """

    def __init__(
        self,
        queue: str | int,
        wishes: Sequence[JobRequest],
        random: Callable[[int], bytes],
        *,
        gathered: bool = True,
        ceilings: Ceilings = NO_CEILINGS,
    ) -> None:
        super().__init__(queue, wishes, random, ceilings)
        self._gathered = gathered
        self._finish: Callable[[], ClaimResult] | None = None

    def admit(self, tx: Transaction) -> Drafts:
        line = read_queue(tx.conn, self._queue)
        for wish in self._wishes:
            require_node(wish.node)
        jitter_ms = line.config.claim_jitter_ms
        if jitter_ms and not self._gathered:
            self._finish = lambda: ClaimResult(line.id, [[] for _ in self._wishes], JobCounts(0, 0, 0), jitter_ms)
            return NOTHING
        queue, letters = self._deal(tx, line)
        self._finish = lambda: ClaimResult(line.id, self._jobs, queue.settle())
        return letters

    def finish(self, tx: Transaction, appended: AppendResult) -> ClaimResult:
        assert self._finish is not None
        self._dead.finish(tx)
        return self._finish()


class JobHolder(NamedTuple):
    """A client that gets jobs over SSE: how many it wants to hold at a time, and its lease ids, by seq."""

    wish: JobRequest
    held: Mapping[int, str]


class RefillResult(NamedTuple):
    """For each holder, in order, the seqs of the jobs it still holds (`kept`), and its new jobs.

    `look_at`: when the first lease or delay of the queue ends (microseconds of the steady clock), perhaps in the past;
    None: there is none.
    """

    kept: Sequence[frozenset[int]]
    jobs: Sequence[Sequence[Job]]
    look_at: int | None


class Refill(_ClaimUnit):
    """Assign jobs to holders in turn until each holds as many as it wants, or none are left. Result: `RefillResult`."""

    def __init__(
        self,
        queue: str | int,
        holders: Sequence[JobHolder],
        random: Callable[[int], bytes],
        *,
        ceilings: Ceilings = NO_CEILINGS,
    ) -> None:
        super().__init__(queue, [holder.wish for holder in holders], random, ceilings)
        self._holders = holders
        self._kept: list[frozenset[int]] = []
        self._transaction: QueueTransaction | None = None

    def admit(self, tx: Transaction) -> Drafts:
        line = read_queue(tx.conn, self._queue)
        found = read_leases(tx.conn, line.id, sorted({seq for holder in self._holders for seq in holder.held}))
        wishes: list[JobRequest] = []
        self._kept = []
        for wish, held in self._holders:
            leases = ((found.get(seq), lease_id) for seq, lease_id in held.items())
            kept = [lease.seq for lease, lease_id in leases if lease and lease.is_held(wish.node, lease_id, tx.steady)]
            self._kept.append(frozenset(kept))
            wishes.append(wish._replace(most=max(0, wish.most - len(kept))))
        self._wishes = wishes
        self._transaction, letters = self._deal(tx, line)
        return letters

    def finish(self, tx: Transaction, appended: AppendResult) -> RefillResult:
        assert self._transaction is not None
        self._dead.finish(tx)
        self._transaction.settle()
        return RefillResult(self._kept, self._jobs, first_end(tx.conn, self._transaction.topic_id))


class JobHandle(NamedTuple):
    """A job as its holder names it. An empty `lease_id` stands for any lease of its client on the job."""

    seq: int
    lease_id: str = ""


class SettlementResult(NamedTuple):
    """The seqs of a request, in its order: settled (`done`), and `skipped` as repeated or not held by its client.

    `deadline` is the new end of extended leases (wall clock, microseconds); 0 for any other settlement. `room`: the
    queue refuses writes when it is full (`discard: reject`), so a waiting writer may have room now; it need not,
    because the settlement may have freed nothing.
    """

    topic_id: int
    done: Sequence[int]
    skipped: Sequence[int]
    standing: JobCounts
    deadline: int
    room: bool


class _SettlementUnit(ABC):
    """Base of the units that ack, nack or extend jobs that one client holds. Result: `SettlementResult`.

    Jobs that the client does not hold are skipped. Raises `TopicNotFound` and `NotAQueue`.
    """

    topic_id = None
    cursor = None
    turn = Turn.FRONT
    is_brief = False

    def __init__(self, queue: str | int, node: str, handles: Sequence[JobHandle]) -> None:
        self._queue = queue
        self._node = node
        self._handles = handles
        self._settled: Callable[[], SettlementResult] | None = None

    @property
    def durable(self) -> bool:
        return False  # a queue may require it

    @property
    def weight(self) -> int:
        return max(1, len(self._handles) // 10)

    def admit(self, tx: Transaction) -> Drafts:
        queue = QueueTransaction.open(tx, read_queue(tx.conn, self._queue))
        found = read_leases(queue.conn, queue.topic_id, sorted({seq for seq, _ in self._handles if seq <= MOST_SEQ}))
        held: dict[int, Lease] = {}
        skipped: list[int] = []
        for seq, lease_id in self._handles:
            lease = found.get(seq)
            if lease is not None and seq not in held and lease.is_held(self._node, lease_id, tx.steady):
                held[seq] = lease
            else:
                skipped.append(seq)
        if queue.line.config.leases_durable:
            tx.must_flush = True
        deadline = self._apply(tx, queue, held)
        room = queue.line.config.discard == "reject"
        self._settled = lambda: SettlementResult(queue.topic_id, [*held], skipped, queue.settle(), deadline, room)
        return NOTHING

    @abstractmethod
    def _apply(self, tx: Transaction, queue: QueueTransaction, held: dict[int, Lease]) -> int:
        """Write the settlement of the `held` jobs; return the new end of extended leases in microseconds, else 0."""

    def finish(self, tx: Transaction, appended: AppendResult) -> SettlementResult:
        assert self._settled is not None
        return self._settled()


class Ack(_SettlementUnit):
    """Finish jobs: readers no longer see their records, which are removed at once or by a later compaction."""

    def __init__(self, queue: str, node: str, handles: Sequence[JobHandle], *, flushes: DurabilityCache) -> None:
        super().__init__(queue, node, handles)
        self._name = queue
        self._flushes = flushes

    @property
    def durable(self) -> bool:
        return self._flushes.wanted(self._name)

    def _apply(self, tx: Transaction, queue: QueueTransaction, held: dict[int, Lease]) -> int:
        self._flushes.learn(queue.line.name, queue.line.durability)
        if queue.line.durability == "fsync":
            tx.must_flush = True
        mark_done(queue.conn, queue.topic_id, [*held])
        queue.remove([*held.values()])
        queue.held -= len(held)
        return 0


class Nack(_SettlementUnit):
    """Return jobs to the queue, to be claimed again after `delay_ms` milliseconds; 0: at once."""

    def __init__(self, queue: str | int, node: str, handles: Sequence[JobHandle], *, delay_ms: int = 0) -> None:
        super().__init__(queue, node, handles)
        self._delay_ms = delay_ms

    def _apply(self, tx: Transaction, queue: QueueTransaction, held: dict[int, Lease]) -> int:
        delay = 1000 * self._delay_ms
        free_at = tx.steady + delay if delay else 0
        free(queue.conn, queue.topic_id, [*held], free_at, delay)
        queue.held -= len(held)
        queue.delayed += len(held) if free_at else 0
        return 0


class Extend(_SettlementUnit):
    """Set the end of leases to `lease_ms` milliseconds (within `LEASE_MS`) from now, even if it was later before."""

    def __init__(self, queue: str | int, node: str, handles: Sequence[JobHandle], *, lease_ms: int) -> None:
        super().__init__(queue, node, handles)
        self._lease_ms = lease_ms

    def _apply(self, tx: Transaction, queue: QueueTransaction, held: dict[int, Lease]) -> int:
        length = 1000 * bounded(self._lease_ms, queue.line)
        extend_leases(queue.conn, queue.topic_id, [*held], tx.steady + length + 1, length + 1)
        return tx.now + length


class Release(_SettlementUnit):
    """End the delays of jobs that no client holds: they can be claimed at once."""

    def __init__(self, queue: str | int, seqs: Sequence[int]) -> None:
        super().__init__(queue, "", [*map(JobHandle, seqs)])

    def _apply(self, tx: Transaction, queue: QueueTransaction, held: dict[int, Lease]) -> int:
        free(queue.conn, queue.topic_id, [*held])
        queue.delayed -= len(held)
        return 0
