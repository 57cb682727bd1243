"""What a bus of clients that come and go leaves in the tables: nothing that grows with time."""

from __future__ import annotations

import asyncio

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.log.cursors.cursors import create_cursor
from eventd.log.cursors.dead_letters import DeadLetter
from eventd.log.cursors.steps import Step
from eventd.log.routemaster.publish import PublishedEvent, PublishEvent
from eventd.log.routemaster.subscriptions import (
    DeleteRmTopic,
    DeleteSubscriber,
    LeaveTopic,
    PutSubscriber,
    SubscriptionSettings,
)
from eventd.log.routemaster.surface_topic import OpenTopic, surface_topic_config
from eventd.log.routemaster.tokens import CreateToken, DeleteToken, NewToken, RotateToken, SignSubscriber
from eventd.log.topics.limits import sweep
from eventd.node.retention import Retention
from eventd.observe.metrics import Metrics
from eventd.settings.loading import load
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import fetch
from eventd.store.rows.callback_attempts import CallbackAttempt, add_attempt
from eventd.store.rows.routemaster import SigningKey, cursor_of
from eventd.store.schema.columns import metadata
from eventd.testing import ManualClock, until

CONFIG = surface_topic_config()
WEEK = 8 * 86_400
"""Seconds, and a day more."""


def rows(conn: Connection) -> dict[str, int]:
    names = sorted(metadata.tables)
    return {name: int(fetch(conn, f"SELECT count(*) FROM {name}")[0][0]) for name in names}


class Bus:
    """A bus whose clients live for a week."""

    def __init__(self, log: EventLog, url: str, clock: ManualClock) -> None:
        self._log = log
        self._clock = clock
        self._retention = Retention(log, load({"database_url": url}, {}), Metrics())

    async def publish(self, topic: str, publisher: str, count: int) -> None:
        for number in range(count):
            event = PublishedEvent(topic, "create", f"https://x/{number}")
            key = f"{self._clock.now()} {number}"
            given = {"key": key, "config": CONFIG, "random": bytes(16)}
            await self._log.submit(PublishEvent(event, publisher, flushes=self._log.flushes, **given))  # type: ignore[arg-type]

    async def live_a_week(self, number: int) -> None:
        log = self._log
        shop = await log.submit(CreateToken(NewToken("shop", f"shop--{number}")))
        app = await log.submit(CreateToken(NewToken("app", f"app--{number}")))
        await log.submit(SignSubscriber(app.identity, [SigningKey("k", "/k")]))
        for topics in (("a",), ("a", "b"), ("b",), ("a",), ("a", "b")):
            wanted = SubscriptionSettings(topics, "https://app.example", "uuid")
            await log.submit(PutSubscriber(app.identity, wanted, config=CONFIG, random=bytes(16)))
            await self.publish("a", shop.identity, 2)
            await self.publish("b", shop.identity, 1)
        await self.fail_and_deliver(cursor_of(app.identity))
        await log.submit(LeaveTopic(app.identity, "a"))
        await log.submit(RotateToken(app.handle, f"next--{number}", 0))
        for topic in "ab":
            await log.submit(DeleteRmTopic(topic, shop.identity))
        if number % 2:
            await log.submit(DeleteSubscriber(app.identity))
        for token in (f"shop--{number}", f"next--{number}", f"app--{number}"):
            await log.submit(DeleteToken(token))
        await self.keep_house()

    async def fail_and_deliver(self, cursor: str) -> None:
        log, now = self._log, self._clock.now()
        for attempt in range(30):
            about = {"cursor": cursor, "message_id": f"m{attempt}", "reason": "http_503"}
            row = CallbackAttempt(after=0, upto=1, events=1, started_at=now, first_at=now, **about)  # type: ignore[arg-type]
            await log.database.write(add_attempt, row)
        head = (await log.database.read(read_head)).last
        stored = await log.database.read(fetch, "SELECT position, topic_id FROM cursors WHERE name = ?", (cursor,))
        ((position, topic_id),) = stored
        resend = cursor.replace("callback", "resend") + "#1"
        given = {"kind": "resend", "topic_id": topic_id, "position": 0, "until": head, "now": now}
        await log.database.write(create_cursor, resend, **given)
        letter = DeadLetter(cursor, head, topic_id, "e", "http_400", "refused", 5, now)
        await log.settle(Step(cursor, position, head, head, now, dead_letters=[letter]))

    async def keep_house(self) -> None:
        self._clock.advance(WEEK)
        chores = asyncio.create_task(self._retention.delete_rows_for_ever())
        await until(lambda: self._clock.waits, "the chores")
        chores.cancel()
        await asyncio.gather(chores, return_exceptions=True)
        for _ in range(5):
            await self._log.database.write(sweep, self._clock.now())


@pytest.mark.timeout(60)
async def test_the_tables_are_as_large_after_six_weeks_as_after_four(
    log: EventLog, database: Database, migrated_url: str, clock: ManualClock
) -> None:
    await log.submit(OpenTopic(CONFIG, random=bytes(16)))
    bus = Bus(log, migrated_url, clock)
    for number in range(4):
        await bus.live_a_week(number)
    before = await database.read(rows)
    assert {"batches", "blocks", "cursors", "write_keys", "rm_topics"} <= before.keys()
    for number in range(4, 6):  # as before: one week that deletes the subscriber, and one that does not
        await bus.live_a_week(number)
    assert await database.read(rows) == before
    assert {name: before[name] for name in ("rm_subscribers", "rm_intervals", "rm_signing", "callback_attempts")} == (
        dict.fromkeys(("rm_subscribers", "rm_intervals", "rm_signing", "callback_attempts"), 0)
    )
    assert before["rm_topics"] == before["cursors"] == before["api_keys"] == before["dead_letters"] == 0
