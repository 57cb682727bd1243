"""The tables beside the records of topics: each is bounded, and is deleted with its topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.eventlog import EventLog
from eventd.log.core.losses import CAP, MIXED, TTL, Loss, join_oldest, note_losses, read_crowded, read_losses
from eventd.log.core.topic_row import DELETED
from eventd.log.core.values import AppendResult, Drafts, Outcome
from eventd.log.retention import prefix
from eventd.log.retention.evict import RowRetention, delete_old_rows
from eventd.log.topics.deleted_topics import TOPICS_AT_ONCE, ClearStep, clear_deleted, read_cleared, remove_cleared
from eventd.log.topics.limits import TopicSize, clear_ephemeral
from eventd.log.topics.topic_page import Tombstone
from eventd.log.topics.topics import DeleteTopic
from eventd.log.topics.write import Write
from eventd.node import retention
from eventd.node.housekeeping import Housekeeping
from eventd.node.retention import SWEEP_SECONDS, Retention
from eventd.observe.metrics import Metrics
from eventd.runtime.clock import SECOND
from eventd.settings.loading import load
from eventd.settings.model import Settings
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from eventd.store.rows.leases import Lease, add_leases
from eventd.store.schema.tables import blocks, leases, queues, topic_losses, write_keys
from eventd.testing import NOW, ManualClock, until
from tests.support.deleted import clear_all
from tests.support.statements import statements
from tests.support.topics import Topics, drafts_of

BOOKS = RowRetention(ids=SECOND, batches=SECOND, dead_letters=SECOND, receipts=SECOND)


@pytest.fixture
def topics(log: EventLog) -> Topics:
    return Topics(log)


@pytest.fixture
def settings(migrated_url: str) -> Settings:
    return load({"database_url": migrated_url}, {})


async def rows(database: Database, table: sa.Table) -> list[Any]:
    return await database.read(lambda conn: [tuple(row) for row in conn.sqlalchemy.execute(sa.select(table))])


# --- losses -------------------------------------------------------------------------------------------------------


async def test_losses_that_touch_are_one_if_they_have_one_reason(topics: Topics, database: Database) -> None:
    topic = await topics.make("t")
    await database.write(note_losses, topic, [Loss(1, 2, CAP), Loss(3, 3, CAP), Loss(4, 4, TTL), Loss(6, 7, TTL)])
    await database.write(note_losses, topic, [Loss(8, 8, TTL), Loss(9, 9, CAP)])
    await database.write(note_losses, topic, [])
    assert await topics.losses("t") == [(1, 3, CAP), (4, 4, TTL), (6, 8, TTL), (9, 9, CAP)]
    assert await database.read(read_losses, topic, 1, 7) == [Loss(2, 3, CAP), Loss(4, 4, TTL), Loss(6, 7, TTL)]
    assert await database.read(read_losses, topic, 4, 5) == []
    assert await database.read(read_losses, topic, 9, 100) == []


async def test_of_very_many_losses_the_oldest_are_joined(topics: Topics, database: Database) -> None:
    topic, other = await topics.make("t"), await topics.make("other")
    await database.write(note_losses, topic, [Loss(n, n, CAP if n < 8 else TTL) for n in range(2, 22, 2)])
    await database.write(note_losses, other, [Loss(1, 1, CAP)])
    assert await database.read(read_crowded, most=9) == [topic]
    assert await database.write(join_oldest, topic, most=9) == 1
    assert await database.read(read_crowded, most=9) == []
    assert (await topics.losses("t"))[:2] == [(2, 4, CAP), (6, 6, CAP)]
    assert await database.write(join_oldest, topic, most=4) == 5
    assert await topics.losses("t") == [(2, 14, MIXED), (16, 16, TTL), (18, 18, TTL), (20, 20, TTL)]
    assert await database.write(join_oldest, topic, most=4) == 0
    assert await topics.losses("other") == [(1, 1, CAP)]


# --- keys of writes -----------------------------------------------------------------------------------------------


async def test_the_key_of_a_write_is_forgotten_when_its_time_is_over(
    topics: Topics, log: EventLog, database: Database, clock: ManualClock
) -> None:
    await topics.make("t", idempotency_window_ms=1000)
    for key in ("a", "b"):
        await log.submit(Write("t", drafts_of([{"data": 1}]), flushes=log.flushes, key=key))
        clock.advance(0.5)
    clock.advance(0.4)
    assert await database.write(delete_old_rows, BOOKS, now=clock.now()) == 1
    assert [row[1] for row in await rows(database, write_keys)] == ["b"]


# --- topics that do not outlive a run -----------------------------------------------------------------------------


async def test_what_is_ephemeral_is_gone_at_the_start_and_readers_are_told(
    topics: Topics, database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix, "STEP_RECORDS", 100)
    for name, durability in (("gone", "ephemeral"), ("empty", "ephemeral"), ("kept", "memory")):
        await topics.make(name, durability=durability)
    for _ in range(3):
        await topics.put("gone", *range(100))
    await topics.put("kept", 1)
    steps = [0]
    while (after := await database.write(clear_ephemeral, steps[-1], clock.now())) is not None:
        steps.append(after)
    assert len(steps) == 4
    assert steps == sorted(steps), "a topic that was emptied is not looked at again"
    assert await topics.standing("gone") == TopicSize(0, 0, 301)
    assert (await topics.slice("gone", 250)).tombstone == Tombstone(251, 300, TTL, 50, 301, 300)
    assert (await topics.standing("kept")).count == 1
    assert await topics.put("gone", "next") == [301], "its seqs run on"


@pytest.mark.parametrize("group", [None, "g"])
async def test_a_node_begins_without_what_ended_with_its_last_run(
    topics: Topics, log: EventLog, database: Database, migrated_url: str, group: str | None
) -> None:
    """But not one that shares the database with others: they may be at work."""
    await topics.make("memo", durability="ephemeral")
    await topics.put("memo", 1, 2)
    await fill_books(topics, log, database, "jobs")
    await Housekeeping(log, load({"database_url": migrated_url, "group": group}, {}), Metrics()).begin()
    assert (await topics.standing("memo")).count == (2 if group else 0)
    held = "SELECT held FROM queues"
    assert await database.read(fetch, held) == [(1 if group else 0,)]


# --- topics that were deleted -------------------------------------------------------------------------------------

TABLES = [blocks, topic_losses, write_keys, leases, queues]


async def test_of_a_deleted_topic_everything_goes_little_by_little(
    topics: Topics, log: EventLog, database: Database
) -> None:
    await fill_books(topics, log, database, "kept")
    kept = {table.name: await rows(database, table) for table in TABLES}
    topic = await fill_books(topics, log, database, "gone")
    for table in TABLES:
        assert len(await rows(database, table)) > len(kept[table.name]), table.name
    await log.submit(DeleteTopic("gone"))
    went = await clear_all(database, chunk=30)
    assert len(went) > 2
    assert max(went) < 30 + 30, "whole blocks, until they reach the size of a step"
    assert sum(went) == 100 + 1 + 1 + 1, "records with their leases, and what lies beside them"
    assert {table.name: await rows(database, table) for table in TABLES} == kept
    assert await database.read(read_cleared) == [f"{DELETED}{topic}"]
    await database.write(remove_cleared, [f"{DELETED}{topic}"])
    assert await database.read(fetch, "SELECT count(*) FROM topics WHERE id = ?", (topic,)) == [(0,)]


@pytest.mark.parametrize("deleted", [2 * TOPICS_AT_ONCE, 6 * TOPICS_AT_ONCE])
async def test_a_step_costs_the_same_however_many_topics_are_deleted(
    topics: Topics, log: EventLog, database: Database, deleted: int
) -> None:
    """All who write wait for it: a step that looks at each of them takes longer the more there are."""
    for number in range(deleted):
        await topics.make(f"t{number}")
        await log.submit(DeleteTopic(f"t{number}"))
    with statements() as sent:
        steps = await clear_all(database)
    assert len(steps) == deleted / TOPICS_AT_ONCE, "each topic is looked at once"
    assert len(sent) <= (len(steps) + 1) * 24, "statements of a step: one for each table, and the head"
    names: list[str] = []
    with statements() as sent:
        while page := await database.read(read_cleared, names[-1] if names else ""):
            names += page
    assert (len(names), len(sent)) == (deleted, -(-deleted // 100) + 1)


async def test_much_that_was_deleted_does_not_keep_trimming_from_its_work(
    topics: Topics,
    log: EventLog,
    database: Database,
    clock: ManualClock,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await topics.make("t", idempotency_window_ms=1000)
    await log.submit(Write("t", drafts_of([{"data": 1}]), flushes=log.flushes, key="k"))
    clock.advance(2)
    monkeypatch.setattr(retention, "clear_deleted", lambda *_, **__: ClearStep("", 1))  # there always is more
    chores = Housekeeping(log, settings, Metrics()).chores(list)
    tasks = [asyncio.create_task(work()) for work in chores.values()]
    try:
        await until(lambda: _none(database))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _none(database: Database) -> bool:
    return await rows(database, write_keys) == []


async def test_removing_rests_for_longer_than_it_works_while_others_write(
    topics: Topics,
    log: EventLog,
    clock: ManualClock,
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Concurrent writers mostly find the writer free."""
    node = Retention(log, settings, Metrics())
    await topics.make("t")
    await topics.put("t", 1)
    await log.submit(DeleteTopic("t"))

    def slow(conn: Connection, after: str, **options: int) -> ClearStep | None:
        clock.advance(0.01)
        return clear_deleted(conn, after, **options)

    monkeypatch.setattr(retention, "clear_deleted", slow)
    removing = asyncio.create_task(node._remove_deleted())
    await until(lambda: clock.waits)  # between the step that removes the record and the one that finds nothing more
    assert clock.waits == [pytest.approx(0.03)]
    clock.advance(0.03)
    await removing
    assert await rows(database, blocks) == []


async def fill_books(topics: Topics, log: EventLog, database: Database, name: str) -> int:
    """A queue of which every book tells something; its id."""
    topic = await topics.make(name, type="queue", cap_records=100)
    for _ in range(5):
        await topics.put(name, *range(30))
    await log.submit(Write(name, drafts_of([{"data": 1}]), flushes=log.flushes, key="k"))
    await topics.make(name, type="queue", cap_records=100, ttl_ms=10**6)

    def hand_out(conn: Connection) -> None:
        conn.sqlalchemy.execute(
            queues.insert().values(topic_id=topic, claimed_seq=151, held=1, delayed=0, dead_lettered=0)
        )
        add_leases(conn, topic, [Lease(151, "w", "lease_1", NOW + SECOND, 1, 1)])

    await database.write(hand_out)
    return topic


async def test_a_deleted_topic_is_never_due(topics: Topics, log: EventLog, database: Database) -> None:
    await topics.make("t", ttl_ms=1)
    await topics.put("t", 1)
    await log.submit(DeleteTopic("t"))
    assert await database.read(fetch, "SELECT due_at FROM topics") == [(None,)]


# --- the sweep ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def sweeping(log: EventLog, clock: ManualClock, settings: Settings) -> AsyncIterator[asyncio.Task[None]]:
    """A node's sweep, from when it was done once."""
    chores = Retention(log, settings, Metrics())
    task = asyncio.create_task(chores.sweep_for_ever())
    await until(lambda: clock.waits or task.done())
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_sweep_goes_on_in_the_background(
    topics: Topics, clock: ManualClock, sweeping: asyncio.Task[None], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        await topics.make(f"t{number}", ttl_ms=1500)
        await topics.put(f"t{number}", 1)
    clock.advance(SWEEP_SECONDS)
    await until(lambda: clock.waits)
    assert await topics.blocks("t0") == [(1, 1)], "it lives"
    clock.advance(SWEEP_SECONDS)
    await until(lambda: clock.waits)
    for number in range(3):
        assert await topics.blocks(f"t{number}") == []
        assert await topics.losses(f"t{number}") == [(1, 1, TTL)]
    assert not sweeping.done()
    assert caplog.messages == []


async def test_a_topic_that_is_idle_costs_the_sweep_nothing(topics: Topics, database: Database) -> None:
    """What is due is found by an index of those topics that ever will be."""
    await topics.make("t")
    plan = "EXPLAIN QUERY PLAN" if database.kind == "sqlite" else "EXPLAIN"

    def explain(conn: Connection) -> str:
        if database.kind == "postgresql":
            execute(conn, "SET LOCAL enable_seqscan = off")
        found = fetch(conn, f"{plan} SELECT id FROM topics WHERE due_at <= 5 ORDER BY due_at LIMIT 10")
        return "\n".join(str(row) for row in found)

    assert "topics_due" in await database.read(explain)


# --- copies that keep the identity of what they were made of --------------------------------------------------------


class Copy:
    """Write a copy that keeps an identity, beside what is written directly."""

    cursor = None
    weight = 1
    durable = True
    turn = Turn.FRONT
    is_brief = False

    def __init__(self, topic_id: int, identity: str) -> None:
        self.topic_id = topic_id
        self._drafts = replace(drafts_of([{"data": identity, "tag": "copy"}], f"1 {identity}"), event_ids=[identity])

    def admit(self, tx: Transaction) -> Drafts:
        return self._drafts

    def finish(self, tx: Transaction, appended: AppendResult) -> Outcome:
        return appended.outcomes[0]


@pytest.mark.parametrize("how", ["cap", "before", "match"])
async def test_the_identity_of_a_copy_that_went_is_kept_for_a_while(
    topics: Topics, log: EventLog, database: Database, how: str
) -> None:
    topic = await topics.make("dest")
    await topics.put("dest", "direct")
    for identity in ("a", "b"):
        assert await log.submit(Copy(topic, identity)) is Outcome.NEW
    if how == "cap":
        await topics.make("dest", cap_records=1)
    else:
        await topics.delete("dest", **{"before": 3} if how == "before" else {"match": "copy"})
    gone = "SELECT event_id FROM event_ids WHERE gone_at IS NOT NULL ORDER BY event_id"
    expected = ["a", "b"] if how == "match" else ["a"]
    assert await database.read(fetch, gone) == [(one,) for one in expected]
    assert await database.read(fetch, "SELECT ids FROM topics") == [(2 - len(expected),)]
    for identity in ("a", "b"):
        assert await log.submit(Copy(topic, identity)) is Outcome.DUPLICATE, "it must not come again meanwhile"
    assert await database.write(delete_old_rows, BOOKS, now=NOW + 2 * SECOND) == len(expected)
    assert await log.submit(Copy(topic, "a")) is Outcome.NEW


async def test_after_a_restart_a_topic_of_copies_and_direct_records_is_what_it_was(
    topics: Topics, log: EventLog, clock: ManualClock, migrated_url: str
) -> None:
    topic = await topics.make("dest", cap_records=5)
    for number in range(4):
        await log.submit(Copy(topic, f"copy-{number}"))
        await topics.put("dest", f"direct {number}", tag=f"direct-{number}")
    await topics.delete("dest", match="direct-2")
    before = await topics.slice("dest", 0)
    await log.close()
    with closing(Database(migrated_url)) as again:
        reopened = Topics(await EventLog.open(again, clock))
        found = await reopened.slice("dest", 0)
        assert (found.records, found.tombstone) == (before.records, before.tombstone)
        assert await reopened.put("dest", "next") == [9]
        await reopened.log.close()
