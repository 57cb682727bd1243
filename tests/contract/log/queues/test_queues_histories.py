"""Random histories of workers at a queue: no job is lost, and none has two holders at a time."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.queues.units import Ack, ClaimJobs, ClaimResult, Extend, JobHandle, JobRequest, Nack, SettlementResult
from eventd.store.rows.leases import JobCounts
from eventd.testing import ManualClock
from tests.support.queues import Queues, seqs

STEPS = 50
NODES = ["a", "b", "c"]
LEASE_MS = 1500
MOST_DELIVERIES = 3


@dataclass
class Held:
    """A job as the model has it. `free_at` None: it was never handed out."""

    tag: str
    node: str = ""
    lease_id: str = ""
    free_at: int | None = None
    deliveries: int = 0

    def is_hidden(self, now: int) -> bool:
        """Whether it is held, or delayed."""
        return self.free_at is not None and now < self.free_at


@dataclass
class Model:
    """A queue as simple as it can be."""

    gives_up: bool
    jobs: dict[int, Held] = field(default_factory=dict)
    written: int = 0
    letters: list[int] = field(default_factory=list)

    def put(self, number: int, tag: str) -> None:
        for _ in range(number):
            self.written += 1
            self.jobs[self.written] = Held(tag)

    def claim(self, wishes: list[JobRequest], secret: bytes, now: int) -> list[list[int]]:
        """The seqs each of them gets."""
        hands: list[list[int]] = [[] for _ in wishes]
        turns = [index for turn in range(99) for index, wish in enumerate(wishes) if turn < wish.most]
        back = [seq for seq, job in self.jobs.items() if job.free_at is not None and not job.is_hidden(now)]
        fresh = [seq for seq, job in self.jobs.items() if job.free_at is None]
        for seq in [*back, *fresh]:
            if not turns:
                break
            job = self.jobs[seq]
            if self.gives_up and job.deliveries >= MOST_DELIVERIES:
                del self.jobs[seq]
                self.letters.append(seq)
                continue
            wish = wishes[turns[0]]
            hands[turns.pop(0)].append(seq)
            job.node, job.lease_id = wish.node, f"lease_{secret.hex()}{seq:x}"
            job.free_at, job.deliveries = now + 1000 * (wish.lease_ms or LEASE_MS) + 1, job.deliveries + 1
        return hands

    def split(self, node: str, handles: list[JobHandle], now: int) -> tuple[list[int], list[int]]:
        """The seqs the node holds, and the others."""
        held: list[int] = []
        skipped: list[int] = []
        for seq, lease_id in handles:
            job = self.jobs.get(seq)
            mine = job is not None and job.node == node and job.is_hidden(now) and lease_id in ("", job.lease_id)
            (held if mine and seq not in held else skipped).append(seq)
        return held, skipped

    def remove(self, gone: list[int]) -> None:
        for seq in gone:
            del self.jobs[seq]

    def hold(self, held: list[int], node: str, free_at: int) -> None:
        for seq in held:
            self.jobs[seq].node, self.jobs[seq].free_at = node, free_at

    def count(self, now: int) -> JobCounts:
        hidden = [job for job in self.jobs.values() if job.is_hidden(now)]
        return JobCounts(len(self.jobs) - len(hidden), sum(bool(job.node) for job in hidden), len(self.letters))


class History:
    """A queue and its model, to which the same happens."""

    def __init__(self, queues: Queues, clock: ManualClock, chance: random.Random, *, gives_up: bool) -> None:
        self.queues = queues
        self.clock = clock
        self.chance = chance
        self.model = Model(gives_up)

    async def step(self) -> None:
        kind = self.chance.random()
        if kind < 0.2:
            number, tag = self.chance.choice([1, 1, 3, 40]), self.chance.choice("xy")
            await self.queues.put("q", *range(number), tag=tag)
            self.model.put(number, tag)
        elif kind < 0.3:
            self.clock.advance(self.chance.choice([0.05, 1, 2.5]))
        elif kind < 0.36:
            await self.delete()
        else:  # several at once share a transaction
            for answer, expected in [self.some_work() for _ in range(self.chance.choice([1, 1, 1, 2, 4]))]:
                assert told(await answer) == expected

    async def delete(self) -> None:
        before, tag = self.chance.randint(1, self.model.written + 1), self.chance.choice(["x", None, None])
        gone = [seq for seq, job in self.model.jobs.items() if seq < before and tag in (None, job.tag)]
        done = await self.queues.delete("q", before=before, match=tag)
        assert done.deleted == len(gone)
        for seq in gone:
            del self.model.jobs[seq]

    def some_work(self) -> tuple[asyncio.Future[Any], Any]:
        """Hand over what some worker does; what it is answered, and should be."""
        log, chance, now = self.queues.log, self.chance, self.clock.now()
        kind = chance.random()
        if kind < 0.45:
            wishes = [self.some_wish() for _ in range(chance.choice([1, 1, 3]))]
            secret = chance.randbytes(8)
            claiming = log.submit(ClaimJobs("q", wishes, lambda _: secret))
            return claiming, self.model.claim(wishes, secret, now)
        node = chance.choice(NODES)
        handles = self.some_handles(node)
        held, skipped = self.model.split(node, handles, now)
        if kind < 0.8:
            self.model.remove(held)
            return log.submit(Ack("q", node, handles, flushes=log.flushes)), (held, skipped)
        if kind < 0.93:
            delay_ms = chance.choice([0, 0, 700, 3000])
            self.model.hold(held, "", now + 1000 * delay_ms if delay_ms else 0)
            return log.submit(Nack("q", node, handles, delay_ms=delay_ms)), (held, skipped)
        lease_ms = chance.choice([100, 2000])
        self.model.hold(held, node, now + 1000 * lease_ms + 1)
        return log.submit(Extend("q", node, handles, lease_ms=lease_ms)), (held, skipped)

    def some_wish(self) -> JobRequest:
        most = self.chance.choice([0, 1, 1, 2, 5, 30])
        return JobRequest(self.chance.choice(NODES), most, self.chance.choice([None, 300]))

    def some_handles(self, node: str) -> list[JobHandle]:
        """Mostly what the node holds, under its leases; and what it does not."""
        mine = [(seq, job.lease_id) for seq, job in self.model.jobs.items() if job.node == node]
        chosen = self.chance.sample(mine, self.chance.randint(0, len(mine)))
        handles = [JobHandle(seq, self.chance.choice([lease_id, lease_id, "", "lease_0"])) for seq, lease_id in chosen]
        others = self.chance.choice([0, 0, 2])
        return handles + [JobHandle(self.chance.randint(0, self.model.written + 2)) for _ in range(others)]

    async def check(self) -> None:
        """The queue is as the model says."""
        queues, model = self.queues, self.model
        await queues.check("q")
        assert await queues.jobs("q") == model.count(self.clock.now())
        found = await queues.slice("q", limit=100_000, max_bytes=1 << 30)
        assert (list(found.seqs), found.tombstone) == ([*model.jobs], None)
        assert (await queues.standing("q")).count == len(model.jobs)
        if model.letters:
            letters = await queues.page("dlq", limit=100_000)
            assert [int(letter["meta"]["$dead_letter_src_seq"]) for letter in letters] == model.letters


def told(answer: ClaimResult | SettlementResult) -> Any:
    """What an answer says of jobs."""
    if isinstance(answer, ClaimResult):
        return [seqs(hand) for hand in answer.jobs]
    return list(answer.done), list(answer.skipped)


@pytest.mark.parametrize("gives_up", [False, True])
async def test_a_queue_is_what_its_model_is(
    log: EventLog, clock: ManualClock, chance: random.Random, gives_up: bool
) -> None:
    queues = Queues(log)
    letters = {"max_deliveries": MOST_DELIVERIES, "dead_letter": "dlq"} if gives_up else {}
    await queues.make("q", lease_ms=LEASE_MS, **letters)
    history = History(queues, clock, chance, gives_up=gives_up)
    for _ in range(STEPS):
        await history.step()
        await history.check()


async def test_every_job_is_worked_on_once_however_many_work(log: EventLog) -> None:
    queues, done = Queues(log), list[int]()
    await queues.make("q")
    await queues.put("q", *range(300))

    async def work(node: str, most: int) -> None:
        while jobs := await queues.claim("q", node, most):
            done.extend(seqs(jobs))
            acked = await queues.ack("q", node, *jobs)
            assert list(acked.done) == seqs(jobs)

    works = [work(f"w{number}", number % 4 + 1) for number in range(20)]
    await asyncio.wait([asyncio.ensure_future(one) for one in works])
    assert sorted(done) == [*range(1, 301)]
    assert await queues.jobs("q") == JobCounts(0, 0, 0)
    await queues.check("q")
