"""The writer when its database is closed under it, or refuses a row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from eventd.errors import DatabaseFault, Unavailable
from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.eventlog import EventLog
from eventd.log.core.units import Publish
from eventd.log.core.values import AppendResult, Draft
from eventd.runtime.clock import Clock
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute
from eventd.store.schema.tables import log_heads
from eventd.testing import draft


async def test_nobody_waits_for_a_database_that_was_closed(migrated_url: str, clock: Clock) -> None:
    with closing(Database(migrated_url)) as database:
        log = await EventLog.open(database, clock)
        topic = await log.topic("group:g")
    units = [log.submit(Publish(topic, [draft(f"{n}-{m}") for m in range(600)])) for n in range(4)]
    async with asyncio.timeout(10):
        fates = await asyncio.gather(*units, return_exceptions=True)
        assert [(type(fate), str(fate)) for fate in fates] == [(Unavailable, "the database is closed")] * 4
        with pytest.raises(Unavailable, match="the database is closed"):
            await log.append(topic, [draft("later")])
        await log.close()


class Faulty:
    """Writes a head that must not be there."""

    topic_id, weight, cursor = None, 1, None
    durable, turn, is_brief = True, Turn.FRONT, False

    def admit(self, tx: Transaction) -> Sequence[Draft]:
        return ()

    def finish(self, tx: Transaction, appended: AppendResult) -> None:
        execute(tx.conn, "INSERT INTO log_heads SELECT * FROM log_heads")


async def test_a_broken_constraint_is_no_reason_to_try_again(log: EventLog) -> None:
    topic = await log.topic("group:g")
    units: list[Any] = [Publish(topic, [draft("a")]), Faulty(), Publish(topic, [draft("b")])]
    fates = await asyncio.gather(*map(log.submit, units), return_exceptions=True)
    assert [type(fate) for fate in fates] == [AppendResult, DatabaseFault, AppendResult]
    assert not isinstance(fates[1], Unavailable)
    assert "this is an internal error" in str(fates[1])


async def test_it_is_the_same_through_sqlalchemy_and_tells_no_values(database: Database) -> None:
    def write(conn: Connection) -> None:
        row = {"id": 1, "next_position": 1, "epoch": "a secret", "incarnation": 1, "registry_version": 1}
        conn.sqlalchemy.execute(log_heads.insert().values(**row))

    with pytest.raises(DatabaseFault) as caught:
        await database.write(write)
    assert "a secret" not in str(caught.value)
    assert "(1)" not in str(caught.value), "the key is a value, too"
