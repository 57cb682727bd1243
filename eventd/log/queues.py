"""Queues: jobs are claimed by competing nodes for a time, and acked, given back, or kept for longer.

A queue is a topic; a job is one of its records. A claim takes the jobs that came back, the oldest first, and then those
that were never handed out. Nothing is kept in memory: a lease is a line in the books, written before it is answered, so
no job is ever held by two. How a unit is told what it must not do: see `eventd.log.refusals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from eventd.errors import Invalid
from eventd.log.commit import Transaction
from eventd.log.jobs import Books, DeadLetters, Found, require_queue
from eventd.log.leases import Jobs, Lease, add_leases, extend_leases, free, mark_done, read_leases, renew_leases
from eventd.log.topics import TopicLine
from eventd.log.values import NOTHING, Appended, Drafts

MOST_NODE_BYTES = 128
LEASE_MS = (100, 86_400_000)
"""The shortest and the longest lease."""


class Wish(NamedTuple):
    """What one node asks for: at most `most` jobs for `lease_ms` milliseconds, None for as long as the queue says."""

    node: str
    most: int
    lease_ms: int | None = None


class Job(NamedTuple):
    """A job that was handed out. `deadline` and `recorded_at` in microseconds; `body` in its stored form."""

    seq: int
    lease_id: str
    deadline: int
    recorded_at: int
    deliveries: int
    body: str


class Claimed(NamedTuple):
    """For each wish its jobs, in order, and how the queue stands afterwards."""

    topic_id: int
    jobs: Sequence[Sequence[Job]]
    standing: Jobs


class Gather(NamedTuple):
    """The queue wants claims to be gathered for so many milliseconds, and then to be made together."""

    jitter_ms: int


class Claim:
    """Hand out jobs: to several nodes in turn, one to each, as far as there are any.

    Result: `Claimed`, or, where the queue gathers claims and these were not `gathered`, `Gather`. Jobs that were handed
    out as often as the queue allows go to its dead letters instead. Raises `TopicNotFound`, `NotAQueue`, and `Invalid`
    for a node without a name.
    """

    cursor = None
    durable = False  # a queue may ask for it
    background = False

    def __init__(
        self, name: str, wishes: Sequence[Wish], random: Callable[[int], bytes], *, gathered: bool = True
    ) -> None:
        self._name = name
        self._wishes = wishes
        self._random = random
        self._gathered = gathered
        self._books: Books | None = None
        self._dead = DeadLetters()
        self._jobs: list[list[Job]] = []
        self._jitter_ms = 0

    @property
    def topic_id(self) -> int | None:
        return self._dead.topic_id

    @property
    def weight(self) -> int:
        return max(1, sum(wish.most for wish in self._wishes) // 10)

    def admit(self, tx: Transaction) -> Drafts:
        line = require_queue(tx, self._name)
        for wish in self._wishes:
            require_node(wish.node)
        self._books, self._dead = None, DeadLetters()
        self._jitter_ms = line.config.claim_jitter_ms
        if self._jitter_ms and not self._gathered:
            return NOTHING
        books = self._books = Books.open(tx, line)
        if books.line.config.leases_durable:
            tx.must_flush = True
        found = books.find(sum(wish.most for wish in self._wishes), self._dead)
        self._jobs = self._hand_out(books, found, tx.now)
        return self._dead.admit(tx, books, self._random)

    def _hand_out(self, books: Books, found: Sequence[Found], now: int) -> list[list[Job]]:
        """Deal what was found, and write the leases."""
        hands: list[list[Job]] = [[] for _ in self._wishes]
        secret = self._random(8).hex()
        fresh: list[Lease] = []
        renewed: list[Lease] = []
        for index, job in zip(_turns(self._wishes), found, strict=False):
            wish = self._wishes[index]
            deadline = now + 1000 * bounded(wish.lease_ms, books.line)
            lease = Lease(job.seq, wish.node, f"lease_{secret}{job.seq:x}", deadline + 1, job.deliveries + 1, job.size)
            (renewed if job.deliveries else fresh).append(lease)
            hands[index].append(Job(job.seq, lease.lease_id, deadline, job.recorded_at, lease.deliveries, job.body))
        add_leases(books.conn, books.topic_id, fresh)
        renew_leases(books.conn, books.topic_id, renewed)
        books.held += len(fresh) + len(renewed)
        return hands

    def finish(self, tx: Transaction, appended: Appended) -> Claimed | Gather:
        if self._books is None:
            return Gather(self._jitter_ms)
        self._dead.finish(tx, appended)
        return Claimed(self._books.topic_id, self._jobs, self._books.settle())


def _turns(wishes: Sequence[Wish]) -> Sequence[int]:
    """Whose turn it is, one after the other, until nobody wishes for more."""
    rounds = max((wish.most for wish in wishes), default=0)
    return [index for turn in range(rounds) for index, wish in enumerate(wishes) if turn < wish.most]


def bounded(lease_ms: int | None, line: TopicLine) -> int:
    """How long a lease of the queue is, in milliseconds."""
    return line.config.lease_ms if lease_ms is None else max(LEASE_MS[0], min(LEASE_MS[1], lease_ms))


def require_node(node: str) -> None:
    """Raises `Invalid` for what cannot hold a job."""
    if not node:
        raise Invalid("`node` is empty", hint="say who is to hold the jobs")
    if len(node.encode()) > MOST_NODE_BYTES:
        raise Invalid(f"`node` is longer than {MOST_NODE_BYTES} bytes")


class Handle(NamedTuple):
    """A job as its holder names it. `lease_id` empty: whatever lease the node has on it."""

    seq: int
    lease_id: str = ""


class Settled(NamedTuple):
    """The jobs a request was about: those it was `done` to, and those its node does not hold, both in its order.

    `deadline` is that of leases that go on, in microseconds. `room`: what the queue had refused may find room now.
    """

    topic_id: int
    done: Sequence[int]
    skipped: Sequence[int]
    standing: Jobs
    deadline: int
    room: bool


class _Settling:
    """What holders do to their jobs. Result: `Settled`. Raises `TopicNotFound` and `NotAQueue`."""

    topic_id = None
    cursor = None
    durable = False
    background = False

    def __init__(self, name: str, node: str, handles: Sequence[Handle]) -> None:
        self._name = name
        self._node = node
        self._handles = handles
        self._settled: Callable[[], Settled] | None = None

    @property
    def weight(self) -> int:
        return max(1, len(self._handles) // 10)

    def admit(self, tx: Transaction) -> Drafts:
        books = Books.open(tx, require_queue(tx, self._name))
        found = read_leases(books.conn, books.topic_id, sorted({handle.seq for handle in self._handles}))
        held: dict[int, Lease] = {}
        skipped: list[int] = []
        for seq, lease_id in self._handles:
            lease = found.get(seq)
            if lease is not None and seq not in held and lease.is_held(self._node, lease_id, tx.now):
                held[seq] = lease
            else:
                skipped.append(seq)
        if books.line.config.leases_durable:
            tx.must_flush = True
        deadline = self._apply(tx, books, held)
        room = books.line.config.discard == "reject"
        self._settled = lambda: Settled(books.topic_id, [*held], skipped, books.settle(), deadline, room)
        return NOTHING

    def _apply(self, tx: Transaction, books: Books, held: dict[int, Lease]) -> int:
        """Write it; the deadline of leases that go on, in microseconds."""
        raise NotImplementedError

    def finish(self, tx: Transaction, appended: Appended) -> Settled:
        assert self._settled is not None
        return self._settled()


class Ack(_Settling):
    """Jobs are done: their records are deleted, for good."""

    def _apply(self, tx: Transaction, books: Books, held: dict[int, Lease]) -> int:
        if books.line.durability == "fsync":
            tx.must_flush = True
        mark_done(books.conn, books.topic_id, [*held])
        books.remove([*held.values()])
        books.held -= len(held)
        return 0


class Nack(_Settling):
    """Jobs are given back, to be handed out again after `delay_ms` milliseconds."""

    def __init__(self, name: str, node: str, handles: Sequence[Handle], *, delay_ms: int = 0) -> None:
        super().__init__(name, node, handles)
        self._delay_ms = delay_ms

    def _apply(self, tx: Transaction, books: Books, held: dict[int, Lease]) -> int:
        free_at = tx.now + 1000 * self._delay_ms if self._delay_ms else 0
        free(books.conn, books.topic_id, [*held], free_at)
        books.held -= len(held)
        books.delayed += len(held) if free_at else 0
        return 0


class Extend(_Settling):
    """Leases end `lease_ms` milliseconds from now."""

    def __init__(self, name: str, node: str, handles: Sequence[Handle], *, lease_ms: int) -> None:
        super().__init__(name, node, handles)
        self._lease_ms = lease_ms

    def _apply(self, tx: Transaction, books: Books, held: dict[int, Lease]) -> int:
        deadline = tx.now + 1000 * bounded(self._lease_ms, books.line)
        extend_leases(books.conn, books.topic_id, [*held], deadline + 1)
        return deadline
