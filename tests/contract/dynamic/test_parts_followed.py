"""A running node's effective configuration is updated when a part changes, and when one expires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from eventd.dynamic.effective import BROKEN_SECONDS, LONGEST_WAIT, Following, Snapshot, Versions, note_content
from eventd.dynamic.part import form_part
from eventd.errors import DatabaseFault, EventdError
from eventd.log.core.head import read_head
from eventd.plugins.contract.contract import Result
from eventd.store.engine.database import Database
from eventd.store.engine.statements import execute
from eventd.store.parts.parts import delete_part, put_part, withdraw
from eventd.store.rows.generations import read_noted
from eventd.store.rows.registry import announce, put_resource, read_resources
from eventd.testing import NOW, ManualClock, event, give_turns, until
from tests.support.fresh import on_sqlite
from tests.unit.dynamic.samples import NET, route

SECOND = 1_000_000
OWNER = "EventSubscription/claims"


@pytest.fixture
def following(database: Database, clock: ManualClock) -> Following:
    return Following(database, clock)


@pytest.fixture
async def run(following: Following) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Start the task of the node."""
    tasks: list[asyncio.Task[None]] = []

    async def start() -> None:
        tasks.append(asyncio.get_running_loop().create_task(following.run_for_ever()))

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def give(
    database: Database, name: str, *, ttl: int = 60 * SECOND, now: int = NOW, event_id: str = "", **spec: Any
) -> str:
    result = Result(observed_at=now, ttl=ttl, resources=[route(name, **spec)])
    events = [event(event_id or f"e-{name}", subject=name)]
    part = form_part(owner=OWNER, events=events, result=result, plugin="p", clamp=False, grace=SECOND, now=now)
    database.write_now(put_part, part, now)
    return part.source


def declare(database: Database, name: str, **spec: Any) -> None:
    def put(conn: Any) -> None:
        put_resource(conn, api_version=NET, kind="IPv4Route", name=name, annotations={}, spec=spec, now=NOW)
        announce(conn)

    database.write_now(put)


def names(snapshot: Snapshot) -> list[str]:
    return [entry.key.name for entry in snapshot.effective.entries]


@on_sqlite
async def test_what_is_asked_for_is_what_is_there(database: Database, following: Following) -> None:
    declare(database, "fixed")
    give(database, "r1")
    first = await following.current()
    assert (names(first), first.generation, first.changed_at) == (["fixed", "r1"], 1, NOW)
    assert await following.current() is first
    declare(database, "more")
    second = await following.current()
    assert (names(second), second.generation) == (["fixed", "more", "r1"], 2)


@on_sqlite
async def test_only_another_content_is_another_generation(
    database: Database, following: Following, clock: ManualClock
) -> None:
    source = give(database, "r1")
    first = await following.current()
    clock.advance(5)
    give(database, "r1", ttl=90 * SECOND)  # the same for longer
    second = await following.current()
    assert (second.generation, second.etag, second.changed_at) == (1, first.etag, NOW)
    assert second.effective.next_change == NOW + 90 * SECOND
    give(database, "r1", gateway="other")
    assert (await following.current()).generation == 2
    database.write_now(delete_part, source)
    assert (await following.current()).generation == 3
    give(database, "r1")
    fourth = await following.current()
    assert (fourth.generation, fourth.etag) == (4, first.etag)
    assert fourth.id != first.id


@on_sqlite
async def test_a_part_that_expired_while_the_clock_was_ahead_is_in_effect_again_once_the_clock_is_right(
    database: Database, following: Following, clock: ManualClock
) -> None:
    give(database, "r1")
    first = await following.current()
    clock.set_wall(NOW + 86_400 * SECOND)
    assert names(await following.current()) == []
    clock.set_wall(NOW)
    again = await following.current()
    assert (names(again), again.etag) == (["r1"], first.etag)


@on_sqlite
async def test_what_another_event_renews_is_the_same_and_says_which_event(
    database: Database, following: Following, clock: ManualClock
) -> None:
    give(database, "r1")
    first = await following.current()
    clock.advance(5)
    give(database, "r1", now=NOW + 5 * SECOND, event_id="another")
    second = await following.current()
    assert (second.generation, second.etag, second.since(first)) == (first.generation, first.etag, ([], [], []))
    assert second.effective.entries[0].resource["metadata"]["annotations"]["routerd.net/event-id"] == "another"
    give(database, "r1", now=NOW + 5 * SECOND, event_id="a-third", gateway="other")
    third = await following.current()
    assert (third.generation, [entry.key.name for entry in third.since(second).changed]) == (2, ["r1"])


@on_sqlite
async def test_what_ends_is_gone_at_that_moment(database: Database, following: Following, clock: ManualClock) -> None:
    give(database, "r1", ttl=5 * SECOND)
    await following.current()
    clock.advance(4.999999)
    assert names(await following.current()) == ["r1"]
    clock.advance(0.000001)
    gone = await following.current()
    assert (names(gone), gone.generation) == ([], 2)


@on_sqlite
async def test_a_part_that_lost_its_claim_and_one_that_was_withdrawn_are_read_again(
    database: Database, following: Following, clock: ManualClock
) -> None:
    give(database, "r1")
    await following.current()
    give(database, "r1", event_id="later", gateway="new")
    (added,) = (await following.current()).effective.added
    assert added.key.name == "r1"
    database.write_now(withdraw, OWNER, ["r1"], NOW)
    assert names(await following.current()) == ["r1"]
    clock.advance(1)
    assert names(await following.current()) == []


@on_sqlite
async def test_it_goes_on_counting_after_a_restart(database: Database, clock: ManualClock) -> None:
    give(database, "r1")
    before = await Following(database, clock).current()
    again = await Following(database, clock).current()
    assert (again.generation, again.etag, again.changed_at) == (before.generation, before.etag, before.changed_at)
    clock.advance(60)
    assert (await Following(database, clock).current()).generation == 2


@on_sqlite
async def test_a_command_counts_alike_and_writes_nothing(
    database: Database, following: Following, clock: ManualClock
) -> None:
    give(database, "r1")

    async def command() -> Snapshot:
        return await Following(database, clock, counts=False).current()

    alone = await command()
    assert (alone.generation, names(alone)) == (1, ["r1"])
    assert database.read_now(read_noted) is None
    assert (await following.current()).id == (await command()).id == alone.id
    give(database, "r2")
    assert (await command()).generation == 2


@on_sqlite
async def test_what_would_be_if_something_else_were_declared(database: Database, following: Following) -> None:
    declare(database, "fixed")
    give(database, "r1")
    other = [row for row in database.read_now(read_resources) if row.name == "nothing"]
    assert [entry.key.name for entry in (await following.with_startup(other)).entries] == ["r1"]
    assert names(await following.current()) == ["fixed", "r1"]


@on_sqlite
async def test_its_state_moves_with_all_there_is_to_know(database: Database, following: Following) -> None:
    give(database, "r1")
    first = await following.current()
    assert (await following.current()).state == first.state
    give(database, "r1", ttl=90 * SECOND)
    second = await following.current()
    assert second.id == first.id
    assert second.state != first.state


async def test_two_that_follow_give_one_content_one_number(
    database: Database, migrated_url: str, clock: ManualClock
) -> None:
    with closing(Database(migrated_url)) as other:
        one, two = Following(database, clock), Following(other, clock)
        for number in range(5):
            give(database, f"r{number}")
            first, second = await asyncio.gather(*map(asyncio.ensure_future, (one.current(), two.current())))
            assert (first.id, first.generation) == (second.id, number + 1)


def test_a_content_that_was_overtaken_gets_no_number(database: Database) -> None:
    earlier = Versions.of(database.read_now(read_head))
    give(database, "r1")
    later = Versions.of(database.read_now(read_head))
    assert database.write_now(note_content, later, "later", NOW) == (1, "later", NOW)
    assert database.write_now(note_content, earlier, "earlier", NOW) is None
    assert database.write_now(note_content, earlier, "later", NOW) == (1, "later", NOW)
    assert database.write_now(note_content, later._replace(epoch="another"), "of a copy", NOW) is None
    assert database.write_now(note_content, later, "ended", NOW + 1) == (2, "ended", NOW + 1)


async def test_it_comes_to_an_end_while_parts_are_written_all_the_time(
    database: Database, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between each reading and the noting of it something has changed."""
    give(database, "r0")
    write, numbers = database.write, iter(range(1, 5))

    async def write_late(fn: Any, *args: Any, **kwargs: Any) -> Any:
        give(database, f"r{next(numbers)}")
        return await write(fn, *args, **kwargs)

    monkeypatch.setattr(database, "write", write_late)
    assert names(await following.current()) == ["r0"]
    assert names(await following.current()) == ["r0", "r1"]


@on_sqlite
async def test_many_who_ask_at_once_share_a_look(
    database: Database, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them gets what was looked at before it asked, also where something changes between any two looks."""
    await following.current()
    read, looks = database.read, 0

    async def read_slowly(fn: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal looks
        looks += 1
        give(database, f"r{looks}")
        return await read(fn, *args, **kwargs)

    monkeypatch.setattr(database, "read", read_slowly)
    first = asyncio.ensure_future(following.current())
    await until(lambda: looks == 1, "the first look")
    give(database, "asked")
    others = [asyncio.ensure_future(following.current()) for _ in range(20)]
    assert "r1" in names(await first)
    assert [names(snapshot) for snapshot in await asyncio.gather(*others)] == [["asked", "r1", "r2"]] * 20
    assert looks == 2


@on_sqlite
async def test_the_node_is_woken_by_a_sign(
    database: Database, following: Following, run: Callable[[], Awaitable[None]]
) -> None:
    first = await following.current()
    other = following.other_than(first.generation)
    await run()
    give(database, "r1")
    following.changed()
    await asyncio.wait_for(other, 10)
    assert names(await following.current()) == ["r1"]


async def test_and_by_the_time_at_which_something_ends(
    database: Database, following: Following, clock: ManualClock, run: Callable[[], Awaitable[None]]
) -> None:
    give(database, "r1", ttl=5 * SECOND)
    give(database, "r2", ttl=90 * SECOND)
    await run()
    await until(lambda: clock.waits == [5.0], "the wait for the first end")
    other = following.other_than(1)
    clock.advance(5)
    await asyncio.wait_for(other, 10)
    assert names(await following.current()) == ["r2"]
    await until(lambda: clock.waits == [LONGEST_WAIT], "the wait for a look at the clock")


@on_sqlite
async def test_a_sign_that_changes_nothing_wakes_nobody(
    database: Database, following: Following, run: Callable[[], Awaitable[None]]
) -> None:
    give(database, "r1")
    first = await following.current()
    other = following.other_than(first.generation)
    await run()
    give(database, "r1", ttl=90 * SECOND)
    following.changed()
    await until(lambda: following._snapshot is not first, "the new expiry to be known")
    await give_turns()
    assert not other.done()
    assert following.other_than(99).done()
    other.cancel()


async def test_trouble_is_said_once_and_got_over(
    database: Database,
    following: Following,
    clock: ManualClock,
    run: Callable[[], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    database.write_now(execute, "ALTER TABLE parts RENAME TO hidden")
    with caplog.at_level(logging.ERROR, "eventd.dynamic"):
        await run()
        for _ in range(2):
            await until(lambda: clock.waits == [BROKEN_SECONDS], "the pause before the next attempt")
            clock.advance(BROKEN_SECONDS)
            await give_turns()
        await until(lambda: clock.waits == [BROKEN_SECONDS], "the third try")
        assert len([r for r in caplog.records if r.message == "effective configuration failed"]) == 1
        with pytest.raises(EventdError):
            await following.current()
        database.write_now(execute, "ALTER TABLE hidden RENAME TO parts")
        clock.advance(BROKEN_SECONDS)
        await until(lambda: following._snapshot is not None, "a configuration")


@on_sqlite
async def test_a_content_that_could_not_be_noted_is_not_taken_for_known(
    database: Database, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await following.current()
    give(database, "r1")
    write = database.write

    async def fail(*_: Any, **__: Any) -> Any:
        raise DatabaseFault("no")

    monkeypatch.setattr(database, "write", fail)
    with pytest.raises(DatabaseFault):
        await following.current()
    monkeypatch.setattr(database, "write", write)
    assert (await following.current()).generation == first.generation + 1


@on_sqlite
async def test_what_differs_is_named_once_for_all(database: Database, following: Following) -> None:
    give(database, "r1")
    gone = give(database, "r2")
    first = await following.current()
    give(database, "r1", gateway="new")
    give(database, "r3")
    database.write_now(delete_part, gone)
    second = await following.current()
    change = second.since(first)
    assert [entry.key.name for entry in change.added] == ["r3"]
    assert [entry.key.name for entry in change.changed] == ["r1"]
    assert [key.name for key in change.removed] == ["r2"]
    assert second.since(first) is change
