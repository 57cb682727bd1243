"""How many dead letters a cursor has is stored, and stays the number of its rows, whatever adds and deletes them."""

from __future__ import annotations

import random

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import find_topic_by_id
from eventd.log.cursors.cursors import delete_cursors
from eventd.log.cursors.dead_letters import (
    DeadLetter,
    count_dead_letters,
    delete_dead_letters,
    delete_dead_letters_after,
    insert_dead_letters,
    recount_dead_letters,
)
from eventd.log.retention.evict import RowRetention, delete_old_rows
from eventd.log.topics.deleted_topics import clear_deleted, delete_topic, read_cleared
from eventd.node.housekeeping import Housekeeping
from eventd.observe.metrics import Metrics
from eventd.settings.loading import load
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.testing import NOW

CURSORS = ("peer:g/a", "peer:g/b", "subscription:g/s")


@pytest.fixture
async def topics(log: EventLog) -> list[int]:
    return [await log.topic("group:g"), await log.topic("group:h")]


def letter(cursor: str, position: int, topic: int, parked_at: int = NOW) -> DeadLetter:
    return DeadLetter(cursor, position, topic, f"e{position}", "refused", "no", 1, parked_at)


def expected(conn: Connection) -> dict[tuple[int, str], int]:
    return {
        (topic, cursor): number
        for topic, cursor, number in fetch(
            conn, "SELECT topic_id, cursor, count(*) FROM dead_letters GROUP BY topic_id, cursor"
        )
    }


def stored(conn: Connection, topics: list[int]) -> dict[tuple[int, str], int]:
    return {(topic, cursor): number for topic in topics for cursor, number in count_dead_letters(conn, topic).items()}


async def test_the_numbers_are_those_of_the_rows_after_any_change(log: EventLog, topics: list[int]) -> None:
    chance = random.Random(5)

    def change(conn: Connection) -> None:
        cursor, topic = chance.choice(CURSORS), chance.choice(topics)
        match chance.randrange(8):
            case 0:
                ids = [id for (id,) in fetch(conn, "SELECT id FROM dead_letters ORDER BY id")]
                delete_dead_letters(conn, [*chance.sample(ids, len(ids) // 3), 9_999])
            case 1:
                delete_dead_letters_after(conn, topic, cursor, chance.randrange(40))
            case 2:
                delete_cursors(conn, [cursor])
            case 3:
                delete_old_rows(conn, RowRetention(1, 1, 50, 1), now=NOW + chance.randrange(100), chunk=7)
            case _:  # some of them replace earlier ones
                positions = chance.choices(range(40), k=9)
                insert_dead_letters(conn, [letter(cursor, at, topic, NOW + at) for at in positions])

    seen = 0
    for _ in range(60):
        await log.database.write(change)
        wanted = await log.database.read(expected)
        assert await log.database.read(stored, topics) == wanted
        seen = max(seen, *wanted.values(), 0)
    assert seen > 9


async def test_a_cursor_without_dead_letters_has_no_number(log: EventLog, topics: list[int]) -> None:
    await log.database.write(insert_dead_letters, [letter(CURSORS[0], 1, topics[0]), letter(CURSORS[1], 2, topics[0])])
    ((first,), _) = await log.database.read(fetch, "SELECT id FROM dead_letters ORDER BY id")
    assert await log.database.write(delete_dead_letters, [first, first]) == 1
    assert await log.database.read(fetch, "SELECT cursor, letters FROM dead_letter_counts") == [(CURSORS[1], 1)]
    assert await log.database.read(count_dead_letters, topics[0], CURSORS[0]) == {}
    assert await log.database.read(count_dead_letters, topics[0], CURSORS[1]) == {CURSORS[1]: 1}


async def test_the_numbers_of_a_deleted_topic_end_with_it(log: EventLog, topics: list[int]) -> None:
    letters = [letter(CURSORS[at % 2], at, topics[at % 4 // 2]) for at in range(20)]
    await log.database.write(insert_dead_letters, letters)
    await log.database.write(delete_topic, "group:g")
    while await log.database.write(lambda conn: clear_deleted(conn, now=NOW, chunk=3)):
        if await log.database.read(read_cleared):
            break
    wanted = {(topics[1], name): 5 for name in CURSORS[:2]}
    assert await log.database.read(stored, topics) == await log.database.read(expected) == wanted
    assert await log.database.read(find_topic_by_id, topics[1])


def _insert_uncounted(conn: Connection, letters: list[DeadLetter]) -> None:
    """Insert rows as a node of a version before the numbers does."""
    for one in letters:
        sql = (
            "INSERT INTO dead_letters (cursor, position, topic_id, event_id, reason, detail, attempts, parked_at)"
            " VALUES (?, ?, ?, ?, 'refused', '', 1, 1)"
        )
        execute(conn, sql, (one.cursor, one.position, one.topic_id, one.event_id))


async def test_a_recount_corrects_the_numbers_that_an_older_node_left_wrong(log: EventLog, topics: list[int]) -> None:
    await log.database.write(insert_dead_letters, [letter(CURSORS[1], 1, topics[0]), letter(CURSORS[2], 1, topics[1])])
    await log.database.write(_insert_uncounted, [letter(CURSORS[0], at, topics[0]) for at in range(5)])
    await log.database.write(execute, "DELETE FROM dead_letters WHERE cursor = ?", (CURSORS[2],))
    await log.database.write(recount_dead_letters)
    assert await log.database.read(stored, topics) == await log.database.read(expected)
    assert await log.database.read(fetch, "SELECT count(*) FROM dead_letter_counts") == [(2,)]


async def test_a_number_is_never_negative(log: EventLog, topics: list[int]) -> None:
    await log.database.write(insert_dead_letters, [letter(CURSORS[0], 9, topics[0])])
    await log.database.write(_insert_uncounted, [letter(CURSORS[0], at, topics[0]) for at in range(5)])
    await log.database.write(delete_dead_letters_after, topics[0], CURSORS[0], 0)
    assert await log.database.read(fetch, "SELECT letters FROM dead_letter_counts") == []


@pytest.mark.parametrize("group", [None, "g"])
async def test_each_start_of_a_node_counts_again(
    log: EventLog, topics: list[int], migrated_url: str, group: str | None
) -> None:
    await log.database.write(_insert_uncounted, [letter(CURSORS[0], at, topics[0]) for at in range(5)])
    await Housekeeping(log, load({"database_url": migrated_url, "group": group}, {}), Metrics()).begin()
    assert await log.database.read(count_dead_letters, topics[0]) == {CURSORS[0]: 5}
