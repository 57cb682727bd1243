"""Ended parts are kept for a while, and then removed completely."""

from __future__ import annotations

import asyncio

import pytest

from eventd.dynamic.part import form_part
from eventd.log.core.eventlog import EventLog
from eventd.node import retention
from eventd.node.retention import Retention
from eventd.observe.metrics import Metrics
from eventd.plugins.contract.contract import Result
from eventd.settings.loading import load
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.store.parts.parts import put_part
from eventd.store.parts.reading import read_parts
from eventd.testing import NOW, ManualClock, event, until
from tests.unit.dynamic.samples import HOUR, route


async def test_parts_go_with_their_claims_and_subjects(
    log: EventLog, database: Database, clock: ManualClock, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PARTS", 2)  # it takes several steps
    for number in range(6):
        result = Result(observed_at=NOW, ttl=(1 if number < 5 else 2) * HOUR, resources=[route(f"r{number}")])
        part = form_part(
            owner="EventSubscription/s",
            events=[event(f"e{number}", subject=f"s{number}")],
            result=result,
            plugin="p",
            clamp=False,
            grace=0,
            now=NOW,
        )
        database.write_now(put_part, part, NOW)
    settings = load({"database_url": migrated_url, "part_retention": "3h"}, {})
    task = asyncio.create_task(Retention(log, settings, Metrics()).delete_rows_for_ever())
    try:
        interval = settings.prune_interval
        for seconds, left in ((0, 6), (4 * 3600, 6), (interval, 1), (3600, 0)):
            clock.advance(seconds)
            await until(lambda: clock.waits == [interval], "the round to be over")
            assert len(database.read_now(read_parts)) == left
        for table in ("part_claims", "part_subjects"):
            assert database.read_now(fetch, f"SELECT count(*) FROM {table}") == [(0,)]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
