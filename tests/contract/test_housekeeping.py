"""The chores of a node: they keep to what is declared, and none of them ends the node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from eventd.clock import SECOND
from eventd.housekeeping import Housekeeping
from eventd.log.eventlog import EventLog
from eventd.log.retention import Limits, evict
from eventd.observe import Metrics
from eventd.resources.effective import GroupConfig
from eventd.settings import Settings, load
from eventd.store.database import Database, fetch
from eventd.testing import ManualClock, draft, until
from tests.support.bookkeeping import GROUP, Books

DAY = 24 * 3600 * SECOND


@pytest.fixture
def settings(migrated_url: str) -> Settings:
    return load({"database_url": migrated_url}, {})


@asynccontextmanager
async def pruning(log: EventLog, settings: Settings, groups: Iterable[GroupConfig]) -> AsyncIterator[None]:
    """The pruning of these groups, from when it was done once."""
    assert isinstance(log.clock, ManualClock)
    clock = log.clock
    task = asyncio.create_task(Housekeeping(log, settings, Metrics()).prune_for_ever(lambda: groups))
    try:
        await until(lambda: clock.waits or task.done())
        assert not task.done()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_ids_of_a_group_that_another_process_works_for_are_kept_as_long_as_it_says(
    log: EventLog, database: Database, clock: ManualClock, settings: Settings
) -> None:
    """What is forgotten too early is taken for new when it comes again."""
    text = GROUP % ("elsewhere", "retention: {ids: 240h}")
    await Books(log, clock).call("resources.apply", sources=[{"name": "test", "text": text}])
    topic = await log.topic("group:elsewhere")
    await log.append(topic, [draft("e1")])
    await database.write(evict, topic, Limits(max_records=0), now=clock.now())
    for days, known in ((5, [("e1",)]), (6, [])):
        clock.advance(days * DAY / SECOND)
        async with pruning(log, settings, []):
            assert await database.read(fetch, "SELECT event_id FROM event_ids") == known


async def test_a_fault_in_a_chore_is_logged_and_does_not_end_the_node(
    log: EventLog, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(log.database, "read", fail)
    with caplog.at_level(logging.ERROR, "eventd.housekeeping"):
        async with pruning(log, settings, []):
            pass
    assert [record.message for record in caplog.records] == ["retention did not work"]
