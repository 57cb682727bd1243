"""An id that is freed: the true event gets in, the record of the one before stays, and all counts stay right."""

from __future__ import annotations

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.freed_ids import free_id
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.core.topic_row import read_topic
from eventd.log.core.values import Outcome
from eventd.log.history.refuted import RefutedRecord, keep_refuted
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.store.engine.statements import fetch
from eventd.testing import NOW, draft
from tests.support.reading import read_records

EVERYTHING = EvictionLimits(max_records=0, keep_undelivered=False)


async def ids_of(log: EventLog, topic: int) -> tuple[int, int]:
    """The number of ids with a record as the topic counts them, and as they are stored."""
    counted = (await log.database.read(read_topic, "group:g")).ids
    rows = await log.database.read(
        fetch, "SELECT count(*) FROM event_ids WHERE topic_id = ? AND gone_at IS NULL", (topic,)
    )
    return counted, rows[0][0]


async def test_another_event_gets_a_freed_id_and_the_record_before_stays(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("taken", node="squatter"), draft("other")])
    true = draft("taken", node="true")
    assert list((await log.append(topic, [true])).outcomes) == [Outcome.CONFLICT]
    assert await log.database.write(free_id, topic, "taken", 1)
    assert await ids_of(log, topic) == (1, 1)
    again = await log.append(topic, [true, draft("other")])
    assert (list(again.outcomes), list(again.positions)) == ([Outcome.NEW, Outcome.DUPLICATE], [3, 2])
    assert [record.event_id for record in (await read_records(log, topic)).items] == ["taken", "other", "taken"]
    assert await ids_of(log, topic) == (2, 2)


async def test_a_refuted_record_is_listed_only_where_it_is_asked_for(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("bad", path="a,hub"), draft("other", expires=NOW)])
    await log.database.write(keep_refuted, topic, RefutedRecord(1, "bad", "eventd/g/a/tree", 7, NOW))
    for refreshed in (2, 3):
        listed = (await log.database.read(list_latest, EventQuery(topic))).records
        assert [one.position for one in listed] == [refreshed], "whether or not another event was refreshed"
        asked = (await log.database.read(list_latest, EventQuery(topic, refuted=True))).records
        assert [one.position for one in asked] == [1, refreshed]
        await log.append(topic, [draft("other", expires=NOW + refreshed)])


@pytest.mark.parametrize("order", [(1, 4), (4, 1)])
async def test_the_first_record_of_an_event_is_its_oldest_one_that_is_not_refuted(
    log: EventLog, order: tuple[int, int]
) -> None:
    topic = await log.topic("group:g")
    for days in range(4):
        await log.append(topic, [draft("e1", path="a,hub", expires=NOW + days)])
    for position in order:
        refreshed = [*range(position - 1, 0, -1)]
        mark = RefutedRecord(position, "e1", "eventd/g/a/tree", 7, NOW)
        await log.database.write(keep_refuted, topic, mark, refreshed)
    sql = "SELECT position, first_position FROM event_ids"
    assert await log.database.read(fetch, sql) == [(3, 2)]
    await log.database.write(keep_refuted, topic, RefutedRecord(2, "e1", "eventd/g/a/tree", 7, NOW), [1])
    assert await log.database.read(fetch, sql) == [(3, None)], "it has one genuine record, as if none had followed"


async def test_retention_counts_the_record_without_an_id_once(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("taken", node="squatter"), draft("other")])
    await log.database.write(free_id, topic, "taken", 1)
    await log.append(topic, [draft("taken", node="true")])
    await log.database.write(evict, topic, EVERYTHING, now=NOW)
    assert await ids_of(log, topic) == (0, 0)
    assert await log.database.write(free_id, topic, "taken", 3), "that of an evicted record, too"
    assert await ids_of(log, topic) == (0, 0)
    assert list((await log.append(topic, [draft("taken", node="squatter")])).outcomes) == [Outcome.NEW]


async def test_an_id_of_another_record_is_not_freed(log: EventLog) -> None:
    topic, other = await log.topic("group:g"), await log.topic("group:other")
    await log.append(topic, [draft("taken")])
    assert not await log.database.write(free_id, topic, "taken", 2)
    assert not await log.database.write(free_id, topic, "unknown", 1)
    assert not await log.database.write(free_id, other, "taken", 1)
    assert await ids_of(log, topic) == (1, 1)
