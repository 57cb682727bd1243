"""The writer groups the units of its callers into commits; the failure of one unit affects no other."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa

from eventd.errors import EventdError, FenceLost, Full, Unavailable
from eventd.log.core.commit import GROUP_RECORDS, Transaction, Turn
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import read_topic
from eventd.log.core.units import Publish
from eventd.log.core.values import AppendResult, Draft, Drafts, Outcome
from eventd.log.cursors.cursors import create_cursor, read_cursor
from eventd.log.cursors.steps import Step, apply_step, check_fence
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from eventd.testing import NOW, ManualClock, draft, until
from tests.support.reading import read_records


@dataclass
class Faulty:
    """A unit that writes something of its own and then fails with an error that is none of ours."""

    topic_id: int
    drafts: Sequence[Draft]
    error: Exception
    cursor = None
    durable = True
    turn = Turn.FRONT
    is_brief = False
    weight = 1

    def admit(self, tx: Transaction) -> Drafts:
        return Drafts.of(self.drafts)

    def finish(self, tx: Transaction, appended: AppendResult) -> None:
        execute(tx.conn, "UPDATE topics SET evicted_seq = 4711 WHERE id = ?", (self.topic_id,))
        raise self.error


@dataclass
class Emitting:
    """What a router does: move a cursor, and append what came of it, in one unit."""

    topic_id: int
    drafts: Sequence[Draft]
    step: Step
    positions: list[int] = field(default_factory=list)
    weight = 1
    durable = True
    turn = Turn.FRONT
    is_brief = False

    @property
    def cursor(self) -> str:
        return self.step.name

    def admit(self, tx: Transaction) -> Drafts:
        check_fence(tx.positions, self.step)
        tx.positions[self.step.name] = self.step.upto
        return Drafts.of(self.drafts)

    def finish(self, tx: Transaction, appended: AppendResult) -> list[int]:
        apply_step(tx.conn, self.step)
        return list(appended.positions)


@contextlib.contextmanager
def counted(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Future[Any]]]:
    """The transactions that the writer was given."""
    begun: list[Future[Any]] = []
    start = database.start_write

    def counting(fn: Callable[[Connection], Any], *, durable: bool = True) -> Future[Any]:
        begun.append(start(fn, durable=durable))
        return begun[-1]

    with monkeypatch.context() as patch:
        patch.setattr(database, "start_write", counting)
        yield begun


def ids_of(unit: str, count: int) -> list[Draft]:
    return [draft(f"{unit}/{n}") for n in range(count)]


async def stored(log: EventLog, topic: int) -> list[str]:
    return [record.event_id for record in (await read_records(log, topic, 0)).items]


async def test_concurrent_appends_share_transactions(
    log: EventLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await log.topic("group:g")
    with counted(database, monkeypatch) as begun:
        appended = await asyncio.gather(*(log.append(topic, [draft(f"{n}")]) for n in range(200)))
    assert [unit.positions[0] for unit in appended] == list(range(1, 201)), "in the order they were handed over"
    assert len(begun) == 1


async def test_what_arrives_during_a_commit_forms_the_next(
    log: EventLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await log.topic("group:g")
    with counted(database, monkeypatch) as begun:
        first = log.submit(Publish(topic, ids_of("first", 1)))
        await until(lambda: begun)
        rest = [log.submit(Publish(topic, ids_of(f"{n}", 1))) for n in range(50)]
        await asyncio.gather(first, *rest)
    assert len(begun) == 2


async def test_a_large_group_is_cut_so_that_nobody_waits_long_behind_it(
    log: EventLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await log.topic("group:g")
    with counted(database, monkeypatch) as begun:
        await asyncio.gather(*(log.append(topic, ids_of(f"{n}", GROUP_RECORDS // 4)) for n in range(9)))
    assert len(begun) == 3


async def test_a_lone_append_does_not_linger(log: EventLog, clock: ManualClock) -> None:
    """The clock stands still: if anything waited for time to pass, this would not return."""
    topic = await log.topic("group:g")
    async with asyncio.timeout(5):
        await log.append(topic, [draft("a")])
    assert clock.waits == []


async def test_a_unit_of_nothing_commits_nothing_and_is_answered(log: EventLog) -> None:
    topic = await log.topic("group:g")
    assert await log.append(topic, []) == AppendResult((), ())
    assert (await log.look_around()).last == 0


@pytest.mark.parametrize(
    "error", [RuntimeError("a fault of ours"), ValueError("another")], ids=lambda e: type(e).__name__
)
async def test_a_failing_unit_is_undone_alone(log: EventLog, database: Database, error: Exception) -> None:
    topic = await log.topic("group:g")
    before = log.submit(Publish(topic, ids_of("before", 2)))
    faulty = log.submit(Faulty(topic, ids_of("faulty", 2), error))
    after = log.submit(Publish(topic, ids_of("after", 2)))
    assert list((await before).positions) == [1, 2]
    with pytest.raises(type(error), match=str(error)):
        await faulty
    assert list((await after).positions) == [3, 4], "the positions of the failed unit are given to the next"
    assert await stored(log, topic) == ["before/0", "before/1", "after/0", "after/1"]
    books = await database.read(read_topic, "group:g")
    assert (books.next_seq, books.ids, (await log.look_around()).last) == (5, 4, 4)
    evicted = await database.read(fetch, "SELECT evicted_seq FROM topics")
    assert evicted == [(0,)], "what the failed unit had written itself is undone"


async def test_a_fault_of_the_database_in_one_unit_is_ours_and_that_units_alone(log: EventLog) -> None:
    """Such as a text with a lone surrogate, which admission should never have let in."""
    topic = await log.topic("group:g")
    good = log.submit(Publish(topic, ids_of("good", 1)))
    bad = log.submit(Publish(topic, [draft("x")._replace(event_id="\ud800")]))
    after = log.submit(Publish(topic, ids_of("after", 1)))
    assert list((await good).positions) == [1]
    with pytest.raises((EventdError, UnicodeEncodeError)):
        await bad
    assert list((await after).positions) == [2]


async def test_the_ids_of_a_failed_unit_are_not_known_afterwards(log: EventLog) -> None:
    topic = await log.topic("group:g")
    with pytest.raises(RuntimeError):
        await log.submit(Faulty(topic, ids_of("x", 3), RuntimeError("no")))
    again = await log.append(topic, ids_of("x", 3))
    assert again.outcomes == [Outcome.NEW] * 3
    assert list(again.positions) == [1, 2, 3]


async def test_a_lost_fence_removes_that_settle_with_its_emits_and_nothing_else(
    log: EventLog, database: Database
) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, ids_of("old", 5))
    await database.write(create_cursor, "router", kind="peer", topic_id=topic, position=0, now=NOW)
    units = [
        log.submit(Emitting(topic, ids_of("first", 1), Step("router", 0, 2, 2, NOW))),
        log.submit(Emitting(topic, ids_of("lost", 1), Step("router", 0, 3, 3, NOW))),  # began where the first began
        log.submit(Emitting(topic, ids_of("next", 1), Step("router", 2, 4, 4, NOW))),
        log.submit(Publish(topic, ids_of("else", 1))),
    ]
    done = await asyncio.gather(*units, return_exceptions=True)
    assert isinstance(done[1], FenceLost)
    assert "is at 2, this step began at 0" in str(done[1])
    assert done[0] == [6]
    assert done[2] == [7]
    assert (await stored(log, topic))[5:] == ["first/0", "next/0", "else/0"]
    assert (await database.read(read_cursor, "router")).position == 4


async def test_a_settle_of_a_cursor_that_is_gone_says_so(log: EventLog) -> None:
    with pytest.raises(FenceLost, match="'nobody' was deleted"):
        await log.settle(Step("nobody", 0, 1, 1, NOW))


async def test_when_the_first_of_two_settles_fails_the_second_does_not_follow_it(
    log: EventLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second began where the first would have ended: without the first its fence is lost."""
    topic = await log.topic("group:g")
    await log.append(topic, ids_of("old", 5))
    await database.write(create_cursor, "router", kind="peer", topic_id=topic, position=0, now=NOW)

    class Failing(Emitting):
        def finish(self, tx: Transaction, appended: AppendResult) -> list[int]:
            super().finish(tx, appended)
            raise RuntimeError("after it was written")

    first = log.submit(Failing(topic, ids_of("first", 1), Step("router", 0, 2, 2, NOW)))
    second = log.submit(Emitting(topic, ids_of("second", 1), Step("router", 2, 4, 4, NOW)))
    done = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(error) for error in done] == [RuntimeError, FenceLost]
    assert (await database.read(read_cursor, "router")).position == 0
    assert len(await stored(log, topic)) == 5


async def test_a_ceiling_refuses_the_unit_that_would_pass_it(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    size = len(draft("1", subject="ä").body.encode())
    units = [log.submit(Publish(topic, [draft(f"{n}", subject="ä")], ceiling=3 * size)) for n in range(5)]
    done = await asyncio.gather(*units, return_exceptions=True)
    assert [type(fate) for fate in done] == [AppendResult] * 3 + [Full] * 2
    assert (await database.read(read_topic, "group:g")).bytes == 3 * size
    with pytest.raises(Full, match=f"limit of {3 * size} bytes") as full:
        await log.submit(Publish(topic, [draft("9")], ceiling=3 * size))
    assert "maxAge" in full.value.hint
    with pytest.raises(Full) as alone:
        await log.submit(Publish(topic, [draft(f"1{n}", subject="ä") for n in range(4)], ceiling=3 * size))
    assert alone.value.hint.startswith("these events alone take "), "retention cannot help"


async def test_a_caller_that_goes_away_takes_nobody_with_it(log: EventLog) -> None:
    topic = await log.topic("group:g")
    callers = [asyncio.ensure_future(log.append(topic, ids_of(f"{n}", 1))) for n in range(20)]
    await asyncio.sleep(0)  # all are queued
    for caller in callers[::2]:
        caller.cancel()
    done = await asyncio.gather(*callers, return_exceptions=True)
    assert [isinstance(fate, asyncio.CancelledError) for fate in done] == [True, False] * 10
    assert await stored(log, topic) == [f"{n}/0" for n in range(1, 20, 2)]
    assert (await log.append(topic, [draft("after")])).outcomes == [Outcome.NEW]


async def test_a_caller_that_goes_away_during_the_commit_leaves_its_facts_behind(
    log: EventLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await log.topic("group:g")
    started: list[object] = []
    monkeypatch.setattr(
        database, "start_write", lambda fn, **how: started.append(fn) or Database.start_write(database, fn, **how)
    )
    go_on = threading.Event()
    busy = Database.start_write(database, lambda _: go_on.wait(20))
    caller = asyncio.ensure_future(log.append(topic, [draft("a")]))
    await until(lambda: started)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()
    await log.close()
    assert busy.result()
    assert await stored(log, topic) == ["a"], "it may have been stored, and here it was: a retry is a duplicate"


async def test_closing_waits_until_all_that_was_taken_is_durable(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    taken = [log.submit(Publish(topic, ids_of(f"{n}", 30))) for n in range(100)]
    await log.close()
    assert all(future.done() for future in taken)
    assert (await database.read(read_topic, "group:g")).ids == 3000
    with pytest.raises(Unavailable, match="stopping"):
        await log.append(topic, [draft("late")])
    await log.close()


async def test_closing_an_idle_log_returns_at_once(log: EventLog) -> None:
    async with asyncio.timeout(5):
        await log.close()


async def test_when_the_transaction_fails_as_a_whole_every_caller_is_told_and_the_next_works(
    log: EventLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await log.topic("group:g")
    with monkeypatch.context() as patch:

        def broken(conn: Connection) -> None:
            raise sa.exc.OperationalError("x", {}, Exception("database is locked"))

        patch.setattr("eventd.log.core.commit.notify_head", broken)
        units = [log.submit(Publish(topic, ids_of(f"{n}", 2))) for n in range(3)]
        done = await asyncio.gather(*units, return_exceptions=True)
    assert all(isinstance(fate, Unavailable) and "another process locks" in fate.hint for fate in done)
    again = await log.append(topic, ids_of("0", 2))
    assert (again.outcomes, list(again.positions)) == ([Outcome.NEW] * 2, [1, 2])


async def test_every_commit_is_timed(database: Database, clock: ManualClock) -> None:
    told: list[tuple[float, int, bool]] = []
    log = await EventLog.open(database, clock, timed=lambda *of_it: told.append(of_it))
    topic = await log.topic("group:g")
    await log.append(topic, ids_of("a", 3))
    await log.append(topic, ids_of("a", 3))
    await log.close()
    assert told == [(0.0, 3, False), (0.0, 0, False)]
