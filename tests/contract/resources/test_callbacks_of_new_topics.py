"""Where a callback begins whose topic is deleted and created again, however late the node notices."""

from __future__ import annotations

import pytest

from eventd.api.admin.callbacks.callbacks import describe_callback
from eventd.egress.cursors import reconcile
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.log.topics.topics import DeleteTopic
from eventd.resources.apply import apply_loaded
from eventd.resources.reading.documents import load_text
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from eventd.testing import ManualClock
from tests.support.declared import callback, declare
from tests.support.fresh import on_sqlite
from tests.support.topics import Topics


class DeclaredCallback:
    """A callback on the topic `orders`, declared as `apply` does, and followed as a node does."""

    def __init__(self, log: EventLog, clock: ManualClock) -> None:
        self.log = log
        self.topics = Topics(log)
        self._clock = clock

    async def apply(self, **spec: object) -> None:
        loaded = load_text("a.yaml", declare(callback("stock", topic="orders", **spec)))
        self._clock.advance(1)
        now = self._clock.now()

        def change(conn: Connection) -> None:
            apply_loaded(conn, loaded, now=now)
            reconcile(conn, read_resources(conn), now)

        await self.log.database.write(change)

    async def follow(self) -> list[Cursor]:
        self._clock.advance(1)
        stored = await self.log.database.read(read_resources)
        await self.log.database.write(reconcile, stored, self._clock.now())
        return await self.log.database.read(read_cursors, "callback")

    async def delete(self) -> None:
        await self.log.submit(DeleteTopic("orders", if_empty=False))

    async def head(self) -> int:
        return (await self.log.database.read(read_head)).last


@pytest.fixture
async def declared(log: EventLog, clock: ManualClock) -> DeclaredCallback:
    made = DeclaredCallback(log, clock)
    await made.topics.make("orders")
    await made.topics.make("others")
    await made.topics.put("orders", 1, 2)
    await made.apply()
    return made


@pytest.mark.parametrize("notices_deletion", [True, False])
@on_sqlite
async def test_the_records_of_the_new_topic_are_not_passed_over(
    declared: DeclaredCallback, notices_deletion: bool
) -> None:
    (before,) = await declared.follow()
    assert before.position == await declared.head() == 2
    await declared.topics.put("orders", 3)
    await declared.delete()
    if notices_deletion:
        assert await declared.follow() == []
    await declared.topics.put("others", 1)
    topic_id = await declared.topics.make("orders")
    await declared.topics.put("orders", 4, 5)
    (cursor,) = await declared.follow()
    assert cursor.topic_id == topic_id != before.topic_id
    assert cursor.position < 5, "records 4 and 5 were written before the node noticed the topic"


@on_sqlite
async def test_jobs_of_a_queue_that_takes_the_name_are_not_pushed(declared: DeclaredCallback) -> None:
    await declared.delete()
    await declared.topics.make("orders", type="queue")
    await declared.topics.put("orders", 1)
    assert await declared.follow() == []
    status = await declared.log.database.read(describe_callback, "stock", 0)
    assert (status["state"], status["reason"]) == ("blocked", "no_topic")
    await declared.delete()
    await declared.topics.make("orders")
    await declared.topics.put("orders", 2)
    (cursor,) = await declared.follow()
    assert cursor.position < await declared.head()


@on_sqlite
async def test_a_declaration_that_names_another_topic_begins_now(declared: DeclaredCallback) -> None:
    await declared.topics.put("others", 1, 2, 3)
    await declared.apply(source={"topic": "others"})
    (cursor,) = await declared.follow()
    assert cursor.position == await declared.head() == 5


async def test_what_is_not_declared_again_stays_where_it_is(declared: DeclaredCallback) -> None:
    await declared.topics.put("orders", 3)
    await declared.apply(hold="1h")
    (cursor,) = await declared.follow()
    assert cursor.position == 2
