"""A deleted group is gone with all it held; applied again under the same name, it is another group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from eventd.errors import FenceLost, NotFound
from eventd.groups import retention
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import read_group_topics
from eventd.log.cursors.cursors import create_cursor, end_cursor, read_cursor, read_cursors
from eventd.log.cursors.steps import Step
from eventd.log.retention.evict import Eviction
from eventd.log.topics.deleted_topics import clear_deleted, read_cleared, remove_cleared
from eventd.node.retention import Retention
from eventd.observe.metrics import Metrics
from eventd.resources.group_configuration import GroupConfig, effective
from eventd.runtime.clock import SECOND
from eventd.settings.loading import load
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.links import StoredMark, keep_receipt, read_receipt, record_gap, write_mark
from eventd.store.rows.registry import read_resources
from eventd.store.schema.tables import blocks, event_ids, inbound_batches, inbound_gaps, inbound_links
from eventd.testing import NOW, ManualClock, draft
from tests.support.deleted import clear_all
from tests.support.group_ledger import GroupLedger
from tests.support.reading import read_records
from tests.support.stored import read_stored

HELD = (blocks, event_ids, inbound_batches, inbound_gaps, inbound_links)


@pytest.fixture
def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    return GroupLedger(log, clock)


async def delete(books: GroupLedger, group: str = "g", **params: Any) -> Any:
    for row in await books.log.database.read(read_cursors, "peer"):
        if not params.get("dry_run"):
            peer = row.name.rpartition("/")[2]
            await books.call("resources.delete", kind="EventPeer", name=peer)
    return await books.call("resources.delete", kind="EventGroup", name=group, **params)


async def topic_of(log: EventLog, name: str = "group:g") -> int:
    topics = {topic.name: topic.id for topic in await log.database.read(read_group_topics)}
    return topics[name]


async def listed(books: GroupLedger) -> list[str]:
    return [event["id"] for event in (await books.call("events.list", group="g"))["events"]]


async def clean(log: EventLog, url: str) -> None:
    """One round of removing what deleted groups have left."""
    await Retention(log, load({"database_url": url}, {}), Metrics())._remove_deleted()


async def test_declared_again_it_has_none_of_its_old_events(books: GroupLedger, log: EventLog) -> None:
    await books.declare("b")
    await books.publish(draft("e1"), draft("e2"))
    await books.settle("b", 2)
    old = await topic_of(log)
    await delete(books)
    await books.declare("b")
    assert await topic_of(log) != old
    assert await listed(books) == []
    assert (await books.call("groups.status"))["groups"][0]["events"] == 0
    link = (await books.call("links.status", group="g"))["outbound"][0]
    assert (link["lagEvents"], link["lastSuccessAt"]) == (0, None), "nothing of the old log waits for the new peer"


async def test_its_ids_are_free_again(books: GroupLedger) -> None:
    await books.declare()
    for payload in ({"n": "1"}, {"n": "2"}):
        event = {"id": "same", "type": "t", "payload": payload}
        emitted = await books.call("events.emit", group="g", events=[event])
        assert emitted["counts"]["new"] == 1
        await delete(books)
        await books.declare()


async def test_what_was_received_is_as_unknown_as_what_was_stored(books: GroupLedger, log: EventLog) -> None:
    """A mark or a receipt of the old group would say that its events are here."""
    await books.declare()
    old = await topic_of(log)
    await log.database.write(_receive, old)
    assert [link["gaps"] for link in (await books.call("links.status", group="g"))["inbound"]] == [1]
    await delete(books)
    await books.declare()
    assert (await books.call("links.status", group="g"))["inbound"] == []
    assert await log.database.read(read_receipt, await topic_of(log), "x", "batch") is None


def _receive(conn: Connection, topic: int) -> None:
    write_mark(conn, topic, "x", StoredMark("epoch", 1, 0, 9), NOW)
    record_gap(conn, topic, "x", "epoch", 0, 4, "lost", NOW)
    keep_receipt(conn, topic_id=topic, node="x", batch_id="batch", key_id="", covers="", digest="", receipt="", now=NOW)


@pytest.mark.parametrize("again", [False, True])
async def test_nothing_is_appended_to_the_topic_of_a_deleted_group(
    books: GroupLedger, log: EventLog, again: bool
) -> None:
    """Another client took its id just before: what it was acknowledged must not vanish."""
    await books.declare()
    old = await topic_of(log)
    await log.append(old, [draft("e1")])
    await delete(books)
    if again:
        await books.declare()
    with pytest.raises(NotFound, match="the group was deleted"):
        await log.append(old, [draft("e2")])
    assert [record.event_id for record in await log.database.read(read_stored)] == ["e1"]
    with pytest.raises(NotFound, match="the group was deleted"):
        await log.append(old, [draft("e2")])  # also when it was asked before


async def test_an_old_consumer_moves_nothing_of_the_new_peer(books: GroupLedger, log: EventLog) -> None:
    """It stands where the new one begins, and would pass over what the new topic holds."""
    await books.declare("b")
    [old] = await log.database.read(read_cursors)
    await delete(books)
    await books.declare("b")
    [new] = await log.database.read(read_cursors)
    assert (old.name, old.position) == (new.name, new.position)
    await log.append(new.topic_id, [draft("e1")])
    with pytest.raises(FenceLost, match="another version"):
        await log.settle(Step(old.name, 0, 1, 0, NOW, selector_version=old.selector_version))
    await log.settle(Step(new.name, 0, 1, 0, NOW, selector_version=new.selector_version))


async def test_a_peer_that_is_declared_again_has_a_selection_of_its_own(books: GroupLedger, log: EventLog) -> None:
    await books.declare("b")
    versions = [(await log.database.read(read_cursor, "peer:g/b")).selector_version]
    for types in ("types: [up]", "types: [up, down]"):
        await books.declare(b=types)
        versions.append((await log.database.read(read_cursor, "peer:g/b")).selector_version)
    await books.call("resources.delete", kind="EventPeer", name="b")
    await books.declare("b")
    versions.append((await log.database.read(read_cursor, "peer:g/b")).selector_version)
    assert versions == sorted(set(versions))


async def test_an_old_repair_does_not_end_a_new_one_of_its_name(log: EventLog, clock: ManualClock) -> None:
    database, topics = log.database, [await log.topic(name) for name in ("group:g", "group:h")]

    def make(conn: Connection, topic: int, now: int) -> None:
        create_cursor(conn, "repair:g/b/1", kind="repair", topic_id=topic, position=0, until=9, now=now)

    await database.write(make, topics[0], NOW)
    old = await database.read(read_cursor, "repair:g/b/1")
    await database.write(end_cursor, old)
    assert await database.read(read_cursors) == []
    for topic, now in ((topics[1], NOW), (topics[0], NOW + 1)):
        await database.write(make, topic, now)
        await database.write(end_cursor, old)
        await database.write(end_cursor, await database.read(read_cursor, "repair:g/b/1"))


# --- saying so ----------------------------------------------------------------------------------------------------


async def test_deleting_says_how_many_events_go_before_and_when_it_does(books: GroupLedger) -> None:
    await books.declare()
    await books.publish(draft("e1"), draft("e2"))
    for dry_run in (True, False):
        [change] = (await delete(books, dry_run=dry_run))["changes"]
        assert (change["action"], change["events"]) == ("deleted", 2)
    await books.declare()
    [change] = (await delete(books))["changes"]
    assert change["events"] == 0


async def test_a_dry_run_takes_nothing(books: GroupLedger) -> None:
    await books.declare()
    await books.publish(draft("e1"))
    await delete(books, dry_run=True)
    assert await listed(books) == ["e1"]


async def test_pruning_what_is_declared_says_it_too(books: GroupLedger) -> None:
    await books.declare()
    await books.publish(draft("e1"))
    sources = [{"name": "none", "text": ""}]
    told = (await books.call("resources.diff", sources=sources, prune=True))["changes"]
    done = (await books.call("resources.apply", sources=sources, prune=True, allow_empty=True))["changes"]
    assert [change["events"] for change in (*told, *done)] == [1, 1]


# --- removing it --------------------------------------------------------------------------------------------------


async def test_housekeeping_removes_all_that_it_held_and_nothing_else(
    books: GroupLedger, log: EventLog, database: Database, migrated_url: str
) -> None:
    await books.declare(group="kept")
    kept = await topic_of(log, "group:kept")
    await log.append(kept, [draft("e1")])
    await database.write(_receive, kept)
    before = [await database.read(_rows, table) for table in HELD]
    await books.declare()
    await books.publish(draft("e1"), draft("e2"))
    await database.write(_receive, await topic_of(log))
    await delete(books)
    await clean(log, migrated_url)
    assert [await database.read(_rows, table) for table in HELD] == before
    assert len(await database.read(read_group_topics, deleted=True)) == 2, (
        "a reader that still has its id finds it empty"
    )
    assert (await read_records(log, (await database.read(read_group_topics, deleted=True))[0].id, 0)).items == []
    await clean(log, migrated_url)
    assert [topic.name for topic in await database.read(read_group_topics, deleted=True)] == ["group:kept"]


def _rows(conn: Connection, table: sa.Table) -> list[Any]:
    return [tuple(row) for row in conn.sqlalchemy.execute(sa.select(table))]


async def test_it_goes_a_little_at_a_time(books: GroupLedger, log: EventLog, database: Database) -> None:
    await books.declare()
    await books.publish(*[draft(f"e{number}") for number in range(25)])
    await delete(books)
    went = await clear_all(database, chunk=10)
    assert went == [10, 10, 5]  # records, whose ids go with them
    [topic] = await database.read(read_group_topics, deleted=True)
    assert await database.read(read_cleared) == [topic.name]
    assert await database.read(_rows, event_ids) == []


async def test_what_is_in_use_is_never_cleared(books: GroupLedger, log: EventLog, database: Database) -> None:
    await books.declare()
    topic = await topic_of(log)
    assert (await database.write(clear_deleted, now=NOW), await database.read(read_cleared)) == (None, [])
    await database.write(remove_cleared, ["group:g"])
    assert await topic_of(log) == topic


async def test_an_id_is_not_used_twice(
    books: GroupLedger, log: EventLog, database: Database, migrated_url: str
) -> None:
    seen = []
    for _ in range(3):
        await books.declare()
        seen.append(await topic_of(log))
        await delete(books)
        await clean(log, migrated_url)
        await clean(log, migrated_url)
    assert seen == sorted(set(seen))


async def test_the_retention_of_a_group_that_is_gone_is_not_applied_to_its_successor(
    books: GroupLedger, log: EventLog, clock: ManualClock, migrated_url: str
) -> None:
    """A node may not have noticed yet, and would still prune by what was declared before."""
    await books.declare(spec="retention: {maxAge: 1m}")
    [stale] = await log.database.read(_configs)
    await delete(books)
    await books.declare()
    await books.publish(draft("e1"))
    clock.advance(3600)
    await Retention(log, load({"database_url": migrated_url}, {}), Metrics())._apply([stale])
    assert await listed(books) == ["e1"]
    assert clock.now() > NOW + 60 * SECOND
    await delete(books)
    await Retention(log, load({"database_url": migrated_url}, {}), Metrics())._apply([stale])


async def test_events_that_were_evicted_before_the_group_was_deleted_are_counted(
    books: GroupLedger, log: EventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await books.declare(spec="retention: {maxEvents: 1}")
    await books.publish(*(draft(f"e{n}") for n in range(3)))
    first = retention._evict_some
    steps = iter([first])

    def step(conn: Connection, chunk: int, *, name: str, now: int) -> Eviction:
        for evict in steps:
            return replace(evict(conn, chunk, name=name, now=now), more=True)
        raise NotFound("EventGroup 'g' is not declared")

    monkeypatch.setattr(retention, "_evict_some", step)
    assert (await retention.apply_retention(log, "g", retention.eviction_pace(log))).records == 2
    with pytest.raises(NotFound):
        await retention.apply_retention(log, "g", retention.eviction_pace(log))


def _configs(conn: Connection) -> list[GroupConfig]:
    return list(effective(read_resources(conn)).values())
