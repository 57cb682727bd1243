"""A write is one unit: the topic, the key, the limits and the records are committed together or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from eventd.errors import Invalid
from eventd.log.core import head
from eventd.log.core.commit import Transaction, TransactionTimes, Turn
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import find_topic
from eventd.log.core.values import NOTHING, AppendResult, Drafts
from eventd.log.retention.evict import RowRetention, delete_old_rows
from eventd.log.topics.errors import RecordTooLarge, Throttled, TopicFull, TopicNotFound
from eventd.log.topics.topics import DeleteTopic, count_topics
from eventd.log.topics.write import Write, WriteResult, shorten_windows
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from eventd.testing import ManualClock
from tests.support.deleted import clear_all
from tests.support.statements import statements
from tests.support.topic_sums import check_topics
from tests.support.topics import Topics, drafts_of


def write(log: EventLog, name: str, *data: Any, **options: Any) -> asyncio.Future[WriteResult]:
    drafts = drafts_of([{"data": one} for one in data])
    return log.submit(Write(name, drafts, flushes=log.flushes, random=name.encode() * 8, **options))


async def seqs(written: asyncio.Future[WriteResult]) -> tuple[int, int]:
    found = await written
    return found.first_seq, found.last_seq


async def test_writers_of_one_moment_share_a_commit_and_each_gets_its_own_seqs(log: EventLog) -> None:
    first = await write(log, "jobs", 1)
    assert (first.first_seq, first.created, first.head_seq) == (1, True, 1)
    waiting = [write(log, name, *range(size)) for name, size in [("jobs", 3), ("other", 2), ("jobs", 1), ("jobs", 2)]]
    assert [await seqs(one) for one in waiting] == [(2, 4), (1, 2), (5, 5), (6, 7)]
    assert [record["data"] for record in await Topics(log).page("jobs")] == [1, 0, 1, 2, 0, 0, 1]


async def test_a_topic_is_made_once_by_writers_of_one_moment(log: EventLog) -> None:
    found = await asyncio.gather(*[write(log, "new", n) for n in range(5)])
    assert [one.created for one in found] == [True, False, False, False, False]
    assert await log.database.read(count_topics) == 1


async def test_a_topic_is_not_made_where_that_is_not_wanted(log: EventLog) -> None:
    with pytest.raises(TopicNotFound):
        await write(log, "none", 1, create=False)
    with pytest.raises(TopicNotFound):
        await write(log, "none", 1, config=TopicConfig(auto_create=False))
    assert (await write(log, "one", 1, create=True, config=TopicConfig(auto_create=False))).created
    with pytest.raises(Invalid, match="'_bad' is not a valid name of a topic"):
        await write(log, "_bad", 1)
    with pytest.raises(Throttled) as refused:
        await write(log, "two", 1, max_topics=1)
    assert refused.value.detail == {"limit": "max_topics", "max": 1}


class TestKeys:
    async def test_a_repeated_request_writes_nothing_and_gets_the_first_answer(self, log: EventLog) -> None:
        first = await write(log, "q", 1, 2, key="k1")
        await write(log, "q", 3)
        again = await write(log, "q", "another", key="k1")
        assert (again.first_seq, again.last_seq, again.head_seq) == (1, 2, first.head_seq)
        assert (again.deduped, again.created, first.deduped) == (True, False, False)
        assert (await Topics(log).standing("q")).count == 3

    async def test_two_of_one_moment_are_one(self, log: EventLog) -> None:
        found = await asyncio.gather(*[write(log, "q", n, key="k") for n in range(4)])
        assert {(one.first_seq, one.last_seq) for one in found} == {(1, 1)}
        assert [one.deduped for one in found] == [False, True, True, True]
        assert (await Topics(log).page("q"))[0]["data"] == 0

    async def test_a_key_of_a_refused_write_is_free(self, log: EventLog) -> None:
        await Topics(log).make("q", cap_records=1, discard="reject")
        await write(log, "q", 1)
        with pytest.raises(TopicFull):
            await write(log, "q", 2, key="k")
        await Topics(log).delete("q", before=2)
        assert not (await write(log, "q", 2, key="k")).deduped

    async def test_a_key_is_known_after_a_restart_and_forgotten_after_its_window(
        self, database: Database, clock: ManualClock
    ) -> None:
        log = await EventLog.open(database, clock)
        await write(log, "q", 1, key="k", config=TopicConfig(idempotency_window_ms=1000))
        await log.close()
        log = await EventLog.open(database, clock)
        try:
            assert (await write(log, "q", 1, key="k")).deduped
            clock.advance(1.001)
            assert (await write(log, "q", 1, key="k")).first_seq == 2
        finally:
            await log.close()

    async def test_after_a_start_in_1971_a_key_is_remembered_for_its_window_and_no_longer(
        self, database: Database, clock: ManualClock
    ) -> None:
        """A machine without a clock of its own starts so, and the time server sets its clock a moment later."""
        log = await EventLog.open(database, clock)
        await write(log, "q", 1, key="k", config=TopicConfig(idempotency_window_ms=1000))
        await write(log, "long", 1, key="k", config=TopicConfig(idempotency_window_ms=5000))
        await log.close()
        begun = ManualClock(400 * 86_400 * SECOND)
        await database.write(shorten_windows, begun.steady())
        log = await EventLog.open(database, begun)
        try:
            begun.advance(0.999)
            assert (await write(log, "q", 1, key="k")).deduped
            begun.advance(0.002)
            assert (await write(log, "q", 1, key="k")).first_seq == 2
            assert (await write(log, "long", 1, key="k")).deduped
        finally:
            await log.close()

    @pytest.mark.parametrize("step", [-86400, 86400])
    async def test_a_step_of_the_wall_clock_moves_no_window(
        self, log: EventLog, database: Database, clock: ManualClock, step: int
    ) -> None:
        await write(log, "q", 1, key="k", config=TopicConfig(idempotency_window_ms=100_000))
        clock.set_wall(clock.now() + step * SECOND)
        books = RowRetention(ids=0, batches=0, dead_letters=0, receipts=0)
        assert await database.write(delete_old_rows, books, now=clock.now(), steady=clock.steady()) == 0
        assert (await write(log, "q", 1, key="k")).deduped
        clock.advance(100.001)
        assert await database.write(delete_old_rows, books, now=clock.now(), steady=clock.steady()) == 1
        assert (await write(log, "q", 1, key="k")).first_seq == 2

    async def test_a_full_topic_still_knows_its_keys(self, log: EventLog) -> None:
        await Topics(log).make("q", cap_records=1, discard="reject")
        await write(log, "q", 1, key="k")
        assert (await write(log, "q", 1, key="k")).deduped


class TestLimits:
    async def test_what_can_never_fit_is_told_from_what_does_not_fit_now(self, log: EventLog) -> None:
        await Topics(log).make("q", cap_records=2, discard="reject")
        with pytest.raises(RecordTooLarge):
            await write(log, "q", 1, 2, 3)
        await write(log, "q", 1)
        with pytest.raises(TopicFull) as refused:
            await write(log, "q", 2, 3)
        assert refused.value.detail == {
            "topic": "q",
            "cap_records": 2,
            "cap_bytes": 0,
            "head_seq": 1,
            "earliest_seq": 1,
        }
        assert await seqs(write(log, "q", 2)) == (2, 2)

    async def test_writers_of_one_moment_do_not_fill_a_topic_beyond_its_cap(self, log: EventLog) -> None:
        await Topics(log).make("q", cap_records=3, discard="reject")
        found = await asyncio.gather(*[write(log, "q", n) for n in range(5)], return_exceptions=True)
        assert [isinstance(one, TopicFull) for one in found] == [False, False, False, True, True]
        assert (await Topics(log).standing("q")).count == 3

    async def test_room_is_made_by_what_has_outlived_its_time(self, log: EventLog, clock: ManualClock) -> None:
        await Topics(log).make("q", cap_records=1, discard="reject", ttl_ms=1000)
        await write(log, "q", 1)
        clock.advance(1.1)
        assert await seqs(write(log, "q", 2)) == (2, 2)
        assert await Topics(log).losses("q") == [(1, 1, "ttl")]

    async def test_all_topics_together_have_a_ceiling(self, log: EventLog) -> None:
        await write(log, "a", "x" * 98, max_bytes=200)
        with pytest.raises(Throttled) as refused:
            await write(log, "b", "x" * 99, max_bytes=200)
        assert refused.value.detail == {"limit": "max_total_bytes", "max": 200}
        assert (await write(log, "b", "x" * 98, max_bytes=200)).first_seq == 1

    async def test_the_ceiling_of_all_topics_asks_none_of_them(self, log: EventLog) -> None:
        for name in ("a", "b"):
            await write(log, name, "x" * 98, max_bytes=1000)
        with statements() as sent:
            await write(log, "b", "x", max_bytes=1000)
        assert not [sql for sql in sent if "sum(" in sql], "there may be very many"

    async def test_what_goes_makes_room_below_the_ceiling_of_all_topics(self, log: EventLog) -> None:
        topics = Topics(log)
        await topics.make("kept", cap_records=1)
        for _ in range(5):
            await write(log, "kept", "x" * 98, max_bytes=200)
        await write(log, "a", "x" * 98, max_bytes=200)
        await topics.delete("a", before=2)
        await write(log, "b", "x" * 98, max_bytes=200)
        await log.submit(DeleteTopic("b"))
        with pytest.raises(Throttled):
            await write(log, "c", "x" * 98, max_bytes=200)
        await clear_all(log.database)
        assert (await write(log, "c", "x" * 98, max_bytes=200)).first_seq == 1
        await log.database.read(check_topics)

    async def test_the_oldest_go_when_a_topic_discards(self, log: EventLog) -> None:
        await Topics(log).make("q", cap_records=3)
        await asyncio.gather(*[write(log, "q", n) for n in range(5)])
        assert [record["$seq"] for record in await Topics(log).page("q")] == [3, 4, 5]
        assert await Topics(log).losses("q") == [(1, 2, "cap")]


async def test_the_time_of_a_record_is_never_before_that_of_an_earlier_one(log: EventLog, clock: ManualClock) -> None:
    await write(log, "q", 1)
    clock._now -= 5_000_000
    await write(log, "q", 2)
    first, second = await Topics(log).page("q")
    assert first["$ts"] == second["$ts"]


class TestDurability:
    """What is answered before the disk has it is marked beforehand, and what may be lost begins a new history."""

    @pytest.fixture
    def flushed(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """Of each transaction of the writer, whether it waits for the disk."""
        told: list[bool] = []
        start = database.start_write

        def counting(fn: Any, *, durable: bool = True) -> Any:
            told.append(durable)
            return start(fn, durable=durable)

        monkeypatch.setattr(database, "start_write", counting)
        return told

    async def test_only_who_asks_for_the_disk_waits_for_it(self, log: EventLog, flushed: list[bool]) -> None:
        await Topics(log).make("safe", durability="fsync")
        await Topics(log).make("quick", durability="disk")
        flushed.clear()
        for name in ("safe", "safe", "quick", "quick", "quick"):
            await write(log, name, 1)
        assert flushed == [True, True, True, False, False], "the first write to a topic that is not cached is flushed"

    async def test_the_mark_that_commits_may_be_lost_is_on_the_disk_with_its_own_commit(
        self, log: EventLog, flushed: list[bool]
    ) -> None:
        """A kill between the two, and then a power loss, would lose records and the mark that says so."""
        for number in range(3):
            log.flushes.learn("quick", "disk")
            await write(log, "quick", number)
        assert flushed == [True, False, False]
        assert await log.database.read(fetch, "SELECT unsynced <> '' FROM log_heads") == [(True,)]

    async def test_a_process_that_finds_the_mark_of_a_killed_one_flushes_it_before_it_relies_on_it(
        self, database: Database, clock: ManualClock, flushed: list[bool]
    ) -> None:
        log = await EventLog.open(database, clock)
        log.flushes.learn("quick", "disk")
        await write(log, "quick", 1)
        await log._appender.close()  # as if killed
        same = await EventLog.open(database, clock)
        same.flushes.learn("quick", "disk")
        flushed.clear()
        await write(same, "quick", 2)
        await write(same, "quick", 3)
        assert flushed == [True, False]
        await same.close()

    async def test_a_repeated_write_flushes_the_mark_of_a_killed_process(
        self, database: Database, clock: ManualClock, flushed: list[bool]
    ) -> None:
        log = await EventLog.open(database, clock)
        log.flushes.learn("quick", "disk")
        await write(log, "quick", 1, key="k")
        await log._appender.close()  # as if killed
        same = await EventLog.open(database, clock)
        same.flushes.learn("quick", "disk")
        assert (await write(same, "quick", 1, key="k")).deduped
        assert await database.read(fetch, "SELECT flushes FROM log_heads") == [(1,)]
        await same.close()

    async def test_a_mark_that_another_process_removed_is_flushed_with_its_own_commit(
        self, log: EventLog, database: Database, clock: ManualClock, flushed: list[bool]
    ) -> None:
        """Between the mark and a later flush, a third process would rely on it."""
        log.flushes.learn("quick", "disk")
        await write(log, "quick", 1)
        other = await EventLog.open(database, clock)
        await other.close()
        flushed.clear()
        await write(log, "quick", 2)
        await write(log, "quick", 3)
        assert flushed == [False, True, False], "the first transaction is undone"
        assert len(await Topics(log).page("quick")) == 3
        assert await database.read(fetch, "SELECT unsynced <> '', flushes FROM log_heads") == [(True, 0)]

    async def test_a_topic_that_became_durable_is_flushed_all_the_same(
        self, log: EventLog, flushed: list[bool]
    ) -> None:
        await write(log, "t", 1)
        await write(log, "t", 2)
        await Topics(log).make("t", durability="fsync")
        flushed.clear()
        await write(log, "t", 3)
        assert flushed == [False, True], "it was taken for one that need not wait"
        await write(log, "t", 4)
        assert flushed == [False, True, True]

    async def test_who_waits_for_the_disk_takes_the_others_of_the_moment_along(
        self, log: EventLog, flushed: list[bool]
    ) -> None:
        for name, durability in (("safe", "fsync"), ("quick", "memory")):
            await Topics(log).make(name, durability=durability)
            await write(log, name, 1)
        flushed.clear()
        await asyncio.gather(write(log, "quick", 2), write(log, "safe", 2))
        assert flushed == [True]

    @pytest.fixture
    def another_run(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """The system has been started anew in between."""
        yield
        monkeypatch.undo()

    async def test_a_crash_of_the_system_begins_a_new_history_if_something_was_on_its_way(
        self, database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = await EventLog.open(database, clock)
        await write(log, "t", 1)
        await write(log, "t", 2)
        await log._appender.close()  # as if killed
        same = await EventLog.open(database, clock)
        assert same.epoch == log.epoch, "the system kept running: it has written all of it"
        await same._appender.close()
        monkeypatch.setattr(head, "run_of_system", lambda _conn: "another")
        other = await EventLog.open(database, clock)
        try:
            assert other.epoch != log.epoch
            assert [record["data"] for record in await Topics(other).page("t")] == [1, 2]
        finally:
            await other.close()

    async def test_after_an_orderly_stop_nothing_is_on_its_way(
        self, database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = await EventLog.open(database, clock)
        await write(log, "t", 1)
        await write(log, "t", 2)
        assert await database.read(fetch, "SELECT unsynced <> '' FROM log_heads") == [(True,)]
        await log.close()
        monkeypatch.setattr(head, "run_of_system", lambda _conn: "another")
        again = await EventLog.open(database, clock)
        assert again.epoch == log.epoch
        await again.close()

    async def test_another_process_that_ends_does_not_take_the_mark_away(
        self, log: EventLog, migrated_url: str, clock: ManualClock
    ) -> None:
        await write(log, "t", 1)
        await write(log, "t", 2)
        with closing(Database(migrated_url)) as database:
            await (await EventLog.open(database, clock)).close()
        await write(log, "t", 3)
        assert await log.database.read(fetch, "SELECT unsynced <> '' FROM log_heads") == [(True,)]

    async def test_a_flush_that_fails_is_no_acknowledgement(
        self, log: EventLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(conn: Connection) -> None:
            raise sa.exc.OperationalError("x", {}, Exception("disk I/O error"))

        await Topics(log).make("t", durability="fsync")
        log.flushes.learn("t", "disk")
        log.flushes.learn("other", "disk")
        await write(log, "other", 1)  # the first write of a process is flushed by itself
        monkeypatch.setattr("eventd.log.core.writer.touch_head", fails)
        with pytest.raises(Exception, match=r"disk I/O error|database"):
            await write(log, "t", 1)
        monkeypatch.undo()
        assert (await write(log, "t", 2)).last_seq == 2, "it is stored, without an acknowledgement"


async def test_a_line_of_a_topic_is_found_by_its_name_alone(log: EventLog) -> None:
    await write(log, "t", 1)
    await log.database.write(execute, "UPDATE topics SET name = '-retired:9' WHERE name = 't'")
    assert await log.database.read(find_topic, "t") is None
    assert await log.database.read(find_topic, "-retired:9") is None


class Quiet:
    """A unit whose caller does not wait for the flush."""

    topic_id = None
    cursor = None
    weight = 1
    durable = False
    turn = Turn.BACKGROUND
    is_brief = False

    def admit(self, tx: Transaction) -> Drafts:
        return NOTHING

    def finish(self, tx: Transaction, appended: AppendResult) -> TransactionTimes:
        return tx.spent


async def test_what_is_done_in_the_background_takes_turns_with_what_is_waited_for(log: EventLog) -> None:
    """A write does not wait for it in its own transaction, and it is not kept waiting for ever."""
    told: list[str] = []

    def telling(name: str, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        future.add_done_callback(lambda _: told.append(name))
        return future

    first = telling("first", write(log, "t", 1))
    await asyncio.sleep(0)  # its transaction has begun
    others = [telling("quiet", log.submit(Quiet())) for _ in range(2)]
    others += [telling("write", write(log, "t", n)) for n in range(2)]
    done = await asyncio.gather(first, *others)
    assert told == ["first", "quiet", "quiet", "write", "write"]
    spent = [one if isinstance(one, TransactionTimes) else one.spent for one in done]
    assert spent[1] is spent[2]
    assert spent[3] is spent[4]
    assert len({*map(id, spent)}) == 3, "three transactions"
