"""One log over each database, open for the length of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.store.engine.database import Database
from eventd.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    with closing(Database(migrated_url)) as opened:
        yield opened


@pytest.fixture
async def log(database: Database, clock: ManualClock) -> AsyncIterator[EventLog]:
    """The log of `database`, at the time of `clock`."""
    opened = await EventLog.open(database, clock)
    yield opened
    await opened.close()
