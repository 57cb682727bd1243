"""Concurrent units of one topic share a transaction: each still sees the effects of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from eventd.log.core.commit import GROUP_RECORDS
from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_config import TopicConfig
from eventd.log.topics.errors import TopicNotEmpty, TopicNotFound
from eventd.log.topics.topics import DeleteTopic, PatchTopic, PutTopic
from eventd.log.topics.write import RECORD_BYTES, Write, WriteResult
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.testing import ManualClock
from tests.support.topic_sums import check_topics
from tests.support.topics import Topics, drafts_of


@pytest.fixture
def topics(log: EventLog) -> Topics:
    return Topics(log)


def write(log: EventLog, name: str, *data: Any, **rest: Any) -> Write:
    return Write(name, drafts_of([{"data": each} for each in data]), flushes=log.flushes, **rest)


async def together(*units: Awaitable[Any]) -> Sequence[Any]:
    return await asyncio.gather(*units, return_exceptions=True)


async def test_a_topic_that_is_deleted_if_it_is_empty_is_not_when_a_write_is_just_before(
    topics: Topics, log: EventLog, database: Database
) -> None:
    await topics.make("t")
    written, refused = await together(log.submit(write(log, "t", 1, 2)), log.submit(DeleteTopic("t", if_empty=True)))
    assert isinstance(written, WriteResult)
    assert isinstance(refused, TopicNotEmpty)
    assert refused.detail == {"topic": "t", "count": 2}
    assert [record["data"] for record in await topics.page("t")] == [1, 2], "what was acknowledged is there"
    await database.read(check_topics)


async def test_a_write_just_behind_the_deletion_of_its_topic_makes_another_one(
    topics: Topics, log: EventLog, database: Database
) -> None:
    old = await topics.make("t")
    deleted, written = await together(log.submit(DeleteTopic("t", if_empty=True)), log.submit(write(log, "t", 1)))
    assert deleted.topic_id == old
    assert (written.created, written.first_seq) == (True, 1)
    assert written.topic_id != old
    assert await topics.page("t") != []
    await database.read(check_topics)


async def test_a_write_without_leave_to_make_its_topic_fails_alone_behind_the_deletion(
    topics: Topics, log: EventLog
) -> None:
    await topics.make("t")
    deleted, refused, other = await together(
        log.submit(DeleteTopic("t")), log.submit(write(log, "t", 1, create=False)), log.submit(write(log, "u", 1))
    )
    assert deleted.topic_id is not None
    assert isinstance(refused, TopicNotFound)
    assert other.first_seq == 1


@pytest.mark.parametrize("patched", [False, True])
async def test_a_time_to_live_that_is_set_just_behind_a_write_holds_for_what_was_written(
    topics: Topics, log: EventLog, database: Database, clock: ManualClock, *, patched: bool
) -> None:
    await topics.make("t")
    unit = (
        PatchTopic("t", {"ttl_ms": 10})
        if patched
        else PutTopic("t", TopicConfig(ttl_ms=10), max_topics=0, random=bytes(16))
    )
    await together(log.submit(write(log, "t", 1)), log.submit(unit))
    await database.read(check_topics)
    clock.advance(0.02)
    assert await topics.page("t") == []
    assert (await topics.standing("t")).count == 0


async def test_a_time_to_live_goes_on_when_something_else_is_set_just_behind_a_write(
    topics: Topics, log: EventLog, database: Database, clock: ManualClock
) -> None:
    """All the topic held was just lost, so nothing was to be looked at again."""
    await topics.make("t", ttl_ms=10)
    await topics.put("t", 0)
    await together(
        log.submit(write(log, "t", 1)),
        log.submit(PatchTopic("t", {"ttl_ms": 50, "dedupe_node": False})),
        log.submit(write(log, "t", 2)),
    )
    await database.read(check_topics)
    clock.advance(0.06)
    assert await topics.page("t") == []


async def test_a_cap_that_is_set_just_behind_a_write_holds_for_what_was_written(
    topics: Topics, log: EventLog, database: Database
) -> None:
    await topics.make("t")
    await together(log.submit(write(log, "t", *range(5))), log.submit(PatchTopic("t", {"cap_records": 2})))
    assert [record["data"] for record in await topics.page("t")] == [3, 4]
    assert await topics.losses("t") == [(1, 3, "cap")]
    await database.read(check_topics)


async def test_what_fails_among_units_of_one_topic_takes_nothing_with_it(
    topics: Topics, log: EventLog, database: Database
) -> None:
    """The transaction is undone and its units are tried one by one: keys, caps and seqs come out as if in a row."""
    await topics.make("t", cap_records=4)
    done = await together(
        log.submit(write(log, "t", 1, 2, key="k")),
        log.submit(_Broken()),
        log.submit(write(log, "t", 1, 2, key="k")),
        log.submit(write(log, "t", 3, 4, 5)),
        log.submit(DeleteTopic("t", if_empty=True)),
    )
    assert [type(each) for each in done] == [WriteResult, RuntimeError, WriteResult, WriteResult, TopicNotEmpty]
    assert [(each.first_seq, each.last_seq, each.deduped) for each in done if isinstance(each, WriteResult)] == [
        (1, 2, False),
        (1, 2, True),
        (3, 5, False),
    ]
    assert [record["data"] for record in await topics.page("t")] == [2, 3, 4, 5]
    places = await database.read(fetch, "SELECT position, records FROM blocks ORDER BY position")
    assert sum(records for _, records in places) == 4
    assert (await log.look_around()).last == 5
    await database.read(check_topics)


class _Broken(DeleteTopic):
    """Finds a fault of its own when all others have written."""

    def __init__(self) -> None:
        super().__init__("nothing")

    def finish(self, tx: Any, appended: Any) -> Any:
        raise RuntimeError("broken")


@pytest.mark.parametrize("data", [[0] * GROUP_RECORDS, ["x" * GROUP_RECORDS * RECORD_BYTES]], ids=["many", "large"])
async def test_batches_that_fill_transactions_let_what_is_small_come_in_between(
    topics: Topics, log: EventLog, database: Database, data: list[Any]
) -> None:
    """Also where all of them were there first."""
    await topics.make("large")
    await topics.make("small")
    large = [log.submit(write(log, "large", *data)) for _ in range(4)]
    await asyncio.gather(*large, log.submit(write(log, "small", 1)))
    first = "SELECT min(position) FROM blocks GROUP BY topic_id ORDER BY topic_id"
    assert await database.read(fetch, first) in ([(1,), (len(data) + 1,)], [(2,), (1,)])
    assert (await topics.standing("large")).count == 4 * len(data), "in as many transactions"
