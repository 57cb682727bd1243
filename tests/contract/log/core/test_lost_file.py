"""A SQLite file that is removed under a process: nothing is acknowledged that is not stored."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from eventd.errors import DatabaseUnavailable
from eventd.log.core.eventlog import EventLog
from eventd.store.engine.database import Database
from eventd.testing import ManualClock, draft
from tests.support.stored import read_stored

LOST = "deleted, moved or replaced.*move it back"


async def test_what_goes_to_a_lost_file_is_refused_until_it_is_back(
    migrated_sqlite_url: str, clock: ManualClock
) -> None:
    file = Path(migrated_sqlite_url.removeprefix("sqlite:///"))
    aside = file.with_suffix(".aside")
    with closing(Database(migrated_sqlite_url)) as database:
        log = await EventLog.open(database, clock)
        topic = await log.topic("group:g")
        await log.append(topic, [draft("1")])
        shutil.move(file, aside)
        with pytest.raises(DatabaseUnavailable, match=LOST):
            await log.append(topic, [draft("2")])
        shutil.copy(aside, file)
        with pytest.raises(DatabaseUnavailable, match=LOST):
            await log.append(topic, [draft("3")])
        assert [record.event_id for record in await database.read(read_stored, topic)] == ["1"], "reading continues"
        shutil.move(aside, file)
        await log.append(topic, [draft("4")])
        assert [record.event_id for record in await database.read(read_stored, topic)] == ["1", "4"]
        await log.close()


async def test_a_lost_file_is_noticed_although_nobody_writes(migrated_sqlite_url: str, clock: ManualClock) -> None:
    file = Path(migrated_sqlite_url.removeprefix("sqlite:///"))
    with closing(Database(migrated_sqlite_url)) as database:
        log = await EventLog.open(database, clock)
        source = database.change_source(asyncio.sleep)
        await log.look_around()
        shutil.move(file, file.with_suffix(".aside"))
        await asyncio.wait_for(source.wait(), 10)
        with pytest.raises(DatabaseUnavailable, match=LOST):
            await log.look_around()
        await source.close()
        await log.close()
