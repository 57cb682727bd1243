"""Positions are assigned in the order of commits, without holes; seqs likewise within a topic."""

from __future__ import annotations

import asyncio
from itertools import chain

from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Outcome
from eventd.store.engine.database import Database
from eventd.testing import NOW, draft
from tests.support import writers
from tests.support.reading import read_records


async def test_positions_and_seqs_begin_at_one_and_have_no_holes(log: EventLog) -> None:
    topic = await log.topic("group:g")
    for start in range(0, 10, 2):
        await log.append(topic, [draft(f"{start}"), draft(f"{start + 1}")])
    records = (await read_records(log, topic, 0)).items
    assert [record.event_id for record in records] == [str(n) for n in range(10)]
    assert [record.position for record in records] == list(range(1, 11))
    assert [record.seq for record in records] == list(range(1, 11))


async def test_a_record_holds_every_field_of_its_draft(log: EventLog) -> None:
    topic = await log.topic("group:g")
    given = draft("ä\u2028\"'", node="b", type="t.u", subject="s/1", payload={"k": "ö"}, expires=2**50, path="c,d")
    await log.append(topic, [given])
    (record,) = (await read_records(log, topic, 0)).items
    assert record._asdict() == {
        "position": 1,
        "topic_id": topic,
        "seq": 1,
        "node": "b",
        "tag": "t.u",
        "subject": "s/1",
        "event_id": "ä\u2028\"'",
        "ts": NOW,
        "expires_at": 2**50,
        "recorded_at": log.clock.now(),
        "path": "c,d",
        "size": len(given.body.encode()),
        "body": given.body,
    }


async def test_one_transaction_serves_several_topics(log: EventLog) -> None:
    one, two = await log.topic("group:one"), await log.topic("group:two")
    appended = await asyncio.gather(
        log.append(one, [draft("a"), draft("b")]), log.append(two, [draft("a")]), log.append(one, [draft("c")])
    )
    given = sorted(chain.from_iterable(unit.positions for unit in appended))
    assert given == [1, 2, 3, 4]
    assert [r.seq for r in (await read_records(log, one, 0)).items] == [1, 2, 3]
    assert [r.seq for r in (await read_records(log, two, 0)).items] == [1]
    assert [unit.outcomes for unit in appended] == [[Outcome.NEW] * 2, [Outcome.NEW], [Outcome.NEW]], (
        "ids are a topic's"
    )


async def test_duplicates_and_conflicts_take_no_position(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a"), draft("a"), draft("a", payload={"other": "content"}), draft("b")])
    await log.append(topic, [draft("a"), draft("c"), draft("b")])
    records = (await read_records(log, topic, 0)).items
    assert [(record.position, record.seq, record.event_id) for record in records] == [
        (1, 1, "a"),
        (2, 2, "b"),
        (3, 3, "c"),
    ]


async def test_a_topic_keeps_its_id_and_an_unknown_one_is_made(log: EventLog, database: Database) -> None:
    first = await log.topic("group:g")
    other = await log.topic("group:h")
    again = await EventLog.open(database, log.clock)
    assert (await again.topic("group:g"), await again.topic("group:h")) == (first, other)
    assert first != other


async def test_processes_appending_at_once_leave_no_hole_and_a_tail_skips_nothing(
    log: EventLog, migrated_url: str
) -> None:
    """Each of three processes writes to both topics; readers in two more follow while they do."""
    commits, size = 25, 3
    total = 3 * commits * size
    with writers.pool(5) as pool:
        tails = [pool.submit(writers.tail, migrated_url, topic, count=total) for topic in ("group:x", "group:y")]
        jobs = [
            pool.submit(writers.append, migrated_url, ["group:x", "group:y"], name, commits=commits, size=size)
            for name in "abc"
        ]
        given = [await asyncio.wrap_future(job) for job in jobs]
        seen = [await asyncio.wrap_future(job) for job in tails]
    for met in seen:
        positions = [position for position, _, _ in met]
        assert positions == sorted(positions), "a tail never goes back"
        assert [seq for _, seq, _ in met] == list(range(1, total + 1)), "and skips nothing"
    everything = {position: event_id for met in seen for position, _, event_id in met}
    assert sorted(everything) == list(range(1, 2 * total + 1))
    assert {event_id: position for position, event_id in everything.items()} == dict(chain.from_iterable(given))
    for own in given:
        positions = [position for _, position in own]
        assert positions == sorted(positions), "what one writer appends in order lies in order"
