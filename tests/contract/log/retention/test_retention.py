"""Retention: what is evicted, what is held back, and what is recorded of evicted events."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventd.log.core.commit import TransactionTimes, commit
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import read_topic
from eventd.log.core.units import Publish
from eventd.log.core.values import Gap
from eventd.log.cursors.cursors import create_cursor
from eventd.log.cursors.dead_letters import DeadLetter, insert_dead_letters
from eventd.log.cursors.steps import DeliveredBatch, Step, insert_batch
from eventd.log.retention import evict as retention
from eventd.log.retention import prefix
from eventd.log.retention.evict import CHUNK, Eviction, EvictionLimits, RowRetention, delete_old_rows, evict
from eventd.runtime.clock import SECOND, Moment
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from eventd.store.rows.links import keep_nonce, keep_receipt, record_gap
from eventd.store.schema.tables import batches, dead_letters, event_ids, inbound_batches, inbound_gaps, nonces
from eventd.testing import NOW, ManualClock, draft, until
from tests.support.reading import read_records
from tests.support.stored import read_stored

DROP = EvictionLimits(max_records=0, keep_undelivered=False)
KEEP = EvictionLimits(max_records=0)


async def fill(log: EventLog, topic: int, count: int, name: str = "e") -> None:
    await log.append(topic, [draft(f"{name}{n}") for n in range(1, count + 1)])


async def cursor_at(log: EventLog, topic: int, position: int, name: str = "peer:g/b") -> None:
    await log.database.write(create_cursor, name, kind="peer", topic_id=topic, position=position, now=NOW)


async def evict_all(log: EventLog, topic: int, limits: EvictionLimits, *, chunk: int = CHUNK) -> list[Eviction]:
    steps: list[Eviction] = []
    while not steps or steps[-1].more:
        steps.append(await log.database.write(evict, topic, limits, now=log.clock.now(), chunk=chunk))
    return steps


async def left(log: EventLog, topic: int) -> list[str]:
    return [record.event_id for record in await log.database.read(read_stored, topic)]


async def test_without_limits_nothing_goes(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 3)
    assert await evict_all(log, topic, EvictionLimits()) == [Eviction(0, 0, more=False)]


async def test_an_eviction_that_fails_halfway_changes_nothing(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("after the records, before the row of their topic")

    topic = await log.topic("group:g")
    await fill(log, topic, 3)
    monkeypatch.setattr(prefix, "update_topic", fail)
    with pytest.raises(RuntimeError):
        await evict_all(log, topic, DROP)
    assert await left(log, topic) == ["e1", "e2", "e3"]


async def test_by_count_the_newest_are_kept(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 6)
    assert await evict_all(log, topic, EvictionLimits(max_records=4)) == [Eviction(2, 2, more=False)]
    assert await left(log, topic) == ["e3", "e4", "e5", "e6"]
    assert await evict_all(log, topic, EvictionLimits(max_records=4)) == [Eviction(0, 2, more=False)]
    await fill(log, topic, 1, "f")
    assert await evict_all(log, topic, EvictionLimits(max_records=4)) == [Eviction(1, 3, more=False)]


async def test_by_age_goes_what_was_recorded_before(log: EventLog, clock: ManualClock) -> None:
    topic = await log.topic("group:g")
    for name in "abc":
        await fill(log, topic, 2, name)
        clock.advance(10)
    limits = EvictionLimits(max_age=20 * SECOND)
    assert await evict_all(log, topic, limits) == [Eviction(2, 2, more=False)], "a is 30 s old, b is 20 s old"
    clock.advance(0.000001)
    assert await evict_all(log, topic, limits) == [Eviction(2, 4, more=False)]
    assert await left(log, topic) == ["c1", "c2"]
    clock.advance(100)
    assert await evict_all(log, topic, limits) == [Eviction(2, 6, more=False)]
    assert await evict_all(log, topic, limits) == [Eviction(0, 6, more=False)]


async def test_the_age_is_since_it_was_recorded_here_not_since_it_was_observed(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("old", observed=NOW - 100 * SECOND)])
    assert await evict_all(log, topic, EvictionLimits(max_age=50 * SECOND)) == [Eviction(0, 0, more=False)]


async def test_only_a_prefix_goes_even_after_the_wall_clock_was_set_back(log: EventLog, clock: ManualClock) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 1, "now")
    clock.set_wall(NOW - 100 * SECOND)
    await fill(log, topic, 1, "earlier")
    clock.set_wall(NOW)
    assert (await evict_all(log, topic, EvictionLimits(max_age=50 * SECOND)))[-1].records == 0
    clock.set_wall(NOW + 51 * SECOND)
    await evict_all(log, topic, EvictionLimits(max_age=50 * SECOND))
    assert await left(log, topic) == []


async def test_the_stricter_of_two_limits_counts(log: EventLog, clock: ManualClock) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 3, "a")
    clock.advance(10)
    await fill(log, topic, 3, "b")
    await evict_all(log, topic, EvictionLimits(max_records=5, max_age=5 * SECOND))
    assert await left(log, topic) == ["b1", "b2", "b3"]
    await evict_all(log, topic, EvictionLimits(max_records=1, max_age=50 * SECOND))
    assert await left(log, topic) == ["b3"]


async def test_another_topic_is_not_touched(log: EventLog) -> None:
    topic, other = await log.topic("group:g"), await log.topic("group:h")
    await fill(log, topic, 2)
    await fill(log, other, 3)
    await fill(log, topic, 2, "f")
    await evict_all(log, topic, EvictionLimits(max_records=1))
    assert await left(log, other) == ["e1", "e2", "e3"]
    assert (await read_records(log, other, 0)).gaps == []
    assert (await read_records(log, topic, 0)).gaps == [Gap(topic, 0, 6, 3)]


async def test_it_goes_in_chunks_so_that_nobody_waits_long(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 25)
    steps = await evict_all(log, topic, EvictionLimits(max_records=2), chunk=10)
    assert steps == [Eviction(10, 10, more=True), Eviction(10, 20, more=True), Eviction(3, 23, more=False)]
    assert await left(log, topic) == ["e24", "e25"]


async def test_it_goes_in_chunks_by_age_too(log: EventLog, clock: ManualClock) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 20)
    clock.advance(10)
    await fill(log, topic, 5, "young")
    steps = await evict_all(log, topic, EvictionLimits(max_age=5 * SECOND), chunk=10)
    assert steps == [Eviction(10, 10, more=True), Eviction(10, 20, more=False)]
    assert len(await left(log, topic)) == 5


async def test_large_records_go_in_smaller_chunks_so_that_memory_stays_bounded(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CHUNK_BYTES", 1000)
    topic = await log.topic("group:g")
    for size in (200, 300, 3000, 250):
        await log.append(topic, [draft(f"{size}/{n}", payload={"k": "v" * size}) for n in range(2)])
    assert [step.records for step in await evict_all(log, topic, DROP)] == [2, 2, 2, 2]
    for size in (10, 10, 10):
        await log.append(topic, [draft(f"later/{size}/{log.wakeups.head}", payload={"k": "v" * size})])
    assert [step.records for step in await evict_all(log, topic, DROP)] == [3]


async def test_ids_and_bytes_follow(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a", expires=NOW + 9), draft("b"), draft("a", expires=NOW + 10)])
    await evict_all(log, topic, EvictionLimits(max_records=1))
    books = await database.read(read_topic, "group:g")
    assert (books.ids, books.bytes) == (1, len(draft("a", expires=NOW + 10).body))
    await evict_all(log, topic, DROP)
    books = await database.read(read_topic, "group:g")
    assert (books.ids, books.bytes, books.evicted_seq, books.evicted_position) == (0, 0, 3, 3)
    assert books.next_seq == 4, "a seq is not given twice"


# --- what is held -------------------------------------------------------------------------------------------------


async def test_what_a_peer_still_has_to_get_is_held(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 6)
    await cursor_at(log, topic, 4)
    await cursor_at(log, topic, 2, "peer:g/slow")
    assert await evict_all(log, topic, KEEP) == [Eviction(2, 2, more=False)]
    assert await evict_all(log, topic, KEEP) == [Eviction(0, 2, more=False)]
    await log.settle(Step("peer:g/slow", 2, 6, 6, NOW))
    assert await evict_all(log, topic, KEEP) == [Eviction(2, 4, more=False)], "the slowest holds"
    assert (await log.database.read(read_topic, "group:g")).lost_position == 0


async def test_a_paused_peer_holds_too(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 3)
    await cursor_at(log, topic, 0)
    await log.database.write(execute, f"UPDATE cursors SET paused_at = {NOW}")
    assert (await evict_all(log, topic, KEEP))[-1].records == 0


async def test_a_peer_of_another_topic_holds_nothing(log: EventLog) -> None:
    topic, other = await log.topic("group:g"), await log.topic("group:h")
    await fill(log, topic, 3)
    await cursor_at(log, other, 0)
    assert (await evict_all(log, topic, KEEP))[-1].records == 3


async def test_what_has_expired_or_came_from_elsewhere_is_not_held(log: EventLog, clock: ManualClock) -> None:
    topic = await log.topic("group:g")
    await cursor_at(log, topic, 0)
    await log.append(topic, [draft("1", path="b"), draft("2", expires=NOW + SECOND), draft("3", path="b")])
    await log.append(topic, [draft("4", expires=NOW + 9 * SECOND), draft("5"), draft("6", path="b")])
    assert await evict_all(log, topic, KEEP) == [Eviction(1, 1, more=False)]
    clock.advance(1)
    assert await evict_all(log, topic, KEEP) == [Eviction(0, 1, more=False)], "alive to its last microsecond"
    clock.advance(0.000001)
    assert await evict_all(log, topic, KEEP) == [Eviction(2, 3, more=False)]
    clock.advance(8)
    assert await evict_all(log, topic, KEEP) == [Eviction(1, 4, more=False)]
    assert await left(log, topic) == ["5", "6"], "what is held holds what came after it"
    assert (await read_records(log, topic, 0)).lost_position == 0, "of what expired nothing was lost"


async def test_what_may_be_dropped_undelivered_is_remembered_as_lost(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 6)
    await cursor_at(log, topic, 4)
    await evict_all(log, topic, replace(DROP, max_records=3))
    assert (await read_records(log, topic, 0)).lost_position == 0, "the peer had them"
    await evict_all(log, topic, replace(DROP, max_records=1))
    page = await read_records(log, topic, 4)
    assert (page.lost_position, page.gaps) == (5, [Gap(topic, 4, 5, 5)])
    await log.append(topic, [draft("foreign", path="b")])
    await log.settle(Step("peer:g/b", 4, 7, 7, NOW))
    await evict_all(log, topic, DROP)
    page = await read_records(log, topic, 4)
    assert (page.lost_position, page.gaps[0].upto) == (5, 7), "and nothing more"


async def test_a_loss_ends_with_the_last_event_that_a_peer_lacks(log: EventLog, clock: ManualClock) -> None:
    """A peer that has all of them, and lacks only what came from elsewhere or has expired, has lost nothing."""
    topic = await log.topic("group:g")
    await fill(log, topic, 2)
    await log.append(topic, [draft("expires", expires=clock.now()), draft("foreign", path="b")])
    await cursor_at(log, topic, 1)
    clock.advance(1)
    await evict_all(log, topic, DROP)
    assert (await read_records(log, topic, 1)).lost_position == 2
    assert (await read_records(log, topic, 2)).lost_position == 0, "a reader that is past it has lost nothing"


async def test_without_any_peer_nothing_is_held_or_lost(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 3)
    await evict_all(log, topic, KEEP)
    assert (await left(log, topic), (await read_records(log, topic, 0)).lost_position) == ([], 0)


names = iter(range(1, 1_000_000))
facts = st.tuples(st.booleans(), st.sampled_from([None, 1, 5]))  # whether it entered here; seconds to live


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    told=st.lists(facts, min_size=1, max_size=12),
    cursors=st.lists(st.integers(0, 12), max_size=3),
    age=st.integers(0, 6),
    keep=st.integers(0, 12),
    chunk=st.integers(1, 5),
    undelivered=st.booleans(),
)
async def test_exactly_what_may_go_goes(
    log: EventLog,
    told: list[tuple[bool, int | None]],
    cursors: list[int],
    age: int,
    keep: int,
    chunk: int,
    undelivered: bool,
) -> None:
    """Against the rule in plain words, for any log, peers and limits."""
    n = next(names)
    topic, base = await log.topic(f"group:{n}"), (await log.look_around()).last
    expiries = [None if life is None else log.clock.now() + life * SECOND for _, life in told]
    for (own, _), expires in zip(told, expiries, strict=True):
        await log.append(topic, [draft(f"{len(await left(log, topic))}", path="" if own else "b", expires=expires)])
    for i, at in enumerate(cursors):
        await cursor_at(log, topic, base + at, f"peer:{n}/{i}")
    now = log.clock.now() + age * SECOND
    limits = EvictionLimits(max_records=keep, keep_undelivered=undelivered)
    more = True
    while more:
        more = (await log.database.write(evict, topic, limits, now=now, chunk=chunk)).more
    held = [
        seq
        for seq, ((own, _), expires) in enumerate(zip(told, expiries, strict=True), start=1)
        if own and (expires is None or expires >= now) and cursors and seq > min(cursors)
    ]
    over = max(0, len(told) - keep)
    expected = min([over, *(seq - 1 for seq in held)]) if undelivered else over
    records = await log.database.read(read_stored, topic)
    assert [record.seq for record in records] == list(range(expected + 1, len(told) + 1))
    page = await read_records(log, topic, base)
    assert [gap.upto_seq for gap in page.gaps] == ([expected] if expected else [])
    lost = [seq for seq in held if seq <= expected]
    assert (page.lost_position > base) == bool(lost)
    assert not lost or page.lost_position == base + lost[-1]


# --- the ledger tables beside the log -----------------------------------------------------------------------------

BOOKS = RowRetention(ids=10, batches=20, dead_letters=30, receipts=40)


def _batch(acked_at: int) -> DeliveredBatch:
    return DeliveredBatch("c", "b", "e", 1, 0, 1, 1, 1, 1, (), (), 1, NOW, acked_at, 200, "v2", "k", "r")


async def test_every_book_is_trimmed_at_its_own_age(log: EventLog, database: Database) -> None:
    """Of each the first row is older than it is kept, and the second is not."""
    topic = await log.topic("group:g")
    await fill(log, topic, 2)

    def write(conn: Connection) -> None:
        for n in range(2):
            at = NOW - 1 + n
            conn.sqlalchemy.execute(
                event_ids.update().where(event_ids.c.event_id == f"e{n + 1}").values(gone_at=NOW - 11 + n, digest=b"d")
            )
            insert_batch(conn, _batch(at - 20))
            insert_dead_letters(conn, [DeadLetter("c", n, topic, "e", "r", "d", 1, at - 30)])
            record_gap(conn, topic, "b", "e", 0, n, "r", at - 20)
            keep_nonce(conn, "g", "k", f"{n}", at)
            keep_receipt(
                conn,
                topic_id=topic,
                node="b",
                batch_id=f"{n}",
                key_id="k",
                covers="",
                digest="",
                receipt="",
                now=at - 40,
            )

    await database.write(write)
    tables = (event_ids, batches, dead_letters, inbound_batches, inbound_gaps, nonces)

    def count(conn: Connection) -> list[int]:
        return [conn.sqlalchemy.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in tables]

    assert await database.read(count) == [2] * len(tables)
    assert await database.write(delete_old_rows, BOOKS, now=NOW) == 1  # of each table
    assert await database.read(count) == [1] * len(tables)


async def test_the_id_of_a_stored_record_is_never_forgotten(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 2)
    assert await database.write(delete_old_rows, BOOKS, now=NOW + 10**15) == 0
    assert (await log.append(topic, [draft("e1")])).outcomes[0].name == "DUPLICATE"


async def test_the_books_are_trimmed_in_chunks(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 25)
    await evict_all(log, topic, DROP)
    later = NOW + 11
    removed = [await database.write(delete_old_rows, BOOKS, now=later, chunk=10) for _ in range(4)]
    assert removed == [10, 10, 5, 0]


async def test_an_id_that_another_process_brings_back_is_not_forgotten_meanwhile(
    log: EventLog, database: Database, migrated_url: str
) -> None:
    """The other process has given the old id a new record, and has not committed yet."""
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a", expires=NOW)])
    await evict_all(log, topic, DROP)
    written, go_on = threading.Event(), threading.Event()

    def refresh(conn: Connection) -> None:
        commit(
            conn, [Publish(topic, [draft("a", expires=NOW + 1)])], Moment(NOW, NOW), TransactionTimes(), durable=True
        )
        written.set()
        assert go_on.wait(10)

    with closing(Database(migrated_url)) as other:
        refreshed = other.start_write(refresh)
        await until(written.is_set)
        forgotten = asyncio.ensure_future(database.write(delete_old_rows, BOOKS, now=NOW + 10**9))
        if database.kind == "postgresql":
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            await until(lambda: database.read(fetch, waiting), "the trimming to wait for the head")
        go_on.set()
        await asyncio.wrap_future(refreshed)
        assert await forgotten == 0
    assert await database.read(fetch, "SELECT event_id, position, gone_at FROM event_ids") == [("a", 2, None)]
    assert (await database.read(read_topic, "group:g")).ids == 1


async def test_a_subscription_holds_nothing(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft(f"e{number}") for number in range(5)])
    await log.database.write(
        create_cursor, "subscription:g/s", kind="subscription", topic_id=topic, position=0, now=log.clock.now()
    )
    await log.database.write(create_cursor, "peer:g/b", kind="peer", topic_id=topic, position=5, now=log.clock.now())
    (done,) = await evict_all(log, topic, EvictionLimits(max_records=2))
    assert done.records == 3


async def test_large_events_count_as_more_work_and_a_step_that_may_do_more_takes_more_of_them(
    log: EventLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the steps of a node that is behind would never become larger."""
    monkeypatch.setattr(retention, "CHUNK_BYTES", 1000)
    topic = await log.topic("group:g")
    for number in range(6):
        await log.append(topic, [draft(f"e{number}", payload={"text": "x" * 350})])
    steps = [await database.write(evict, topic, DROP, now=NOW, chunk=chunk) for chunk in (CHUNK, 2 * CHUNK)]
    assert [step.records for step in steps] == [1, 3]
    assert steps[0].work >= CHUNK // 2
