"""Changes of topics, routers and keys: a process does not read its own again, and reads those of others in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest

from eventd.api.keys.valid_keys import Keys
from eventd.dynamic.effective import Following
from eventd.errors import Unavailable
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import announce_topics, lock_head
from eventd.log.topics.topics import DeleteTopic
from eventd.node.topic_changes import BROKEN_SECONDS, REST_SECONDS, TopicChanges
from eventd.runtime.supervisor import Supervisor
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import fetch
from eventd.store.rows.keys import KeyRow, create_key, read_keys
from eventd.testing import ManualClock, give_turns, until
from tests.support.fresh import on_sqlite
from tests.support.routed import RoutedTopics
from tests.support.statements import statements

BURST = 12


class Follower:
    """What a node has to follow changes: one look at the head for each sign, and the readings that it asks for."""

    def __init__(self, log: EventLog, routed: RoutedTopics, clock: ManualClock) -> None:
        assert routed.routing is not None
        self.log = log
        self.keys = Keys(tuple)
        self.following = Following(log.database, clock)
        self.changes = TopicChanges(log, self.keys, routed.routing)

    async def look(self) -> None:
        head = await self.log.look_around()
        self.following.look(head)
        self.changes.look(head)

    async def up_to_date(self) -> bool:
        await self.look()
        [(version,)] = await self.log.database.read(fetch, "SELECT topics_version FROM log_heads")
        return self.log.topic_versions.knows(version)


@pytest.fixture
async def routed(log: EventLog) -> AsyncIterator[RoutedTopics]:
    made = RoutedTopics(log)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def follower(log: EventLog, routed: RoutedTopics, clock: ManualClock) -> AsyncIterator[Follower]:
    """Yield a follower that has read all changes, and is idle."""
    made, supervisor = Follower(log, routed, clock), Supervisor(clock)
    supervisor.keep(made.changes.run_for_ever, "topics")
    await until(made.up_to_date, "the first reading")
    await until(lambda: clock.waits, "the rest after it")
    clock.advance(REST_SECONDS)
    await give_turns()
    yield made
    await supervisor.stop()


@pytest.fixture
async def elsewhere(migrated_url: str, clock: ManualClock) -> AsyncIterator[EventLog]:
    """The log as another process has it open."""
    with closing(Database(migrated_url)) as database:
        opened = await EventLog.open(database, clock)
        yield opened
        await opened.close()


def readings(sent: list[str]) -> int:
    """How often the keys were read, which each reading begins with."""
    return sum("FROM api_keys" in sql for sql in sent)


@on_sqlite
async def test_a_topic_that_this_process_deletes_costs_one_look_at_the_head(
    follower: Follower, routed: RoutedTopics, log: EventLog
) -> None:
    assert routed.routing is not None
    await follower.following.current()
    await routed.route("kept->copy")
    for number in range(BURST):
        await routed.make(f"gone{number}")
    await routed.settled("copy")  # the first look of its router is not one of a deletion
    with statements() as sent:
        for number in range(BURST):
            deleted = await log.submit(DeleteTopic(f"gone{number}"))
            assert deleted is not None
            log.wakeups.touch(deleted.topic_id)
            routed.routing.removed(deleted.routers_removed, deleted.version)
            await follower.look()
        await give_turns()
    assert sum("FROM log_heads" in sql for sql in sent) == 2 * BURST, "one to lock it, one look"
    assert readings(sent) == sum("FROM routers r JOIN" in sql for sql in sent) == 0
    assert await follower.up_to_date()
    await routed.put("kept", 1)
    assert await routed.data("copy") == [1]


@on_sqlite
async def test_a_router_goes_at_once_with_a_topic_that_this_process_deletes(
    follower: Follower, routed: RoutedTopics, log: EventLog
) -> None:
    assert routed.routing is not None
    await routed.route("a->b", "b->c")
    deleted = await log.submit(DeleteTopic("b"))
    assert deleted is not None
    assert deleted.routers_removed == ["a->b", "b->c"]
    routed.routing.removed(deleted.routers_removed, deleted.version)
    assert not routed.routing.feeds("b")
    assert not routed.routing.feeds("c")


async def test_topics_that_another_process_deletes_are_read_in_common(
    follower: Follower, elsewhere: EventLog, routed: RoutedTopics, clock: ManualClock
) -> None:
    for number in range(BURST):
        await routed.make(f"gone{number}")
    with statements() as sent:
        for number in range(BURST):
            await elsewhere.submit(DeleteTopic(f"gone{number}"))
            await follower.look()
        await until(lambda: clock.waits, "the first reading")
        assert readings(sent) == 1
        clock.advance(REST_SECONDS)
        await until(follower.up_to_date, "the reading of the rest")
    assert readings(sent) <= 2


@on_sqlite
async def test_the_last_change_of_a_burst_is_read(
    follower: Follower, elsewhere: EventLog, database: Database, routed: RoutedTopics, clock: ManualClock
) -> None:
    await routed.make("gone")
    await elsewhere.submit(DeleteTopic("gone"))
    await follower.look()
    await until(lambda: clock.waits, "the first reading")
    await elsewhere.database.write(make_key)
    await follower.look()
    assert not follower.keys
    clock.advance(REST_SECONDS)
    await until(lambda: follower.keys, "the key")


@on_sqlite
async def test_a_change_elsewhere_is_not_taken_for_a_deletion_that_was_made_here(
    follower: Follower, elsewhere: EventLog, routed: RoutedTopics, log: EventLog
) -> None:
    assert routed.routing is not None
    await routed.make("gone")
    await elsewhere.database.write(make_key)
    deleted = await log.submit(DeleteTopic("gone"))
    assert deleted is not None
    routed.routing.removed(deleted.routers_removed, deleted.version)
    await follower.look()
    await until(lambda: follower.keys, "the key")


@on_sqlite
async def test_a_router_that_is_declared_as_it_was_hides_no_change_elsewhere(
    follower: Follower, elsewhere: EventLog, routed: RoutedTopics
) -> None:
    assert routed.routing is not None
    await routed.route("a->b")
    await RoutedTopics(elsewhere).route("a->c")
    await routed.route("a->b")
    await follower.look()
    await until(lambda: routed.routing and routed.routing.feeds("c"), "the router of another process")


@on_sqlite
async def test_a_reading_that_failed_is_repeated(
    follower: Follower, elsewhere: EventLog, database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = database.read

    async def failing(fn: Any, *args: Any, **kwargs: Any) -> Any:
        if fn is read_keys:
            raise Unavailable("the database is away")
        return await read(fn, *args, **kwargs)

    await elsewhere.database.write(make_key)
    with monkeypatch.context() as patched:
        patched.setattr(database, "read", failing)
        await follower.look()
        await until(lambda: clock.waits, "the failure")
        assert follower.changes.trouble == "the database is away"
    clock.advance(BROKEN_SECONDS)
    await until(lambda: follower.keys, "the key")
    await until(lambda: not follower.changes.trouble, "the end of the trouble")


@on_sqlite
async def test_events_are_no_reason_to_merge_the_configuration_again(
    follower: Follower, routed: RoutedTopics, log: EventLog, clock: ManualClock
) -> None:
    await follower.following.current()
    await routed.make("a")
    signs = follower.following._signs
    await routed.put("a", 1)
    await follower.look()
    assert follower.following._signs == signs


def make_key(conn: Connection) -> None:
    """A key is made."""
    lock_head(conn)
    create_key(conn, KeyRow("k", "00" * 32, ("read",), (), 1, None, None))
    announce_topics(conn)
