"""Random concurrent operations on topics under a clock that is set: all stored counts always match the blocks."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from eventd.egress.routers.projection import Guarantee
from eventd.errors import EventdError
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.units import Publish
from eventd.log.queues.units import Ack, ClaimJobs, ClaimResult, Extend, JobHandle, JobRequest, Nack
from eventd.log.retention import rewrite
from eventd.log.retention.evict import EvictionLimits, RowRetention, delete_old_rows, evict
from eventd.log.topics.limits import sweep
from eventd.log.topics.topics import DeleteTopic, PutTopic
from eventd.log.topics.write import Write
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Database
from eventd.testing import ManualClock, draft
from federation.errors import MessageError
from tests.support.deleted import clear_all
from tests.support.routed import RoutedTopics
from tests.support.topic_sums import check_topics
from tests.support.topics import drafts_of

TOPICS = ("t0", "t1", "t2", "t3")
QUEUES = ("q0", "q1")
BOOKS = RowRetention(ids=SECOND, batches=SECOND, dead_letters=SECOND, receipts=SECOND)


class Fault(Exception):
    """One of our own."""


class Broken(DeleteTopic):
    """Fails when all others of its transaction have written: then they are tried one by one."""

    def finish(self, tx: Any, appended: Any) -> Any:
        raise Fault


class Storm:
    """All that can be done to topics, at random."""

    def __init__(self, routed: RoutedTopics, clock: ManualClock, chance: random.Random, group: int) -> None:
        self.routed, self.clock, self.chance, self.group = routed, clock, chance, group
        self.jobs: list[int] = []
        self.acts = [self.write] * 4 + [self.set, self.remove, self.delete, self.claim, self.settle, self.publish]
        self.acts += [self.break_, self.route, self.unroute, self.wait, self.step, self.keep_house]

    @property
    def log(self) -> EventLog:
        return self.routed.log

    async def act(self) -> None:
        with suppress(EventdError, MessageError, Fault):  # what is asked for makes no sense every time
            await self.chance.choice(self.acts)()

    def config(self, kind: Any) -> TopicConfig:
        some = self.chance.choice
        given: dict[str, Any] = {
            "ttl_ms": some([0, 0, 1, 50]),
            "cap_records": some([0, 0, 1, 20]),
            "cap_bytes": some([0, 0, 0, 60]),
            "discard": some(["old", "old", "reject"]),
            "durability": some(["fsync", "disk", "memory"]),
            "max_deliveries": some([0, 1]),
            "dead_letter": some([None, "t0", "q1", "group:g"]),
        }
        return TopicConfig(type=kind, lease_ms=100, **given)

    async def write(self) -> None:
        some = self.chance.choice
        told = [
            {"data": self.chance.randrange(10**6), "node": some("xy"), "tag": some("ab")}
            for _ in range(some([1, 9, 40]))
        ]
        key, most = some(["", "", "k"]), some([0, 0, 9999])
        unit = Write(some(TOPICS + QUEUES), drafts_of(told), flushes=self.log.flushes, key=key, max_bytes=most)
        await self.log.submit(unit)

    async def set(self) -> None:
        name = self.chance.choice(TOPICS + QUEUES)
        config = self.config("queue" if name in QUEUES else "log")
        await self.log.submit(PutTopic(name, config, max_topics=0, random=os.urandom(16)))

    async def remove(self) -> None:
        await self.log.submit(DeleteTopic(self.chance.choice(TOPICS), if_empty=self.chance.random() < 0.5))
        assert self.routed.routing is not None
        self.routed.routing.changed()

    async def delete(self) -> None:
        before, match = self.chance.choice([(None, "a"), (self.chance.randrange(200), None), (50, "b")])
        await self.routed.delete(self.chance.choice(TOPICS + QUEUES), before=before, match=match)

    async def claim(self) -> None:
        wishes = [JobRequest(node, self.chance.randint(1, 9)) for node in "vw"]
        claimed = await self.log.submit(ClaimJobs(self.chance.choice(QUEUES), wishes, os.urandom))
        assert isinstance(claimed, ClaimResult)
        self.jobs += [job.seq for jobs in claimed.jobs for job in jobs]

    async def settle(self) -> None:
        queue, node = self.chance.choice(QUEUES), self.chance.choice("vw")
        handles = [JobHandle(self.chance.choice(self.jobs or [1])) for _ in range(9)]
        await self.log.submit(
            self.chance.choice(
                [
                    Ack(queue, node, handles, flushes=self.log.flushes),
                    Nack(queue, node, handles, delay_ms=self.chance.choice([0, 50])),
                    Extend(queue, node, handles, lease_ms=500),
                ]
            )
        )

    async def publish(self) -> None:
        await self.log.submit(Publish(self.group, [draft(f"e{self.chance.randrange(100)}") for _ in range(5)]))

    async def break_(self) -> None:
        await self.log.submit(Broken("nothing"))

    async def route(self) -> None:
        source, dest = self.chance.sample([*TOPICS, "q0", "group:g"], 2)
        how: dict[str, Any] = self.chance.choice(
            [{}, {"fan_in": True}, {"guarantee": Guarantee.EXACTLY_ONCE}, {"allow_cycle": True}]
        )
        await self.routed.route(f"{source}->{dest}", **how)

    async def unroute(self) -> None:
        source, dest = self.chance.sample(TOPICS, 2)
        await self.routed.remove(f"{source}->{dest}")

    async def wait(self) -> None:
        self.clock.advance(self.chance.choice([0.001, 0.03, 0.2, 2]))

    async def step(self) -> None:
        self.clock.set_wall(self.clock.now() + self.chance.choice([-3600, -1, 1, 3600]) * SECOND)

    async def keep_house(self) -> None:
        write, now = self.log.database.write, self.clock.now()
        chores: list[Callable[[], Awaitable[object]]] = [
            lambda: write(sweep, now),
            lambda: clear_all(self.log.database, now=now, chunk=50),
            lambda: write(delete_old_rows, BOOKS, now=now),
            lambda: write(evict, self.group, EvictionLimits(max_records=10), now=now),
        ]
        await self.chance.choice(chores)()


async def _some_cancelled(acts: list[Awaitable[None]], chance: random.Random) -> None:
    tasks = [asyncio.ensure_future(act) for act in acts]
    if chance.random() < 0.2:
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
    for done in await asyncio.gather(*tasks, return_exceptions=True):
        if done is not None and not isinstance(done, asyncio.CancelledError):
            raise done


@pytest.mark.parametrize("piece", [2, 32])
async def test_the_books_are_true_after_any_burst(
    log: EventLog,
    database: Database,
    clock: ManualClock,
    piece: int,
    chance: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rewrite, "PIECE_RECORDS", piece)
    group = await log.topic("group:g")
    routed = RoutedTopics(log)
    await routed.start()
    try:
        storm = Storm(routed, clock, chance, group)
        for name in QUEUES:
            await routed.make(name, type="queue", lease_ms=100)
        for burst in range(12):
            await _some_cancelled([storm.act() for _ in range(chance.choice([1, 5, 25]))], chance)
            await database.read(check_topics)
            if burst % 5 == 4:
                await routed.stop()
                await routed.start()
    finally:
        await routed.stop()
