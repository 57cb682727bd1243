"""A topic that is full, with a subscriber that is alive and one that is dead: who loses what, and what publishers see.

As for the subscribers of the Routemaster surface, whose topic has these limits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventd.groups.callback_history import read_losses
from eventd.log.core.eventlog import EventLog
from eventd.log.routemaster.subscriptions import HOLD
from eventd.log.topics.errors import TopicFull
from eventd.log.topics.limits import sweep
from eventd.runtime.backoff import Backoff
from eventd.testing import until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.callback_receivers import Receiver
from tests.support.called_back import CalledBack, callback
from tests.support.topics import Topics

DAY_MS = 86_400_000
CAP = 600
DAILY = Backoff(base=86_400.0, cap=86_400.0, jitter=0.0, patience=86_400.0)
"""Retries once a day, so that a week passes in few steps and the node is never late."""


class FullTopic:
    """The topic `rm`, a callback `live` that is served, and one called `dead`, whose endpoint fails."""

    def __init__(self, called: CalledBack, live: Receiver, dead: Receiver) -> None:
        self.called = called
        self.live = live
        self.dead = dead
        self.published: list[str] = []

    async def begin(self, discard: str) -> None:
        await Topics(self.called.log).make("rm", cap_bytes=CAP, ttl_ms=DAY_MS, discard=discard)
        self.dead.always(503)
        for name, receiver in (("live", self.live), ("dead", self.dead)):
            config = callback(
                receiver.url, name=name, group="", topic="rm", format="routemaster", hold=HOLD, backoff=DAILY
            )
            await self.called.declare(config)

    async def publish(self, number: int = 1) -> None:
        for _ in range(number):
            url = f"https://x/{len(self.published):04}"
            await self.called.write("orders.create", "rm", data=f'{{"url":"{url}","t":1}}')
            self.published.append(url)

    async def delivered(self) -> None:
        await until(lambda: urls(self.live) == self.published, "everything to reach the live subscriber")

    async def pass_days(self, days: int) -> None:
        """Let the dead subscriber fail every day, while the node does its chores."""
        for _ in range(days):
            cursor = await self.called.cursor("dead")
            await self.called.rest(cursor)
            await self.called.failed(cursor.attempts + 1, "dead")
            await self.called.log.database.write(sweep, self.called.clock.now())

    async def lost(self, name: str) -> list[tuple[int, list[str]]]:
        found = await self.called.log.database.read(lambda conn: read_losses(conn, name, limit=10))
        return [(one.records, list(one.reasons)) for one in found]


def urls(receiver: Receiver) -> list[str]:
    return [event["url"] for request in receiver.accepted for event in request.json]


@pytest.fixture
async def full(log: EventLog, called: CalledBack, receiver: Receiver) -> AsyncIterator[FullTopic]:
    dead = await Receiver().start()
    yield FullTopic(called, receiver, dead)
    await called.callbacks.stop(0.0)
    await dead.stop()


@BOTH_DATABASES
async def test_publishers_are_refused_until_the_hold_of_the_dead_one_ends(full: FullTopic) -> None:
    await full.begin("reject")
    with pytest.raises(TopicFull):
        await full.publish(100)
    await full.delivered()
    await full.called.failed(1, "dead")
    await full.pass_days(6)
    with pytest.raises(TopicFull):  # they exceed their time to live, but are kept for seven days without a success
        await full.publish()
    await full.pass_days(1)
    before = len(full.published)
    await full.publish()
    await full.delivered()
    full.dead.always(204)
    await full.called.rest(await full.called.cursor("dead"))
    await until(lambda: urls(full.dead) == full.published[before:], "the dead one to get what came since")
    await full.called.caught_up("dead")
    assert await full.lost("dead") == [(before, ["ttl"])]
    assert await full.lost("live") == []


@BOTH_DATABASES
async def test_the_dead_one_alone_loses_the_oldest_events(full: FullTopic) -> None:
    await full.begin("old")
    for _ in range(30):
        await full.publish()
        await full.delivered()
    await full.called.failed(1, "dead")
    full.dead.always(204)
    await full.called.rest(await full.called.cursor("dead"))
    await full.called.caught_up("dead")
    kept = urls(full.dead)
    assert 0 < len(kept) < 30
    assert kept == full.published[-len(kept) :]
    assert await full.lost("dead") == [(30 - len(kept), ["cap"])]
    assert await full.lost("live") == []
