"""Rows of failed attempts: how long they are kept, how many, and what goes with a cursor."""

from __future__ import annotations

from collections import Counter

import pytest

from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.store.rows import callback_attempts
from eventd.store.rows.callback_attempts import (
    SHOWN,
    CallbackAttempt,
    add_attempt,
    delete_old_attempts,
    end_attempts,
    forget_attempts,
    last_attempt,
    read_attempts,
)
from eventd.testing import NOW

SECOND = 1_000_000


async def add(database: Database, cursor: str, second: int, *, status: int = 503, id: str = "m") -> None:
    at = NOW + second * SECOND
    row = CallbackAttempt(
        cursor=cursor,
        message_id=id,
        after=0,
        upto=1,
        events=1,
        attempt=second + 1,
        status=status,
        reason=f"http_{status}",
        started_at=at,
        first_at=at,
    )
    await database.write(add_attempt, row)


async def count(database: Database) -> Counter[str]:
    return Counter(cursor for (cursor,) in await database.read(fetch, "SELECT cursor FROM callback_attempts"))


async def test_equal_failures_are_one_row_but_the_newest(database: Database) -> None:
    failures = 3 * SHOWN
    for second in range(failures):
        await add(database, "callback:a", second)
    rows = await database.read(read_attempts, "callback:a")
    assert [row.folded for row in rows] == [1] * SHOWN + [failures - SHOWN]
    assert (rows[-1].first_at, rows[-1].started_at) == (NOW, NOW + (failures - SHOWN - 1) * SECOND)


async def test_another_trouble_has_rows_of_its_own(database: Database) -> None:
    for second in range(40):
        await add(database, "callback:a", second, status=500 + second // 10)
    rows = await database.read(read_attempts, "callback:a")
    assert sum(row.folded for row in rows) == 40
    assert len(rows) < 15
    assert {row.status for row in rows if row.folded > 1} == {500, 501, 502, 503}


async def test_old_rows_go_and_the_newest_of_each_cursor_stays(database: Database) -> None:
    for second in range(10):
        for cursor in ("callback:a", "callback:rm/b"):
            await add(database, cursor, second, id=f"m{second}")
    await add(database, "callback:young", 100)
    assert await database.write(delete_old_attempts, NOW + 50 * SECOND, 7) == 7
    assert await database.write(delete_old_attempts, NOW + 50 * SECOND, 100) == 11
    assert await count(database) == {"callback:a": 1, "callback:rm/b": 1, "callback:young": 1}
    newest = await database.read(last_attempt, "callback:a")
    assert newest is not None
    assert newest.message_id == "m9", "it says which message is tried again"
    assert await database.write(delete_old_attempts, NOW + 50 * SECOND, 100) == 0


async def test_a_callback_has_a_limited_number_of_rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_attempts, "MOST_ROWS", 20)
    for second in range(50):
        await add(database, "callback:a", second, id=f"m{second}")
    for second in range(5):
        await add(database, "callback:b", second, id=f"m{second}")
    while await database.write(delete_old_attempts, NOW, 8):
        pass
    assert await count(database) == {"callback:a": 20, "callback:b": 5}
    rows = await database.read(read_attempts, "callback:a")
    assert [row.message_id for row in rows] == [f"m{second}" for second in range(49, 29, -1)]


async def test_the_row_of_an_attempt_under_way_ends_with_its_message(database: Database) -> None:
    noted = CallbackAttempt(
        cursor="callback:a", message_id="m", after=0, upto=1, events=1, started_at=NOW, first_at=NOW
    )
    await database.write(add_attempt, noted)
    await database.write(end_attempts, "callback:a")
    assert await count(database) == {}
    await database.write(add_attempt, noted)
    await add(database, "callback:a", 1)
    assert await count(database) == {"callback:a": 1}, "its result has taken its place"
    await add(database, "callback:b", 1)
    await database.write(forget_attempts, "callback:a")
    assert await count(database) == {"callback:b": 1}
