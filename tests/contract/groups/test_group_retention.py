"""The retention of a group while clients write: it yields to them, and reaches the limits all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest

from eventd.groups.retention import KEEPS_UP, STEPS, EvictionRound, apply_retention, eviction_pace
from eventd.log.core.eventlog import EventLog
from eventd.log.core.pace import Pace
from eventd.log.core.topic_row import read_topic
from eventd.log.retention.evict import CHUNK
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Connection, Database
from eventd.testing import ManualClock, draft
from tests.support.group_ledger import GroupLedger

T = TypeVar("T")


class GrowingPace(Pace):
    """After a step a client writes `growth` events, and `after_step` is called. `behind`: whether each step was."""

    def __init__(self, log: EventLog, topic: int, growth: list[int]) -> None:
        super().__init__(log, size=10, least=10, most=10)
        self.behind: list[bool] = []
        self._topic = topic
        self._growth = iter(growth)
        self.after_step: Callable[[], None] = lambda: None

    async def write_step(
        self, step: Callable[[Connection, int], T], *, amount: Callable[[T], int], is_behind: bool = False
    ) -> T:
        self.behind.append(is_behind)
        done = await super().write_step(step, amount=amount)
        self.after_step()
        if grown := next(self._growth, 0):
            head = self._log.wakeups.head
            await self._log.append(self._topic, [draft(f"later-{head}-{number}") for number in range(grown)])
        return done


async def test_retention_rests_only_while_it_removes_more_than_clients_write(log: EventLog, clock: ManualClock) -> None:
    ledger = GroupLedger(log, clock)
    await ledger.declare(spec="retention: {maxEvents: 1}")
    await ledger.publish(*(draft(f"e{number}") for number in range(41)))
    topic = (await log.database.read(read_topic, "group:g")).id
    pace = GrowingPace(log, topic, [8, 24])
    assert (await apply_retention(log, "g", pace)).records == 40 + 8 + 24
    # Before each step: how many it has removed, and how many were written since it began.
    known = [(0, 0), (10, 8), (20, 32), (30, 32), (40, 32), (50, 32), (60, 32), (70, 32)]
    assert pace.behind == [removed < KEEPS_UP * written for removed, written in known]
    assert pace.behind.count(True) == 2


async def test_a_round_over_many_groups_keeps_up_with_what_is_written_to_all_of_them(
    log: EventLog, clock: ManualClock
) -> None:
    """Each of the groups grows less than is removed from it, but all together grow more while it has its turn."""
    ledger = GroupLedger(log, clock)
    names = [f"g{number}" for number in range(20)]
    topics = []
    for name in names:
        await ledger.declare(group=name, spec="retention: {maxEvents: 1}")
        topics.append((await log.database.read(read_topic, f"group:{name}")).id)
        await log.append(topics[-1], [draft(f"{name}-{number}") for number in range(6)])
    pace = GrowingPace(log, topics[0], [6] * 20)
    eviction = EvictionRound(log, pace)
    assert [(await eviction.visit(name)).records for name in names] == [5] * 20
    assert pace.behind == [False] + [True] * 19


async def test_a_group_that_clients_write_to_all_the_time_is_left_after_some_steps(
    log: EventLog, clock: ManualClock
) -> None:
    ledger = GroupLedger(log, clock)
    await ledger.declare(spec="retention: {maxEvents: 1}")
    await ledger.publish(*(draft(f"e{number}") for number in range(21)))
    topic = (await log.database.read(read_topic, "group:g")).id
    pace = GrowingPace(log, topic, [10] * STEPS)
    eviction = EvictionRound(log, pace)
    first = await eviction.visit("g", steps=STEPS)
    assert (first.more, len(pace.behind)) == (True, STEPS)
    last = await eviction.visit("g")
    assert (last.more, last.upto_seq) == (False, 20 + 10 * STEPS)
    assert first.records + last.records == last.upto_seq


async def test_after_its_patience_a_prune_does_not_rest_any_more(log: EventLog, clock: ManualClock) -> None:
    ledger = GroupLedger(log, clock)
    await ledger.declare(spec="retention: {maxEvents: 1}")
    await ledger.publish(*(draft(f"e{number}") for number in range(41)))
    pace = GrowingPace(log, 0, [])
    pace.after_step = lambda: clock.advance(1)
    assert (await apply_retention(log, "g", pace, patience=2)).records == 40
    assert pace.behind == [False, False, True, True]


@pytest.fixture
async def busy_log(database: Database) -> AsyncIterator[EventLog]:
    """A log at the time of the machine."""
    opened = await EventLog.open(database, SystemClock())
    yield opened
    await opened.close()


async def test_a_topic_that_clients_fill_as_fast_as_they_can_still_reaches_its_limit(busy_log: EventLog) -> None:
    log = busy_log
    ledger = GroupLedger(log, ManualClock())
    await ledger.declare(spec="retention: {maxEvents: 1000}")
    topic = (await log.database.read(read_topic, "group:g")).id
    await log.append(topic, [draft(f"e{number}") for number in range(6000)])

    async def publish(client: int) -> None:
        number = 0
        while not retaining.done():
            await log.append(topic, [draft(f"{client}-{number + each}") for each in range(200)])
            number += 200

    retaining = asyncio.create_task(apply_retention(log, "g", eviction_pace(log)))
    await asyncio.gather(*(publish(client) for client in range(3)))
    row = await log.database.read(read_topic, "group:g")
    assert retaining.result().records >= 5000
    assert row.next_seq - 1 - row.evicted_seq <= 1000 + 2 * CHUNK
