"""What is kept of the ids of evicted events, against a plain model of it."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventd.log.core.eventlog import EventLog
from eventd.log.core.scan import read_block
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.retention.gone_ids import GoneEvents, delete_gone, mark_gone
from eventd.log.topics.deleted_topics import clear_deleted, delete_topic
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from eventd.testing import NOW, draft
from federation.event import content_digest

numbers = count()


class Known(NamedTuple):
    """A row of `event_ids`, without its topic."""

    event_id: str
    position: int
    gone_at: int | None
    expires_at: int | None
    digest: bytes | None


def read_known(conn: Connection, topic: int) -> list[Known]:
    sql = "SELECT event_id, position, gone_at, expires_at, digest FROM event_ids WHERE topic_id = ?"
    rows = fetch(conn, sql, (topic,))
    return sorted(Known(*row[:4], None if row[4] is None else bytes(row[4])) for row in rows)


one = st.tuples(st.sampled_from(["a", "b", "m", "y", "z", "é", '"', "\\n"]), st.sampled_from([None, 60, 61, 62]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(st.lists(one, min_size=1, max_size=6), min_size=1, max_size=6), kept=st.integers(0, 12))
async def test_the_ids_of_evicted_events_have_their_digests_and_all_others_stay(
    log: EventLog, database: Database, requests: list[list[tuple[str, int | None]]], kept: int
) -> None:
    """Of an id that was refreshed, only the latest record counts, also within one block."""
    name = f"group:{next(numbers)}"
    topic, other = await log.topic(name), await log.topic(f"{name}/other")
    stored: dict[int, tuple[str, int | None, str]] = {}
    latest: dict[str, int] = {}
    for request in requests:
        drafts = [
            draft(each, expires=None if life is None else log.clock.now() + life * SECOND) for each, life in request
        ]
        done = await log.append(topic, drafts)
        await log.append(other, drafts)
        for each, position in zip(drafts, done.positions, strict=True):
            if position not in stored:
                stored[position] = each.event_id, each.expires_at, each.body
                latest[each.event_id] = position
    before = await database.read(read_known, other)
    now = log.clock.now()
    step = await database.write(evict, topic, EvictionLimits(max_records=kept), now=now)
    evicted = sorted(stored)[: step.records]
    expected = [
        Known(each, position, now, stored[position][1], content_digest(stored[position][2]))
        if position in evicted
        else Known(each, position, None, None, None)
        for each, position in latest.items()
    ]
    assert await database.read(read_known, topic) == sorted(expected)
    assert await database.read(read_known, other) == before


async def test_ids_among_many_others_are_marked_one_by_one(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a"), draft("z")])
    await log.append(topic, [draft(f"k{number}") for number in range(9)])
    gone = GoneEvents(1, 2, ["a", "z"], bytes(range(32)), [None, NOW])
    assert await database.write(mark_gone, topic, gone, NOW) == 2
    known = {row.event_id: row for row in await database.read(read_known, topic)}
    assert known["a"] == Known("a", 1, NOW, None, bytes(range(16)))
    assert known["z"] == Known("z", 2, NOW, NOW, bytes(range(16, 32)))
    assert [row for row in known.values() if row.gone_at is not None] == [known["a"], known["z"]]


async def test_the_id_of_a_lost_event_between_evicted_ones_is_not_marked(log: EventLog, database: Database) -> None:
    """Sent again, the event would be a conflict: its content is not known any more."""
    topic = await log.topic("group:g")
    for each in ("a", "b", "c"):
        await log.append(topic, [draft(each, expires=NOW + SECOND)])
    await database.write(execute, "DELETE FROM blocks WHERE position = 2")
    assert (await database.write(evict, topic, EvictionLimits(max_records=0), now=NOW)).upto_seq == 3
    known = {row.event_id: row.gone_at for row in await database.read(read_known, topic)}
    assert known == {"a": NOW, "b": None, "c": NOW}
    assert await database.read(fetch, "SELECT ids FROM topics") == [(1,)]


async def test_an_id_that_has_a_later_record_is_not_marked_and_not_deleted(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a", expires=NOW + SECOND), draft("b")])
    await log.append(topic, [draft("a", expires=NOW + 2 * SECOND)])
    assert await database.write(mark_gone, topic, GoneEvents(1, 2, ["a", "b"], bytes(32), None), NOW) == 1
    first = (await database.read(read_block, 1),)
    assert await database.write(delete_gone, topic, first) == 1
    assert await database.read(read_known, topic) == [Known("a", 3, None, None, None)]


async def test_the_ids_of_a_deleted_topic_go_with_its_events(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a", expires=NOW + SECOND), draft("b")])
    await log.append(topic, [draft("a", expires=NOW + 2 * SECOND)])
    await database.write(delete_topic, "group:g")
    after: str | None = ""
    while after is not None:
        step = await database.write(clear_deleted, after, now=NOW)
        after = None if step is None else step.upto
    assert await database.read(read_known, topic) == []
