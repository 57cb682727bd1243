"""The housekeeping of a node: it follows the applied resources, and no failure in it stops the node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eventd.groups.retention import EvictionRound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.core.pace import Pace
from eventd.log.delivery.returned import StoreReturned
from eventd.log.history.relayed import drop_relayed
from eventd.log.retention.evict import Eviction, EvictionLimits, evict
from eventd.log.routemaster.subscriptions import PutSubscriber, SubscriptionSettings
from eventd.log.routemaster.surface_topic import surface_topic_config
from eventd.log.routemaster.tokens import (
    CreateToken,
    DeleteToken,
    ImportTokens,
    NewToken,
    RotateToken,
    SignSubscriber,
)
from eventd.node import retention
from eventd.node.retention import Retention
from eventd.observe.metrics import Metrics
from eventd.resources.group_configuration import GroupConfig, effective
from eventd.runtime.clock import SECOND
from eventd.settings.loading import load
from eventd.settings.model import Settings
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch, insert_row
from eventd.store.rows import links
from eventd.store.rows.actions import (
    KEY_SECONDS,
    ActionFilter,
    ActionRow,
    RepeatedRequest,
    add_action,
    claim_key,
    read_actions,
)
from eventd.store.rows.console_sessions import IDLE, SessionRow, create_session, read_sessions
from eventd.store.rows.links import StoredMark, delete_links, read_inbound_links, write_mark
from eventd.store.rows.registry import read_resources
from eventd.store.rows.returned_events import ReturnedMark, read_returned_marks
from eventd.store.rows.routemaster import SigningKey, read_subscribers, signing_of
from eventd.store.rows.runs import NewRun, RunEnd, RunStatus, begin_run, end_run, read_runs
from eventd.store.rows.tokens import read_tokens
from eventd.store.rows.verifications import (
    MOST_VERIFICATIONS,
    Verification,
    add_verification,
    read_verifications,
)
from eventd.testing import ManualClock, draft, until
from tests.support.group_ledger import GROUP, PEER, GroupLedger

DAY = 24 * 3600 * SECOND
STORED = "SELECT next_seq - 1 - evicted_seq FROM topics WHERE name IN ('group:core', 'group:edge')"


@pytest.fixture
def settings(migrated_url: str) -> Settings:
    return load({"database_url": migrated_url}, {})


@asynccontextmanager
async def pruning(log: EventLog, settings: Settings, groups: Iterable[GroupConfig]) -> AsyncIterator[None]:
    """Retention of these groups and of old rows, from when each was done once."""
    assert isinstance(log.clock, ManualClock)
    clock = log.clock
    chores = Retention(log, settings, Metrics())
    tasks = [*map(asyncio.create_task, (chores.apply_for_ever(lambda: groups), chores.delete_rows_for_ever()))]
    try:
        await until(lambda: len(clock.waits) == 2 or any(task.done() for task in tasks))
        assert not any(task.done() for task in tasks)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_ids_of_a_group_that_another_process_works_for_are_kept_as_long_as_it_says(
    log: EventLog, database: Database, clock: ManualClock, settings: Settings
) -> None:
    """What is forgotten too early is taken for new when it comes again."""
    text = GROUP % ("elsewhere", "retention: {ids: 240h}")
    await GroupLedger(log, clock).call("resources.apply", sources=[{"name": "test", "text": text}])
    topic = await log.topic("group:elsewhere")
    await log.append(topic, [draft("e1")])
    await database.write(evict, topic, EvictionLimits(max_records=0), now=clock.now())
    for days, known in ((5, [("e1",)]), (6, [])):
        clock.advance(days * DAY / SECOND)
        async with pruning(log, settings, []):
            assert await database.read(fetch, "SELECT event_id FROM event_ids") == known


def _marks(conn: Connection, topic_id: int, *names: str, at: int) -> None:
    for name in names:
        write_mark(conn, topic_id, name, StoredMark("epoch", 1, 0, 7), at)


async def test_the_marks_of_invented_senders_are_bounded_and_those_of_peers_stay(
    log: EventLog, database: Database, clock: ManualClock, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_UNDECLARED", 5)
    text = GROUP % ("edge", "") + "---" + PEER % ("edge-b", "edge", "b", "") + "---" + GROUP % ("core", "")
    await GroupLedger(log, clock).call("resources.apply", sources=[{"name": "test", "text": text}])
    edge, core = await log.topic("group:edge"), await log.topic("group:core")

    async def left(topic_id: int) -> set[str]:
        return {link.node for link in await database.read(read_inbound_links, topic_id)}

    begun = clock.now()
    await database.write(_marks, edge, "b", "old", at=begun - 31 * DAY)
    await database.write(_marks, edge, "x0", "x1", at=begun - 2)
    await database.write(_marks, edge, *[f"y{number}" for number in range(4)], at=begun - 1)
    await database.write(_marks, core, "b", "x0", at=begun)
    async with pruning(log, settings, []):
        assert await left(core) == {"b", "x0"}
        strangers = await left(edge) - {"b", "y0", "y1", "y2", "y3"}
        assert len(strangers) == 1
        assert strangers < {"x0", "x1"}
        assert "b" in await left(edge)
    clock.advance(31 * DAY / SECOND)
    async with pruning(log, settings, []):
        assert (await left(edge), await left(core)) == ({"b"}, set())


async def test_a_mark_that_moved_after_it_was_looked_at_stays(log: EventLog, database: Database) -> None:
    topic_id = await log.topic("group:edge")
    await database.write(_marks, topic_id, "x", at=5)
    assert await database.write(delete_links, topic_id, [("x", 4), ("y", 5)]) == 0
    assert await database.write(delete_links, topic_id, [("x", 5)]) == 1


async def test_only_the_senders_heard_of_last_are_shown_where_there_are_many(
    log: EventLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MOST_SHOWN", 3)
    topic_id = await log.topic("group:edge")
    for at, name in enumerate("dacbe"):
        await database.write(_marks, topic_id, name, at=at)
    assert [link.node for link in await database.read(read_inbound_links, topic_id)] == ["b", "c", "e"]
    assert [link.node for link in await database.read(read_inbound_links, topic_id, node="d")] == ["d"]


async def test_the_runs_of_plugins_are_forgotten_but_for_what_is_still_of_use(
    log: EventLog, database: Database, clock: ManualClock, settings: Settings
) -> None:
    """By hand or not, ended or not: who was killed will never end it. The newest of a cursor tells what was tried."""
    ending = RunEnd(status=RunStatus.SUCCEEDED, completed_at=clock.now())
    for name, cursor, ended in (
        *(("hand", "", True), ("killed by hand", "", False)),
        *(("old", "c", True), ("killed", "c", False), ("newest", "c", False)),
    ):
        new = NewRun(plugin=name, trigger="manual", started_at=clock.now(), cursor=cursor)
        run_id = await database.write(begin_run, new)
        if ended:
            await database.write(end_run, run_id, ending)
    clock.advance((settings.run_retention - SECOND) / SECOND)
    await database.write(begin_run, NewRun(plugin="now", trigger="manual", started_at=clock.now()))
    for seconds, left in ((0, 6), (2, 2)):
        clock.advance(seconds)
        async with pruning(log, settings, []):
            assert len(await database.read(read_runs)) == left
    assert [run.plugin for run in await database.read(read_runs)] == ["now", "newest"]


async def test_the_record_of_actions_is_kept_for_its_retention_and_answers_for_two_minutes(
    log: EventLog, database: Database, clock: ManualClock, settings: Settings
) -> None:
    def act(conn: Connection) -> None:
        lock_head(conn)
        add_action(conn, ActionRow(clock.now(), "key", "ci", "", "keys.create", "key a", "{}", "ok", "r"))
        claim_key(conn, request, clock.now())

    request = RepeatedRequest("caller", "key", "content")
    await database.write(act)
    for seconds, rows, answers in ((KEY_SECONDS, 1, 1), (1, 1, 0), (settings.action_retention / SECOND, 0, 0)):
        clock.advance(seconds)
        async with pruning(log, settings, []):
            assert len((await database.read(read_actions, ActionFilter(), None, 9)).rows) == rows
            assert len(await database.read(lambda conn: fetch(conn, "SELECT 1 FROM action_answers"))) == answers


async def test_sessions_of_the_console_are_deleted_once_they_have_ended(
    log: EventLog, database: Database, clock: ManualClock, settings: Settings
) -> None:
    now = clock.now()
    session = SessionRow("a" * 64, "0" * 64, "", "10.0.0.1", now, now, now + DAY)
    for row in (session, session._replace(digest="b" * 64, used_at=now + SECOND)):
        await database.write(create_session, row)
    await database.write(create_session, session._replace(digest="c" * 64, expires_at=now + SECOND))
    ahead = now + 2 * DAY  # so the clock was then, and was corrected
    await database.write(create_session, session._replace(digest="d" * 64, used_at=ahead, expires_at=ahead + DAY))
    for seconds, left in ((0, "bac"), (1, "ba"), (IDLE / SECOND - 1, "b"), (1, "")):
        clock.advance(seconds)
        async with pruning(log, settings, []):
            assert "".join(row.digest[0] for row in await database.read(read_sessions)) == left


async def test_dropped_trees_of_other_nodes_are_deleted(log: EventLog, database: Database, settings: Settings) -> None:
    values: dict[str, str | int | bytes] = {
        "topic_id": 1,
        "origin": f"eventd/g/a/{'a' * 16}",
        "log_key": "",
        "epoch": "",
        "opening": b"",
        "opened_at": 0,
        "size": 1,
        "position": 0,
    }
    await database.write(insert_row, "trees", values)
    await database.write(drop_relayed, 1, "a")
    async with pruning(log, settings, []):
        assert await database.read(fetch, "SELECT id FROM trees") == []


async def test_verifications_are_kept_for_90_days_and_the_newest_20_of_each_peer(
    log: EventLog, database: Database, clock: ManualClock, settings: Settings
) -> None:
    for number in range(MOST_VERIFICATIONS + 2):
        await database.write(add_verification, Verification("edge", "b", f"b{number}", clock.now(), 1, ""))
    await database.write(add_verification, Verification("edge", "c", "c0", clock.now() + 1, 1, ""))
    await database.write(add_verification, Verification("core", "b", "core", clock.now(), 1, ""))

    async def runs(group: str = "edge", peer: str = "") -> list[str]:
        return [one.run for one in await database.read(read_verifications, group, peer, limit=100)]

    assert await runs(peer="b") == [f"b{number}" for number in range(MOST_VERIFICATIONS + 1, 1, -1)]
    assert (await runs())[:2] == ["c0", f"b{MOST_VERIFICATIONS + 1}"]
    for days, left in ((90, MOST_VERIFICATIONS + 1), (0.000001 / 86_400, 1), (1, 0)):
        clock.advance(days * DAY / SECOND)
        async with pruning(log, settings, []):
            assert len(await runs()) == left
    assert await runs("core") == []


async def test_a_fault_in_a_chore_is_logged_and_does_not_end_the_node(
    log: EventLog, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(log.database, "read", fail)
    with caplog.at_level(logging.ERROR, "eventd.housekeeping"):
        async with pruning(log, settings, []):
            pass
    assert [(record.message, vars(record)["job"]) for record in caplog.records] == [("housekeeping failed", "old rows")]


async def test_a_fault_at_one_group_does_not_hold_up_the_others(
    log: EventLog, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = GroupLedger(log, ManualClock())
    for name in ("core", "edge", "west"):
        await ledger.declare(group=name, spec="retention: {maxEvents: 1}")
    configs = (await log.database.read(lambda conn: effective(read_resources(conn)))).values()
    visits: list[str] = []

    async def visit(_: EvictionRound, name: str, *, steps: float) -> Eviction:
        """Fail at one group; the others have more the first time."""
        visits.append(name)
        if name == "core":
            raise ZeroDivisionError
        return Eviction(1, 1, more=visits.count(name) == 1)

    monkeypatch.setattr(EvictionRound, "visit", visit)
    with caplog.at_level(logging.ERROR, "eventd.housekeeping"):
        await Retention(log, settings, Metrics())._apply(configs)
    assert visits == ["core", "edge", "west", "edge", "west"]
    assert [vars(record)["job"] for record in caplog.records] == ["retention of group core"]


async def test_every_group_is_evicted_while_old_ids_become_due_faster_than_they_are_deleted(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    log = await EventLog.open(database, clock)
    ledger = GroupLedger(log, clock)
    for name in ("edge", "core"):
        await ledger.declare(group=name, spec="retention: {maxEvents: 1}")
    configs = list((await database.read(lambda conn: effective(read_resources(conn)))).values())
    deleting = asyncio.Event()

    def delete_some(*_: object, chunk: int, **__: object) -> int:
        """Delete as much as a step may, for ever: a day's ids are always left."""
        deleting.set()
        return chunk

    monkeypatch.setattr(retention, "delete_old_rows", delete_some)
    chores = Retention(log, settings, Metrics())
    endless = asyncio.create_task(chores.delete_rows_for_ever())
    evicting = asyncio.create_task(chores.apply_for_ever(lambda: configs))
    await deleting.wait()
    for turn in range(2):
        for name in ("edge", "core"):
            topic = await log.topic(f"group:{name}")
            await log.append(topic, [draft(f"{turn}-{number}") for number in range(5)])
        clock.advance(settings.prune_interval)
        await until(lambda: database.read_now(fetch, STORED) == [(1,), (1,)])
    assert not endless.done()
    for task in (endless, evicting):
        task.cancel()
    await asyncio.gather(endless, evicting, return_exceptions=True)
    await log.close()


async def test_a_round_of_old_rows_rests_no_longer_than_an_interval(
    log: EventLog, clock: ManualClock, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is old when it begins is deleted; what becomes old meanwhile is left to the next one."""
    hurried: list[bool] = []
    times = set()

    def delete_some(_: Connection, __: object, *, now: int, steady: int, chunk: int) -> int:
        times.add((now, steady))
        clock.advance(settings.prune_interval / 3)
        return chunk if len(hurried) < 5 else 0

    async def write_step(self: Pace, *args: Any, is_behind: bool = False, **named: Any) -> Any:
        hurried.append(is_behind)
        return await step_of(self, *args, is_behind=is_behind, **named)

    step_of = Pace.write_step
    monkeypatch.setattr(retention, "delete_old_rows", delete_some)
    monkeypatch.setattr(Pace, "write_step", write_step)
    await Retention(log, settings, Metrics())._delete_rows()
    assert hurried[:5] == [False, False, False, True, True]
    assert len(times) == 1


async def test_selections_by_which_no_kept_batch_was_made_are_forgotten(
    log: EventLog, database: Database, clock: ManualClock, settings: Settings
) -> None:
    """Each declared change of a selection adds one."""
    books = GroupLedger(log, clock)
    for number in range(5):
        await books.declare(b=f"types: [t{number}]")
        if number == 1:
            await books.publish(draft("e1", type="t1"))
            await books.settle("b", 1)
    versions = "SELECT version FROM selectors WHERE cursor = 'peer:g/b' ORDER BY version"
    found = [version for (version,) in await database.read(fetch, versions)]
    assert len(found) == 5
    async with pruning(log, settings, []):
        assert [version for (version,) in await database.read(fetch, versions)] == found, "batches may be asked about"
    clock.advance(7.1 * DAY / SECOND)
    await database.write(fetch, "UPDATE batches SET acked_at = 0 + ? RETURNING id", (clock.now(),))
    async with pruning(log, settings, []):
        assert [version for (version,) in await database.read(fetch, versions)] == [found[1], found[4]]
    clock.advance(7.1 * DAY / SECOND)
    async with pruning(log, settings, []):
        assert [version for (version,) in await database.read(fetch, versions)] == [found[4]]


async def test_expired_tokens_go_with_what_belongs_to_them_and_those_of_the_settings_stay(
    log: EventLog, clock: ManualClock, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of the settings that was rotated would be valid again after the next start if its row was gone."""
    monkeypatch.setattr(retention, "CHUNK", 3)  # so that they are deleted in several transactions
    given = {"database_url": migrated_url, "routemaster_listen": "127.0.0.1:0", "routemaster_clients": "named--0"}
    settings = load(given, {})
    old, named = NewToken("app", "app--0"), NewToken("named", "named--0")
    await log.submit(ImportTokens([old, named]))
    identities = {token.label: token.identity for token in await log.database.read(read_tokens)}
    for number in range(7):
        await log.submit(RotateToken(identities["app"], f"app--{number + 1}", 3600 * SECOND))
    await log.submit(RotateToken(identities["named"], "named--1", 3600 * SECOND))
    ends = await log.submit(CreateToken(NewToken("ends", "ends--0")))
    await log.submit(RotateToken(ends.handle, "ends--1", 3600 * SECOND))
    wanted = SubscriptionSettings(("orders",), "https://app.example/", "")
    for identity in (ends.identity, identities["app"]):
        await log.submit(PutSubscriber(identity, wanted, config=surface_topic_config(), random=bytes(16)))
        await log.submit(SignSubscriber(identity, [SigningKey("k", "/key")]))
    await log.submit(DeleteToken("ends--1"))

    async def names() -> list[str]:
        return sorted(token.label for token in await log.database.read(read_tokens))

    for step, expected in ((2 * 3600, 11), (DAY / SECOND - 3700, 11), (3600, 3)):
        clock.advance(step)
        async with pruning(log, settings, ()):
            assert len(await names()) == expected
    assert await names() == ["app", "named", "named"]
    (row,) = await log.database.read(read_subscribers)
    assert row.identity == identities["app"]
    assert await log.database.read(signing_of, ends.identity) == ()
    assert await log.submit(ImportTokens([named])) == 0


async def test_marks_of_returned_events_are_kept_as_long_as_the_ids_of_the_events(
    log: EventLog, database: Database, clock: ManualClock, settings: Settings
) -> None:
    topic = await log.topic("group:edge")
    mark = ReturnedMark("b", clock.now(), "", "no receipt")
    await log.submit(StoreReturned(topic, [draft("e1"), draft("e2")], [mark, mark], ceiling=None))

    def forget(conn: Connection) -> None:
        execute(conn, "DELETE FROM event_ids WHERE event_id = 'e1'")

    await database.write(forget)
    async with pruning(log, settings, []):
        assert await database.read(read_returned_marks, topic, ["e1", "e2"]) == {"e2": mark}
