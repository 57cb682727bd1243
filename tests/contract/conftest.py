"""One log over each database, open for the length of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from eventd.log.eventlog import EventLog
from eventd.store import migrations
from eventd.store.database import Database
from eventd.testing import NOW, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An open database of today's schema."""
    opened = Database(database_url)
    try:
        opened.write_now(migrations.upgrade, now=NOW)
        yield opened
    finally:
        opened.close()


@pytest.fixture
async def log(database: Database, clock: ManualClock) -> AsyncIterator[EventLog]:
    """The log of `database`, at the time of `clock`."""
    opened = await EventLog.open(database, clock)
    yield opened
    await opened.close()
