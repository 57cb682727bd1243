"""Cursors: steps follow one another, and a step that fails changes nothing."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from eventd.errors import FenceLost, Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import renew_epoch
from eventd.log.cursors.cursors import (
    Cursor,
    LinkState,
    clear_failures,
    create_cursor,
    delete_cursors,
    next_repair_name,
    read_cursor,
    read_cursors,
    rewind,
    set_paused,
)
from eventd.log.cursors.dead_letters import DeadLetter
from eventd.log.cursors.selections import declare_selection, read_selection
from eventd.log.cursors.steps import DeliveredBatch, Postponement, Step
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import fetch
from eventd.store.rows.registry import announce
from eventd.store.schema.tables import batches, dead_letters, selectors
from eventd.testing import NOW, draft, until
from tests.support.reading import read_records

NAME = "peer:g/b"


@pytest.fixture
async def topic(log: EventLog) -> int:
    """A topic of ten records, and a cursor at its beginning."""
    topic_id = await log.topic("group:g")
    await log.append(topic_id, [draft(f"{n}") for n in range(1, 11)])
    await log.database.write(create_cursor, NAME, kind="peer", topic_id=topic_id, position=0, now=NOW)
    return topic_id


def step(position: int, upto: int, **more: Any) -> Step:
    return Step(NAME, position, upto, upto, NOW + upto, **more)


def batch(after: int, upto: int, **more: Any) -> DeliveredBatch:
    values: dict[str, Any] = {
        "cursor": NAME,
        "batch_id": f"{after}-{upto}",
        "epoch": "e",
        "incarnation": 1,
        "after": after,
        "upto": upto,
        "events": upto - after,
        "bytes": 100,
        "selector_version": 1,
        "exceptions": (),
        "picked": (),
        "attempts": 1,
        "sent_at": NOW,
        "acked_at": NOW + 1,
        "status": 200,
        "protocol": "v2",
        "key_id": "k",
        "receipt": "r",
    }
    return DeliveredBatch(**{**values, **more})


def letter(position: int, reason: str = "bad_body", **more: Any) -> DeadLetter:
    values: dict[str, Any] = {"detail": "no", "attempts": 1, "parked_at": NOW}
    return DeadLetter(NAME, position, 1, f"{position}", reason, **{**values, **more})


def failure(position: int, state: LinkState = LinkState.BACKING_OFF, **more: Any) -> Postponement:
    values: dict[str, Any] = {"reason": "timeout", "error": "no answer", "attempted_upto": 7, "now": NOW + 5}
    return Postponement(NAME, position, state, **{**values, "retry_at": NOW + 9, **more})


async def cursor(log: EventLog) -> Cursor:
    return await log.database.read(read_cursor, NAME)


async def rows(log: EventLog, table: sa.Table, *columns: str) -> list[tuple[Any, ...]]:
    query = sa.select(*[table.c[name] for name in columns]).order_by(*table.primary_key)
    return await log.database.read(lambda conn: [tuple(row) for row in conn.sqlalchemy.execute(query)])


async def test_a_new_cursor_is_where_it_was_put(log: EventLog, topic: int) -> None:
    assert await cursor(log) == Cursor(
        name=NAME, kind="peer", topic_id=topic, position=0, until=None, sent_upto=0, sent_epoch="", rewound_from=None,
        selector_version=1, selection={}, protocol="", state=LinkState.RUNNING, reason="", since=NOW, paused_at=None,
        paused_by="", attempts=0, attempted_upto=0, attempted_at=None, retry_at=None, last_error="", succeeded_at=None,
        started_after=0, created_at=NOW,
    )  # fmt: skip


async def test_making_a_cursor_twice_leaves_the_first(log: EventLog, topic: int) -> None:
    await log.settle(step(0, 4))
    made = await log.database.write(create_cursor, NAME, kind="repair", topic_id=topic, position=9, now=NOW + 9)
    assert not made
    assert (await cursor(log)).position == 4
    other = await log.database.write(
        create_cursor, "repair:g/b/1", kind="repair", topic_id=topic, position=2, until=5, selection={"a": [1]}, now=NOW
    )
    assert other
    assert [(c.name, c.until, c.selection) for c in await log.database.read(read_cursors, "repair")] == [
        ("repair:g/b/1", 5, {"a": [1]})
    ]


async def test_a_cursor_that_is_not_there_is_named(log: EventLog) -> None:
    with pytest.raises(NotFound, match="'peer:g/nobody'"):
        await log.database.read(read_cursor, "peer:g/nobody")
    with pytest.raises(NotFound, match="'peer:g/nobody'"):
        await log.database.write(set_paused, "peer:g/nobody", at=NOW, by="me")
    with pytest.raises(NotFound, match="'peer:g/nobody'"):
        await log.database.read(read_selection, "peer:g/nobody")


# --- settling -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("topic")
async def test_a_step_moves_the_cursor_with_its_proof_and_its_dead_letters(log: EventLog) -> None:
    await log.settle(
        step(0, 5, batches=[batch(0, 5, exceptions=[(2, "expired")])], dead_letters=[letter(3)], protocol="v2")
    )
    moved = await cursor(log)
    assert (moved.position, moved.sent_upto, moved.sent_epoch, moved.protocol) == (5, 5, "e", "v2")
    assert (moved.succeeded_at, moved.attempted_at, moved.attempted_upto) == (NOW + 5, NOW + 5, 5)
    assert await rows(log, batches, "after", "upto", "exceptions", "picked") == [(0, 5, '[[2,"expired"]]', "")]
    assert await rows(log, dead_letters, "cursor", "position", "reason", "detail") == [(NAME, 3, "bad_body", "no")]


@pytest.mark.usefixtures("topic")
async def test_a_step_from_elsewhere_is_refused_whole(log: EventLog) -> None:
    await log.settle(step(0, 5))
    for position in (0, 4, 6):
        with pytest.raises(FenceLost, match=f"'{NAME}' is at 5, this step began at {position}"):
            await log.settle(step(position, 9, batches=[batch(position, 9)], dead_letters=[letter(9)]))
    assert (await cursor(log)).position == 5
    assert await rows(log, batches, "id") == []
    assert await rows(log, dead_letters, "id") == []


@pytest.mark.usefixtures("topic")
async def test_a_step_by_a_selection_that_is_not_in_force_any_more_is_refused_whole(
    log: EventLog, database: Database
) -> None:
    """It may have passed over what is wanted now, and the repair for that ends where the cursor stood."""
    await log.settle(step(0, 3, selector_version=1))
    await database.write(declare_selection, NAME, 2, {}, NOW)
    with pytest.raises(FenceLost, match=f"'{NAME}' selects by another version than 1"):
        await log.settle(step(3, 9, batches=[batch(3, 9)], dead_letters=[letter(9)], selector_version=1))
    assert (await cursor(log)).position == 3
    assert await rows(log, batches, "id") == []
    assert await rows(log, dead_letters, "id") == []
    await log.settle(step(3, 9, selector_version=2))
    assert (await cursor(log)).position == 9


@pytest.mark.usefixtures("topic")
async def test_of_two_consumers_of_one_cursor_each_step_counts_once(log: EventLog, database: Database) -> None:
    other = await EventLog.open(database, log.clock)

    async def consume(by: EventLog) -> int:
        moved = 0
        while (at := (await cursor(by)).position) < 10:
            try:
                await by.settle(step(at, at + 1, batches=[batch(at, at + 1)]))
            except FenceLost:
                continue
            moved += 1
        return moved

    steps = await asyncio.gather(consume(log), consume(other))
    await other.close()
    assert sum(steps) == 10
    assert await rows(log, batches, "after", "upto") == [(n, n + 1) for n in range(10)]


@pytest.mark.usefixtures("topic")
async def test_a_step_without_contact_leaves_what_is_known_of_the_link(log: EventLog) -> None:
    await log.postpone(failure(0))
    await log.settle(step(0, 6, succeeded=False))
    moved = await cursor(log)
    assert (moved.position, moved.state, moved.attempts, moved.retry_at) == (6, LinkState.BACKING_OFF, 1, NOW + 9)
    assert moved.succeeded_at is None


@pytest.mark.usefixtures("topic")
async def test_the_range_of_a_repair_and_what_was_never_sent_leave_the_epoch_of_the_link(log: EventLog) -> None:
    await log.settle(step(0, 2, batches=[batch(0, 2, picked=[1])]))
    await log.settle(step(2, 4, batches=[batch(2, 4, status=0)]))
    assert (await cursor(log)).sent_epoch == ""
    await log.settle(step(4, 5, batches=[batch(4, 5)]))
    assert (await cursor(log)).sent_epoch == "e"
    assert await rows(log, batches, "picked") == [("[1]",), ("",), ("",)]


@pytest.mark.usefixtures("topic")
async def test_parking_a_record_twice_keeps_the_newer_reason(log: EventLog) -> None:
    await log.settle(step(0, 5, dead_letters=[letter(3)]))
    await log.settle(step(5, 6, dead_letters=[letter(3, "too_large", attempts=4, parked_at=NOW + 8), letter(6)]))
    assert await rows(log, dead_letters, "position", "reason", "attempts", "parked_at") == [
        (3, "too_large", 4, NOW + 8),
        (6, "bad_body", 1, NOW),
    ]


# --- failing ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("topic")
async def test_a_failed_try_moves_nothing_and_is_remembered(log: EventLog) -> None:
    await log.settle(step(0, 3))
    await log.postpone(failure(3))
    failed = await cursor(log)
    assert failed == replace(
        await cursor(log), position=3, state=LinkState.BACKING_OFF, reason="timeout", since=NOW + 5, attempts=1,
        attempted_upto=7, attempted_at=NOW + 5, retry_at=NOW + 9, last_error="no answer", succeeded_at=NOW + 3,
    )  # fmt: skip
    await log.postpone(failure(3, now=NOW + 6))
    again = await cursor(log)
    assert (again.attempts, again.since, again.attempted_at) == (2, NOW + 5, NOW + 6), "held up since the first"
    await log.postpone(failure(3, LinkState.BLOCKED, now=NOW + 7))
    assert ((await cursor(log)).attempts, (await cursor(log)).since) == (3, NOW + 7), "and since then in another way"


@pytest.mark.usefixtures("topic")
async def test_a_failure_that_the_cursor_has_overtaken_says_nothing(log: EventLog) -> None:
    await log.settle(step(0, 3))
    await log.postpone(failure(0))
    assert ((await cursor(log)).state, (await cursor(log)).attempts) == (LinkState.RUNNING, 0)


@pytest.mark.usefixtures("topic")
async def test_success_forgets_the_failures(log: EventLog) -> None:
    await log.postpone(failure(0))
    await log.settle(step(0, 3))
    healed = await cursor(log)
    assert (healed.state, healed.reason, healed.attempts, healed.retry_at, healed.last_error) == (
        LinkState.RUNNING, "", 0, None, "",
    )  # fmt: skip
    assert healed.since == NOW + 3
    await log.settle(step(3, 4))
    assert (await cursor(log)).since == NOW + 3, "running since the first success"


@pytest.mark.usefixtures("topic")
async def test_failures_are_forgiven_when_something_changed(log: EventLog, database: Database) -> None:
    await log.postpone(failure(0, LinkState.BLOCKED))
    await database.write(clear_failures, [NAME, "peer:g/nobody"], NOW + 20)
    forgiven = await cursor(log)
    assert (forgiven.state, forgiven.attempts, forgiven.retry_at, forgiven.since) == (
        LinkState.RUNNING, 0, None, NOW + 20,
    )  # fmt: skip
    assert (forgiven.reason, forgiven.last_error) == ("", ""), "a link that runs shows no error of before"
    await database.write(clear_failures, [NAME], NOW + 30)
    assert (await cursor(log)).since == NOW + 20, "there was nothing to forgive"


@pytest.mark.usefixtures("topic")
async def test_a_pause_is_shown_and_hides_the_state_beneath(log: EventLog, database: Database) -> None:
    await log.postpone(failure(0))
    await database.write(set_paused, NAME, at=NOW + 1, by="ann")
    paused = await cursor(log)
    assert (paused.shown_state, paused.state, paused.paused_by) == (LinkState.PAUSED, LinkState.BACKING_OFF, "ann")
    await database.write(set_paused, NAME, at=None, by="")
    assert (await cursor(log)).shown_state is LinkState.BACKING_OFF


# --- going back ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("topic")
async def test_a_rewind_sends_again_from_there(log: EventLog, database: Database) -> None:
    await log.settle(step(0, 8, batches=[batch(0, 8)]))
    await database.write(rewind, NAME, position=8, to=3, now=NOW + 50)
    back = await cursor(log)
    assert (back.position, back.sent_upto, back.sent_epoch, back.rewound_from) == (3, 3, "", 8)
    await log.settle(step(3, 5))
    with pytest.raises(FenceLost, match="moved during the rewind"):
        await database.write(rewind, NAME, position=3, to=0, now=NOW)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("to", [5, 9])
async def test_a_rewind_never_goes_on(log: EventLog, database: Database, to: int) -> None:
    """A step forward would skip undelivered records, and a step to the present position would be retried
    without end."""
    await log.settle(step(0, 5))
    with pytest.raises(Invalid, match=f"at 5 cannot be rewound to {to}"):
        await database.write(rewind, NAME, position=5, to=to, now=NOW)
    assert (await cursor(log)).position == 5


async def test_a_new_history_has_another_epoch_and_keeps_the_cursors(log: EventLog, topic: int) -> None:
    before = await log.look_around()
    await log.settle(step(0, 5))
    epoch = await log.database.write(renew_epoch)
    after = await log.look_around()
    assert after.epoch == epoch != before.epoch
    assert (after.last, (await cursor(log)).position) == (10, 5)
    assert (await read_records(log, topic, 0)).head.epoch == epoch


# --- selections and repairs ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("topic")
async def test_every_version_of_a_selection_is_kept(log: EventLog, database: Database) -> None:
    await database.write(declare_selection, NAME, 1, {"types": ["a"]}, NOW)
    await database.write(declare_selection, NAME, 2, {}, NOW + 1)
    assert await database.read(read_selection, NAME) == (2, {})
    assert await database.read(read_selection, NAME, 1) == (1, {"types": ["a"]})
    assert (await cursor(log)).selector_version == 2


async def test_repairs_of_a_peer_are_numbered_and_do_not_take_each_others_names(database: Database, topic: int) -> None:
    async def begin(node: str) -> str:
        name = await database.write(next_repair_name, "g", node)
        await database.write(create_cursor, name, kind="repair", topic_id=topic, position=0, until=5, now=NOW)
        return name

    assert [await begin("b") for _ in range(11)] == [f"repair:g/b/{n}" for n in range(1, 12)]
    assert await begin("b/1") == "repair:g/b/1/1"
    assert await begin("b") == "repair:g/b/12"
    await database.write(delete_cursors, ["repair:g/b/3"])
    assert await begin("b") == "repair:g/b/13"


async def test_a_deleted_cursor_takes_its_books_with_it_and_no_others(
    log: EventLog, database: Database, topic: int
) -> None:
    await database.write(create_cursor, "peer:g/c", kind="peer", topic_id=topic, position=0, now=NOW)
    for name in (NAME, "peer:g/c"):
        await database.write(declare_selection, name, 1, {}, NOW)
        await log.settle(Step(name, 0, 5, 5, NOW, [batch(0, 5, cursor=name)], [replace(letter(3), cursor=name)]))
    await database.write(delete_cursors, [NAME, "peer:g/nobody"])
    assert [c.name for c in await database.read(read_cursors)] == ["peer:g/c"]
    for table in (batches, dead_letters, selectors):
        assert await rows(log, table, "cursor") == [("peer:g/c",)]


# --- the order of locks -------------------------------------------------------------------------------------------


async def test_a_declaration_in_another_process_and_a_settle_wait_for_each_other_once(
    log: EventLog, database: Database, migrated_url: str, topic: int
) -> None:
    """The head is locked before any cursor, by both: otherwise each would hold what the other waits for."""
    pausing, go_on = threading.Event(), threading.Event()

    def pause(conn: Connection) -> None:
        announce(conn)
        set_paused(conn, NAME, at=NOW, by="ann")
        pausing.set()
        assert go_on.wait(10)
        clear_failures(conn, [NAME], NOW)

    with closing(Database(migrated_url)) as other:
        declared = other.start_write(pause)
        await until(pausing.is_set)
        settled = asyncio.ensure_future(log.settle(step(0, 5)))
        if database.kind == "postgresql":
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            await until(lambda: database.read(fetch, waiting), "the settle to wait for the head")
        go_on.set()
        await asyncio.wrap_future(declared)
        await settled
    assert ((await cursor(log)).position, (await cursor(log)).paused_by) == (5, "ann")
