"""The consumer loop by which everything leaves the node, against a scripted sink."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Any

import pytest
import sqlalchemy as sa

from eventd.egress.loop.consumer import BROKEN_WAIT, CALM, IDLE_WRITE, LONGEST_REOPEN, REOPEN_AFTER
from eventd.egress.loop.sink import Ack, Blocked, LinkError, LinkUnavailable, Rewind
from eventd.errors import DatabaseUnavailable, Invalid
from eventd.log.core.eventlog import EventLog
from eventd.log.core.matching_page import MatchingPage
from eventd.log.core.values import Record
from eventd.log.cursors.cursors import (
    Cursor,
    LinkState,
    create_cursor,
    delete_cursors,
    move_cursor,
    read_cursors,
    set_paused,
)
from eventd.log.cursors.selections import declare_selection
from eventd.log.cursors.steps import Step
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.store.schema.tables import batches, dead_letters
from eventd.testing import NOW, ManualClock, draft, give_turns, until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.sinks import BACKOFF, RunningConsumer, ScriptedSink, run_consumer

NAME = "peer:g/b"
DOWN = LinkUnavailable("timeout", "no answer within 5 s")


@pytest.fixture
async def topic(log: EventLog) -> int:
    return await log.topic("group:g")


async def publish(log: EventLog, topic: int, *ids: str, **more: Any) -> None:
    await log.append(topic, [draft(event_id, **more) for event_id in ids])


async def rows(log: EventLog, table: sa.Table, *columns: str) -> list[tuple[Any, ...]]:
    query = sa.select(*[table.c[name] for name in columns]).order_by(table.c.id)
    return await log.database.read(lambda conn: [tuple(row) for row in conn.sqlalchemy.execute(query)])


async def held(link: RunningConsumer, state: LinkState, attempts: int | None = None) -> None:
    """Wait until the cursor is in this state, and until the consumer is idle."""

    async def said() -> bool:
        cursor = await link.cursor()
        return cursor.state is state and (attempts is None or cursor.attempts == attempts)

    await until(said, f"the link to be {state}, attempts {attempts}")
    assert isinstance(link.log.clock, ManualClock)
    clock = link.log.clock
    await until(lambda: clock.waits, "the consumer to rest")


# --- the way of a record ------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_what_is_there_and_what_comes_is_delivered_in_order_with_its_proof(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, "a", "b")
    sink = ScriptedSink(NAME)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: link.at(2))
        await publish(log, topic, "c")
        await publish(log, topic, "d")
        await until(lambda: link.at(4))
    assert sink.taken == ["a", "b", "c", "d"]
    assert clock.waits == [], "nothing waited for time to pass"
    proofs = await rows(log, batches, "after", "upto", "events")
    assert [after for after, _, _ in proofs] == [0, *[upto for _, upto, _ in proofs[:-1]]], "the ranges are contiguous"
    assert sum(events for _, _, events in proofs) == 4
    cursor = await link.cursor()
    assert (cursor.state, cursor.protocol, cursor.sent_upto, cursor.succeeded_at) == (LinkState.RUNNING, "v2", 4, NOW)


async def test_it_goes_on_where_it_stopped(log: EventLog, topic: int) -> None:
    await publish(log, topic, "a", "b")
    sink = ScriptedSink(NAME)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: link.at(2))
    await publish(log, topic, "c")
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: link.at(3))
    assert sink.taken == ["a", "b", "c"]
    assert sink.batches[-1].after == 2


async def test_pages_bound_a_parcel(log: EventLog, topic: int) -> None:
    await publish(log, topic, *"abcdefg")
    sink = ScriptedSink(NAME, page=(3, 1 << 20))
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: link.at(7))
    assert [[r.event_id for r in parcel.records] for parcel in sink.batches] == [[*"abc"], [*"def"], [*"g"]]


@BOTH_DATABASES
async def test_a_record_that_is_refused_is_set_aside_and_the_rest_goes_on(log: EventLog, topic: int) -> None:
    await publish(log, topic, "a", "poison", "c")
    sink = ScriptedSink(NAME)
    sink.answers.append(sink.refuse("poison"))
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: link.at(3))
        assert (await link.cursor()).state is LinkState.RUNNING
    assert sink.taken == ["a", "c"]
    assert await rows(log, dead_letters, "cursor", "position", "event_id", "reason", "detail", "attempts") == [
        (NAME, 2, "poison", "bad", "will not have poison", 1)
    ]
    assert await rows(log, batches, "after", "upto", "exceptions") == [(0, 3, '[[2,"refused"]]')]


async def test_an_append_to_another_topic_does_not_wake_it(log: EventLog, topic: int) -> None:
    other = await log.topic("group:other")
    sink = ScriptedSink(NAME, matches=lambda record: record.topic_id == topic)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.opened)
        await publish(log, other, "x")
        await give_turns()
        await publish(log, topic, "a")
        await until(lambda: link.at(2))
    assert [(parcel.after, parcel.upto) for parcel in sink.batches] == [(0, 2)]


async def test_a_sink_for_own_records_is_not_given_what_came_from_elsewhere(log: EventLog, topic: int) -> None:
    sink = ScriptedSink(NAME, own=True)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.opened)
        await publish(log, topic, "foreign", path="c")
        await publish(log, topic, "a")
        await until(lambda: link.at(2))
    assert sink.taken == ["a"]


# --- the other side is down ---------------------------------------------------------------------------------------


async def test_a_destination_that_is_down_is_tried_again_ever_more_rarely(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, "a", "b")
    sink = ScriptedSink(NAME)
    sink.answers.extend([DOWN] * 6)
    async with run_consumer(log, sink, topic) as link:
        for attempt, seconds in enumerate([1, 2, 4, 8, 8, 8], start=1):
            await held(link, LinkState.BACKING_OFF, attempt)
            cursor = await link.cursor()
            assert (cursor.position, cursor.reason, cursor.last_error) == (0, "timeout", "no answer within 5 s")
            assert cursor.retry_at == clock.now() + seconds * SECOND
            assert cursor.attempted_upto == 2, "what was tried: failed, not merely pending"
            clock.advance(seconds - 0.001)
            await give_turns()
            assert len(sink.batches) == attempt, "not a moment earlier"
            clock.advance(0.001)
        await until(lambda: link.at(2))
        cursor = await link.cursor()
        assert (cursor.state, cursor.attempts, cursor.last_error) == (LinkState.RUNNING, 0, "")
    assert [parcel.attempts for parcel in sink.batches] == [1, 2, 3, 4, 5, 6, 7]
    assert await rows(log, batches, "attempts") == [(7,)]


async def test_a_link_leaves_a_line_when_its_trouble_changes_and_when_it_ends(
    log: EventLog, topic: int, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="eventd.egress")
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.answers.extend([DOWN, DOWN, Blocked("http_403", "go away")])
    async with run_consumer(log, sink, topic) as link:
        for attempt, state in enumerate((LinkState.BACKING_OFF, LinkState.BACKING_OFF, LinkState.BLOCKED), start=1):
            await held(link, state, attempt)
            clock.advance(10)
        await until(lambda: link.at(1))
        await publish(log, topic, "b")
        await until(lambda: link.at(2))
    told = [(record.message, getattr(record, "reason", "")) for record in caplog.records]
    assert told == [("link backing off", "timeout"), ("link blocked", "http_403"), ("link recovered", "")]


async def test_jitter_only_shortens(log: EventLog, topic: int, clock: ManualClock) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.answers.extend([DOWN] * 2)
    async with run_consumer(log, sink, topic, chance=0.5) as link:
        await held(link, LinkState.BACKING_OFF, 1)
        assert clock.waits == [pytest.approx(0.75)]
        clock.advance(0.75)
        await held(link, LinkState.BACKING_OFF, 2)
        assert clock.waits == [pytest.approx(1.5)]


@pytest.mark.parametrize(("asked", "seconds"), [(0.1, 1), (3, 3), (10**6, 8)])
async def test_the_time_a_destination_asks_for_is_respected(
    log: EventLog, topic: int, clock: ManualClock, asked: float, seconds: float
) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.answers.append(LinkUnavailable("http_429", "slow down", retry_after=asked))
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.BACKING_OFF)
        assert clock.waits == [pytest.approx(seconds)]


async def test_a_link_that_is_refused_is_only_probed(log: EventLog, topic: int, clock: ManualClock) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.answers.extend([Blocked("http_401", "wrong key")] * 2)
    async with run_consumer(log, sink, topic) as link:
        for attempt in (1, 2):
            await held(link, LinkState.BLOCKED, attempt)
            assert clock.waits == [pytest.approx(8)]
            clock.advance(8)
        await until(lambda: link.at(1))
    assert sink.taken == ["a"], "and nothing was skipped"


async def test_what_this_node_lacks_is_a_failure_that_waits_for_a_change(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.opening.append(LinkError("no_signing_key", "no key to sign with"))
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.FAILED)
        assert ((await link.cursor()).reason, clock.waits) == ("no_signing_key", [pytest.approx(8)])


async def test_one_destination_that_is_down_delays_no_other(log: EventLog, topic: int) -> None:
    await publish(log, topic, "a")
    dead, alive = ScriptedSink("peer:g/dead"), ScriptedSink("peer:g/alive")
    hangs, told = dead.later()
    dead.answers.append(hangs)
    async with run_consumer(log, dead, topic), run_consumer(log, alive, topic) as link:
        await until(lambda: dead.batches)
        await publish(log, topic, "b", "c")
        await until(lambda: link.at(3))
        assert dead.taken == []
        told.cancel()


async def test_a_sign_of_life_shortens_the_wait_to_that_of_a_first_failure(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.answers.extend([DOWN] * 4)
    async with run_consumer(log, sink, topic) as link:
        for attempt, seconds in enumerate([1, 2, 4], start=1):
            await held(link, LinkState.BACKING_OFF, attempt)
            clock.advance(seconds)
        await held(link, LinkState.BACKING_OFF, 4)
        assert clock.waits == [pytest.approx(8)]
        link.consumer.wake()
        await until(lambda: clock.waits == [pytest.approx(1)])
        clock.advance(1)
        await until(lambda: link.at(1))


STEPS = pytest.mark.parametrize("step", [-86400, 86400], ids=["back", "forward"])


@STEPS
async def test_a_step_of_the_wall_clock_moves_no_try(log: EventLog, topic: int, clock: ManualClock, step: int) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.answers.extend([DOWN] * 4)
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.BACKING_OFF, 1)
        clock.set_wall(clock.now() + step * SECOND)
        for attempt, seconds in enumerate([1, 2, 4], start=1):
            await held(link, LinkState.BACKING_OFF, attempt)
            waits = [pytest.approx(seconds)]
            await until(lambda waits=waits: clock.waits == waits)  # type: ignore[misc]
            link.consumer.look_again()  # as a declaration has it do
            await give_turns()
            await until(lambda waits=waits: clock.waits == waits)  # type: ignore[misc]
            clock.advance(seconds)
        await held(link, LinkState.BACKING_OFF, 4)
        clock.set_wall(clock.now() - step * SECOND)
        link.consumer.wake()
        await until(lambda: clock.waits == [pytest.approx(1)], "a sign of life to end the rest")
        clock.advance(1)
        await until(lambda: link.at(1))


@STEPS
async def test_a_rest_that_was_begun_before_a_restart_is_no_longer_than_it_was(
    log: EventLog, topic: int, clock: ManualClock, step: int
) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.answers.extend([DOWN] * 3)
    async with run_consumer(log, sink, topic) as link:
        for attempt, seconds in enumerate([1, 2], start=1):
            await held(link, LinkState.BACKING_OFF, attempt)
            clock.advance(seconds)
        await held(link, LinkState.BACKING_OFF, 3)
        clock.advance(1)
    await until(lambda: not clock.waits)
    clock.set_wall(clock.now() + step * SECOND)
    async with run_consumer(log, sink, topic) as link:
        if step < 0:
            await until(lambda: clock.waits == [pytest.approx(4)], "the delay that was chosen, as if it had just begun")
            clock.advance(4)
        await until(lambda: link.at(1))


async def test_a_sign_of_life_does_not_disturb_a_transfer(log: EventLog, topic: int) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    hangs, told = sink.later()
    sink.answers.append(hangs)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.batches)
        link.consumer.wake()
        await give_turns()
        told.set_result(sink.take)
        await until(lambda: link.at(1))
    assert (len(sink.batches), sink.taken) == (1, ["a"])


async def test_what_a_partial_answer_took_is_settled_and_the_rest_is_tried_again(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, "a", "b", "c", "d")
    sink = ScriptedSink(NAME)
    sink.answers.append(sink.take_until("b", DOWN))
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.BACKING_OFF, 1)
        cursor = await link.cursor()
        assert (cursor.position, cursor.sent_upto, cursor.attempted_upto) == (2, 2, 4)
        clock.advance(1)
        await until(lambda: link.at(4))
    assert sink.taken == ["a", "b", "c", "d"]
    assert [(parcel.after, parcel.upto) for parcel in sink.batches] == [(0, 4), (2, 4)]
    assert await rows(log, batches, "after", "upto") == [(0, 2), (2, 4)]


async def test_what_came_after_a_failure_has_not_failed(log: EventLog, topic: int, clock: ManualClock) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME, page=(1, 1 << 20))
    sink.answers.append(DOWN)
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.BACKING_OFF, 1)
        await publish(log, topic, "b")
        clock.advance(1)
        await until(lambda: link.at(2))
    tries = [([record.event_id for record in parcel.records], parcel.attempts) for parcel in sink.batches]
    assert tries == [(["a"], 1), (["a"], 2), (["b"], 1)]


async def test_progress_makes_the_next_failure_a_first_one(log: EventLog, topic: int, clock: ManualClock) -> None:
    await publish(log, topic, "a", "b")
    sink = ScriptedSink(NAME)
    sink.answers.extend([DOWN, DOWN, sink.take_until("a", DOWN)])
    async with run_consumer(log, sink, topic) as link:
        for attempt, seconds in enumerate([1, 2], start=1):
            await held(link, LinkState.BACKING_OFF, attempt)
            clock.advance(seconds)
        await until(lambda: link.at(1))
        await held(link, LinkState.BACKING_OFF, 1)
        assert clock.waits == [pytest.approx(1)]


async def test_passing_over_what_must_not_be_sent_is_no_success_of_the_link(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME, reached=False)
    sink.answers.append(DOWN)
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.BACKING_OFF, 1)
        sink.spoils = lambda record: "expired"
        clock.advance(1)
        await until(lambda: link.at(1))
        cursor = await link.cursor()
        assert (cursor.state, cursor.attempts, cursor.succeeded_at) == (LinkState.BACKING_OFF, 1, None)
    assert await rows(log, batches, "exceptions", "status") == [('[[1,"expired"]]', 0)]


async def test_a_link_that_only_a_delivery_can_test_retries_nothing_when_nothing_is_left(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, "a", "b")
    sink = ScriptedSink(NAME, page=(1, 1 << 20), reached=False, unknown=True)
    sink.answers.extend([DOWN, DOWN])
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.BACKING_OFF, 1)
        await log.database.write(evict, topic, EvictionLimits(max_records=1, keep_undelivered=False), now=clock.now())
        clock.advance(1)
        await held(link, LinkState.BACKING_OFF, 2)
        await log.database.write(evict, topic, EvictionLimits(max_records=0, keep_undelivered=False), now=clock.now())
        clock.advance(2)
        await held(link, LinkState.RUNNING, 0)
        cursor = await link.cursor()
        assert (cursor.last_error, cursor.retry_at, cursor.succeeded_at) == ("", None, None), "nothing was delivered"


async def test_a_link_that_answers_again_is_shown_as_running_without_anything_to_send(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    sink = ScriptedSink(NAME)
    sink.opening.append(DOWN)
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.BACKING_OFF, 1)
        clock.advance(1)
        await until(lambda: sink.opened == 2)

        async def running() -> bool:
            return (await link.cursor()).state is LinkState.RUNNING

        await until(running)


# --- several under way --------------------------------------------------------------------------------------------


async def test_several_parcels_are_under_way_and_settle_in_order(log: EventLog, topic: int) -> None:
    await publish(log, topic, *"abcdefgh")
    sink = ScriptedSink(NAME, window=3, page=(2, 1 << 20))
    waiting = [sink.later() for _ in range(4)]
    sink.answers.extend(answer for answer, _ in waiting)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: len(sink.batches) == 3)
        await give_turns()
        assert len(sink.batches) == 3, "no more than the window"
        waiting[2][1].set_result(sink.take)
        waiting[1][1].set_result(sink.take)
        await until(lambda: len(sink.taken) == 4)
        assert (await link.cursor()).position == 0, "the first is not done"
        waiting[0][1].set_result(sink.take)
        await until(lambda: link.at(6))
        waiting[3][1].set_result(sink.take)
        await until(lambda: link.at(8))
    assert [(p.after, p.upto) for p in sink.batches] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert await rows(log, batches, "after", "upto") == [(0, 2), (2, 4), (4, 6), (6, 8)]


async def test_at_the_end_of_its_cursor_it_waits_for_the_answer_and_reads_nothing(log: EventLog, topic: int) -> None:
    await publish(log, topic, "a", "b", "later")
    sink = CountingSink(NAME, window=3)
    answer, told = sink.later()
    sink.answers.append(answer)
    async with run_consumer(log, sink, topic, until=2) as link:
        await until(lambda: sink.batches)
        for _ in range(20):  # while it would read about as often
            await link.cursor()
        assert sink.reads <= 2
        told.set_result(sink.take)
        await until(link.task.done)
    assert sink.taken == ["a", "b"]


@dataclass
class CountingSink(ScriptedSink):
    """Counts how often it was asked to read."""

    reads: int = 0

    async def read(self, log: EventLog, cursor: Cursor, after: int) -> MatchingPage[Record]:
        self.reads += 1
        return await super().read(log, cursor, after)


async def test_when_the_first_fails_those_behind_it_are_given_up_and_sent_again(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, *"abcdef")
    sink = ScriptedSink(NAME, window=3, page=(2, 1 << 20))
    first, second, third = (sink.later() for _ in range(3))
    sink.answers.extend([first[0], second[0], third[0]])
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: len(sink.batches) == 3)
        second[1].set_result(sink.take)  # done, but not settled: the cursor is not there yet
        first[1].set_result(DOWN)
        await held(link, LinkState.BACKING_OFF, 1)
        assert third[1].cancelled()
        assert ((await link.cursor()).position, (await link.cursor()).attempted_upto) == (0, 6)
        clock.advance(1)
        await until(lambda: link.at(6))
    assert [r.event_id for parcel in sink.batches[3:] for r in parcel.records] == [*"abcdef"]
    assert await rows(log, batches, "after", "upto") == [(0, 2), (2, 4), (4, 6)]


# --- from outside -------------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_a_pause_gives_up_what_is_under_way_and_a_resumption_sends_it_at_once(
    log: EventLog, database: Database, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    hangs, told = sink.later()
    sink.answers.append(hangs)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.batches)
        await database.write(set_paused, NAME, at=NOW, by="ann")
        link.consumer.reread()
        await until(told.cancelled)
        await publish(log, topic, "b")
        link.consumer.reread()  # more than once does no harm
        await give_turns()
        assert (len(sink.batches), clock.waits) == (1, []), "a pause has no end of its own"
        await database.write(set_paused, NAME, at=None, by="")
        link.consumer.reread()
        await until(lambda: link.at(2))
    assert sink.taken == ["a", "b"]


async def test_a_signal_between_looking_and_resting_is_not_lost(
    log: EventLog, database: Database, topic: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursor is read as paused, then resumed and announced, before the consumer begins to rest."""
    await publish(log, topic, "a")
    await database.write(create_cursor, NAME, kind="peer", topic_id=topic, position=0, now=NOW)
    await database.write(set_paused, NAME, at=NOW, by="ann")
    sink = ScriptedSink(NAME)
    read = database.read_for_delivery
    links: list[RunningConsumer] = []

    async def reading(fn: Any, *args: Any, **kwargs: Any) -> Any:
        found = await read(fn, *args, **kwargs)
        if fn.__name__ == "read_cursor" and found.paused_at is not None:
            await database.write(set_paused, NAME, at=None, by="")
            links[0].consumer.reread()
        return found

    monkeypatch.setattr(database, "read_for_delivery", reading)
    async with run_consumer(log, sink, topic) as link:
        links.append(link)
        await until(lambda: sink.taken == ["a"])


@BOTH_DATABASES
async def test_it_ends_when_the_cursor_is_removed(log: EventLog, database: Database, topic: int) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: link.at(1))
        await database.write(delete_cursors, [NAME])
        link.consumer.reread()
        await asyncio.wait_for(link.task, 5)


@BOTH_DATABASES
async def test_when_somebody_else_moved_the_cursor_it_goes_on_from_there(log: EventLog, topic: int) -> None:
    await publish(log, topic, "a", "b")
    sink = ScriptedSink(NAME)
    hangs, told = sink.later()
    sink.answers.append(hangs)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.batches)
        await log.settle(Step(NAME, 0, 1, 1, NOW))
        told.set_result(sink.take)
        await until(lambda: link.at(2))
    assert [(p.after, p.upto) for p in sink.batches] == [(0, 2), (1, 2)]
    assert await rows(log, batches, "after", "upto") == [(1, 2)], "the step that lost its fence left no proof"


@BOTH_DATABASES
async def test_when_another_selection_was_declared_it_settles_nothing_and_waits_to_be_replaced(
    log: EventLog, database: Database, topic: int
) -> None:
    await publish(log, topic, "a", "b")
    sink = ScriptedSink(NAME)
    hangs, told = sink.later()
    sink.answers.append(hangs)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.batches)
        await database.write(declare_selection, NAME, 2, {}, NOW)
        told.set_result(sink.take)
        await until(lambda: link.consumer._resting)
        await publish(log, topic, "c")
        link.consumer.wake()
        await give_turns()
        assert await link.at(0)
    assert [(p.after, p.upto) for p in sink.batches] == [(0, 2)]
    assert await rows(log, batches, "id") == []


async def test_told_to_finish_it_settles_what_is_under_way_and_takes_nothing_more(log: EventLog, topic: int) -> None:
    await publish(log, topic, *"abcdef")
    sink = ScriptedSink(NAME, window=2, page=(2, 1 << 20))
    first, second = sink.later(), sink.later()
    sink.answers.extend([first[0], second[0]])
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: len(sink.batches) == 2)
        link.consumer.finish()
        second[1].set_result(sink.take)
        await give_turns()
        assert not link.task.done()
        first[1].set_result(sink.take)
        await asyncio.wait_for(link.task, 5)
        assert (await link.cursor()).position == 4
    assert sink.taken == [*"cdab"]


async def test_told_to_finish_while_it_rests_it_ends_at_once(log: EventLog, topic: int) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.answers.append(DOWN)
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.BACKING_OFF)
        link.consumer.finish()
        await asyncio.wait_for(link.task, 5)


async def test_a_destination_that_was_started_is_compared_after_what_is_under_way(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    hangs, told = sink.later()
    sink.answers.append(hangs)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.batches)
        clock.advance(REOPEN_AFTER + 1)
        link.consumer.reopen()
        await give_turns()
        assert (sink.opened, len(sink.batches)) == (1, 1), "what is under way is not disturbed"
        told.set_result(sink.take)
        await until(lambda: sink.opened == 2)
        assert await link.at(1)
    assert sink.taken == ["a"]


async def test_a_destination_that_was_started_twice_just_after_a_comparison_is_compared_once_a_second_later(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    sink = ScriptedSink(NAME)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.opened == 1)
        for _ in range(2):
            link.consumer.reopen()
        await give_turns()
        assert sink.opened == 1
        clock.advance(REOPEN_AFTER)
        await until(lambda: sink.opened == 2)
        clock.advance(LONGEST_REOPEN)
        await give_turns()
        assert sink.opened == 2


async def test_no_start_of_a_destination_is_left_out_after_a_comparison_that_was_postponed(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    sink = ScriptedSink(NAME)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.opened == 1)
        clock.advance(0.5)
        link.consumer.reopen()
        clock.advance(0.5)
        await until(lambda: sink.opened == 2)
        clock.advance(0.9)
        link.consumer.reopen()  # it may have been restored from a copy
        clock.advance(2 * REOPEN_AFTER)
        await until(lambda: sink.opened == 3)


async def test_starts_that_follow_each_comparison_are_compared_after_a_pause_that_doubles_until_they_end(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    """As when the destination takes each comparison for a start, and compares its own marks."""
    sink = ScriptedSink(NAME)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.opened == 1)
        for pause in (1, 2, 4, 8, 16, 32, LONGEST_REOPEN, LONGEST_REOPEN):
            before = sink.opened
            link.consumer.reopen()
            clock.advance(pause - 0.1)
            await give_turns()
            assert sink.opened == before
            clock.advance(0.1)
            await until(lambda: sink.opened == before + 1)  # noqa: B023 (awaited before the next round)
        clock.advance(2 * LONGEST_REOPEN + 1)
        link.consumer.reopen()
        await until(lambda: sink.opened == 10)
        link.consumer.reopen()
        clock.advance(REOPEN_AFTER)
        await until(lambda: sink.opened == 11)


async def test_only_a_comparison_of_a_link_that_has_worked_since_its_last_opening_is_no_start(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    sink = ScriptedSink(NAME)
    async with run_consumer(log, sink, topic) as link:

        async def opens(count: int, *, compare: bool) -> bool:
            """Let the link be compared, or read its cursor again, and return what the opening says."""
            clock.advance(LONGEST_REOPEN)
            (link.consumer.reopen if compare else link.consumer.reread)()
            await until(lambda: sink.opened == count)
            return sink.starts[-1]

        await until(lambda: sink.opened == 1)
        assert sink.starts == [True]
        assert not await opens(2, compare=True)
        assert not await opens(3, compare=True)
        assert await opens(4, compare=False), "the cursor was changed: by a new epoch, for example"
        sink.answers.append(DOWN)
        await publish(log, topic, "a")
        await held(link, LinkState.BACKING_OFF)
        assert await opens(5, compare=True), "the link has failed: this node may have lost something, too"
        assert not await opens(6, compare=True)


async def test_a_comparison_that_fails_is_followed_by_an_opening_as_after_a_start(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    sink = ScriptedSink(NAME)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: sink.opened == 1)
        clock.advance(LONGEST_REOPEN)
        sink.opening.append(DOWN)
        link.consumer.reopen()
        await held(link, LinkState.BACKING_OFF)
        clock.advance(BACKOFF.cap)
        await until(lambda: sink.opened == 3)
    assert sink.starts == [True, False, True]


# --- going back ---------------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_a_destination_that_has_less_gets_it_again(log: EventLog, topic: int) -> None:
    await publish(log, topic, *"abcd")
    sink = ScriptedSink(NAME, page=(2, 1 << 20))
    sink.answers.extend([sink.take, Rewind(0, "the peer is at 0")])
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: link.at(4))
        assert (await link.cursor()).rewound_from == 2
    assert sink.taken == [*"ababcd"]
    assert sink.batches[2].after == 0


async def test_a_cursor_that_was_moved_meanwhile_is_not_rewound_and_no_database_is_blamed(
    log: EventLog, topic: int
) -> None:
    await publish(log, topic, *"abcd")
    sink = ScriptedSink(NAME, page=(2, 1 << 20))
    hangs, told = sink.later()
    sink.answers.extend([sink.take, hangs])
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: len(sink.batches) == 2)
        await log.database.write(move_cursor, NAME, to=1, now=NOW)
        told.set_exception(Rewind(0, "the peer is at 0"))
        await until(lambda: link.at(4))
        assert (await link.cursor()).rewound_from is None
    assert sink.taken == [*"abbcd"]
    assert [batch.after for batch in sink.batches] == [0, 2, 1, 3]


@pytest.mark.parametrize("to", [2, 3, 100])
async def test_a_destination_that_claims_to_have_more_cannot_make_us_skip(
    log: EventLog, topic: int, clock: ManualClock, to: int
) -> None:
    await publish(log, topic, *"abcd")
    sink = ScriptedSink(NAME, page=(2, 1 << 20))
    sink.answers.extend([sink.take, Rewind(to, f"the peer stands at {to}")])
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.BACKING_OFF, 1)
        cursor = await link.cursor()
        assert (cursor.position, cursor.reason, cursor.last_error) == (2, "out_of_step", f"the peer stands at {to}")
        clock.advance(1)
        await until(lambda: link.at(4))
    assert sink.taken == [*"abcd"]


async def test_a_destination_that_goes_back_again_and_again_is_given_time(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    await publish(log, topic, *"abcd")
    sink = ScriptedSink(NAME, page=(2, 1 << 20))
    sink.answers.extend([sink.take, Rewind(0, "the peer is at 0")] * 6)
    async with run_consumer(log, sink, topic) as link:
        for times, seconds in ((2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 8.0)):
            await until(lambda times=times: len(sink.batches) == 2 * times)  # type: ignore[misc]
            await held(link, LinkState.BACKING_OFF)
            cursor = await link.cursor()
            assert (cursor.position, cursor.reason, clock.waits) == (0, "rewinds", [seconds])
            assert cursor.last_error == f"the peer's mark went back {times} times: the peer is at 0"
            link.consumer.wake()  # its calls do not shorten that
            await give_turns()
            assert len(sink.batches) == 2 * times
            clock.advance(seconds)
        await until(lambda: link.at(4))
        await publish(log, topic, "e")
        await until(lambda: link.at(5))
        clock.advance(CALM + 1)
        sink.answers.append(Rewind(0, "the peer is at 0"))
        await publish(log, topic, "f")
        await until(lambda: link.at(6))  # once is no habit
    assert sink.taken[-6:] == [*"abcdef"]


# --- idle ---------------------------------------------------------------------------------------------------------


async def test_passing_what_is_no_concern_of_it_is_written_down_in_time(
    log: EventLog, topic: int, clock: ManualClock
) -> None:
    sink = ScriptedSink(NAME, matches=lambda record: record.event_id.startswith("mine"))
    await publish(log, topic, "mine1")
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: link.at(1))
        await publish(log, topic, "x", "y")
        await until(lambda: clock.waits)
        assert clock.waits == [pytest.approx(IDLE_WRITE)]
        clock.advance(IDLE_WRITE - 0.001)
        await publish(log, topic, "z")
        await until(lambda: clock.waits == [pytest.approx(0.001)], "the time is not begun anew")
        assert (await link.cursor()).position == 1
        clock.advance(0.001)
        await until(lambda: link.at(4))
        assert ((await link.cursor()).sent_upto, clock.waits) == (1, [])
        await publish(log, topic, "x2", "mine2")
        await until(lambda: link.at(6))
    assert [(p.after, p.upto) for p in sink.batches] == [(0, 1), (1, 6)], "the ranges stay contiguous"
    assert await rows(log, batches, "after", "upto") == [(0, 1), (1, 6)]


async def test_passing_by_is_written_with_the_next_settle(log: EventLog, topic: int, clock: ManualClock) -> None:
    sink = ScriptedSink(NAME, matches=lambda record: record.event_id.startswith("mine"))
    await publish(log, topic, "x", "mine", "y")
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: link.at(3))
    assert clock.waits == []


# --- a repair -----------------------------------------------------------------------------------------------------

REPAIR = "repair:g/b/1"


@BOTH_DATABASES
async def test_a_repair_ends_and_removes_itself(log: EventLog, database: Database, topic: int) -> None:
    await publish(log, topic, *"abcdef")
    sink = ScriptedSink(REPAIR, page=(2, 1 << 20), matches=lambda record: record.event_id != "d")
    async with run_consumer(log, sink, topic, kind="repair", position=1, until=5) as link:
        await asyncio.wait_for(link.task, 5)
    assert sink.taken == [*"bce"]
    assert await database.read(read_cursors) == []


async def test_a_repair_without_anything_to_send_ends_too(log: EventLog, database: Database, topic: int) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(REPAIR, matches=lambda record: False)
    async with run_consumer(log, sink, topic, kind="repair", until=1) as link:
        await asyncio.wait_for(link.task, 5)
    assert await database.read(read_cursors) == []


@BOTH_DATABASES
async def test_what_a_repair_leaves_behind_is_kept_with_the_peer(log: EventLog, database: Database, topic: int) -> None:
    await publish(log, topic, "a", "poison", "c")
    await database.write(create_cursor, NAME, kind="peer", topic_id=topic, position=3, now=NOW)
    sink = ScriptedSink(REPAIR)

    def answer(parcel: Any) -> Ack:
        ack = sink.refuse("poison")(parcel)  # type: ignore[operator]
        return replace(ack, batches=[replace(batch, cursor=NAME) for batch in ack.batches])

    sink.answers.append(answer)
    async with run_consumer(log, sink, topic, kind="repair", until=3) as link:
        await asyncio.wait_for(link.task, 5)
    assert await rows(log, batches, "cursor") == [(NAME,)]
    assert await rows(log, dead_letters, "cursor", "event_id") == [(NAME, "poison")]


# --- faults of our own --------------------------------------------------------------------------------------------


async def test_a_fault_in_one_link_is_shown_and_ends_neither_it_nor_the_others(
    log: EventLog, topic: int, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(log, topic, "a")
    faulty, sound = ScriptedSink("peer:g/faulty"), ScriptedSink("peer:g/sound")
    faulty.answers.append(ZeroDivisionError("a secret"))
    with caplog.at_level(logging.ERROR, "eventd.egress"):
        async with run_consumer(log, faulty, topic) as link, run_consumer(log, sound, topic) as other:
            await held(link, LinkState.FAILED)
            cursor = await link.cursor()
            assert (cursor.reason, cursor.last_error) == ("internal", "ZeroDivisionError in this node; see its log")
            await publish(log, topic, "b")
            await until(lambda: other.at(2))
            clock.advance(8)
            await until(lambda: link.at(2))
    task, record = caplog.records
    assert (task.message, vars(task)["task"]) == ("task failed", "peer:g/faulty 1")
    assert (record.message, vars(record)["cursor"]) == ("consumer failed", "peer:g/faulty")


async def test_a_fault_that_cannot_even_be_written_down_is_logged_and_the_link_goes_on(
    log: EventLog, topic: int, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.answers.append(DOWN)

    async def fail(_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(log, "postpone", fail)
    with caplog.at_level(logging.ERROR, "eventd.egress"):
        async with run_consumer(log, sink, topic) as link:
            await until(lambda: clock.waits)
            clock.advance(BROKEN_WAIT)
            await until(lambda: link.at(1))
    assert [record.message for record in caplog.records] == ["consumer failed"]


async def test_an_error_of_ours_is_shown_in_its_own_words(log: EventLog, topic: int) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    sink.opening.append(Invalid("the endpoint is nonsense", hint="correct it"))
    async with run_consumer(log, sink, topic) as link:
        await held(link, LinkState.FAILED)
        cursor = await link.cursor()
        assert (cursor.reason, cursor.last_error) == ("invalid_request", "the endpoint is nonsense (correct it)")


@BOTH_DATABASES
@pytest.mark.parametrize("question", ["read_cursor", "read_matching"])
async def test_trouble_with_the_database_is_no_fault_of_the_link(
    log: EventLog,
    database: Database,
    topic: int,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    question: str,
) -> None:
    await publish(log, topic, "a")
    sink = ScriptedSink(NAME)
    caplog.set_level(logging.INFO, "eventd.egress")
    read, troubles = database.read_for_delivery, [DatabaseUnavailable("locked"), DatabaseUnavailable("locked")]

    async def reading(fn: Any, *args: Any, **kwargs: Any) -> Any:
        if fn.__name__ == question and troubles:
            raise troubles.pop()
        return await read(fn, *args, **kwargs)

    monkeypatch.setattr(database, "read_for_delivery", reading)
    async with run_consumer(log, sink, topic) as link:
        for left in (1, 0):
            await until(lambda left=left: len(troubles) == left and clock.waits)  # type: ignore[misc]
            assert clock.waits == [pytest.approx(BROKEN_WAIT)]
            clock.advance(BROKEN_WAIT)
        await until(lambda: link.at(1))
        assert (await link.cursor()).state is LinkState.RUNNING
        await until(lambda: len(caplog.records) == 2, "the end of the trouble to be logged")
    assert await database.read(fetch, "SELECT attempts FROM cursors") == [(0,)]
    begun, ended = [vars(record) for record in caplog.records]  # two tries, one line
    assert (begun["message"], begun["reason"], begun["error"]) == ("link failed", "database", "locked")
    assert ended["message"] == "link recovered"
    assert begun["cursor"] == ended["cursor"] == NAME


async def test_cancelled_it_leaves_nothing_running(log: EventLog, topic: int) -> None:
    await publish(log, topic, *"abcd")
    sink = ScriptedSink(NAME, window=2, page=(2, 1 << 20))
    waiting = [sink.later() for _ in range(2)]
    sink.answers.extend(answer for answer, _ in waiting)
    async with run_consumer(log, sink, topic) as link:
        await until(lambda: len(sink.batches) == 2)
        link.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await link.task
        assert all(told.cancelled() for _, told in waiting)
        assert (await link.cursor()).state is LinkState.RUNNING
