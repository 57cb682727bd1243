"""Runs bulk jobs as a node does, without a node."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from eventd.api.admin.bulk.bulk_runner import BulkJobRunner
from eventd.api.keys.valid_keys import Keys
from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database


class Uncounted:
    """Metrics that nothing reads."""

    def jobs(self, states: Mapping[str, int]) -> None:
        """Ignore the numbers."""

    def job_step(self, result: str) -> None:
        """Ignore the step."""


async def run_jobs(url: str) -> None:
    """Run all jobs of a database that can run now."""
    with closing(Database(url)) as database:
        log = await EventLog.open(database, SystemClock())
        await BulkJobRunner(log, Keys(tuple), Uncounted(), alone=True).run_all()
        await log.close()
