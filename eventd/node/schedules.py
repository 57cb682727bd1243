"""Scheduled plugin runs: plugins with an interval, and those of a DynamicConfigSource.

The ledger of runs has the time of the last run: after a restart, the next one is due one interval after that time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from eventd.errors import EventdError
from eventd.log.core.eventlog import EventLog
from eventd.plugins.run.plugins import Plugins
from eventd.plugins.run.without_events import BROKEN_OFF, prepare_due_run, run_without_events
from eventd.resources.plugin_configuration import ScheduleConfig
from eventd.runtime.clock import Clock, Countdown
from eventd.runtime.supervisor import KeepTask
from eventd.store.rows.runs import RunStatus, interrupt_runs, last_run

logger = logging.getLogger("eventd.schedules")

BROKEN_SECONDS = 1.0
"""Seconds to wait after a scheduled run failed, or the time of the last run could not be read."""


class Schedules:
    """Runs one task for each schedule. `changed` is called after each run that succeeded: the parts may differ."""

    def __init__(self, log: EventLog, plugins: Plugins, keep: KeepTask, changed: Callable[[], None]) -> None:
        self._log = log
        self._plugins = plugins
        self._keep = keep
        self._changed = changed
        self._running: dict[str, tuple[ScheduleConfig, asyncio.Task[None]]] = {}

    @property
    def _clock(self) -> Clock:
        return self._log.clock

    async def adjust(self, wanted: Mapping[str, ScheduleConfig]) -> None:
        """Run these schedules, by owner, and no others; unchanged ones keep running."""
        gone = [owner for owner, (schedule, _) in self._running.items() if wanted.get(owner) != schedule]
        await self._end(gone)
        for owner, schedule in wanted.items():
            if owner not in self._running:
                follow = partial(self._follow, schedule)
                # a task that ends with an error is run again
                self._running[owner] = (schedule, self._keep(follow, f"schedule {owner}"))

    async def stop(self) -> None:
        """Stop all schedules, and the runs under way, which are marked as interrupted."""
        await self._end(list(self._running))

    async def _end(self, owners: list[str]) -> None:
        tasks = [self._running.pop(owner)[1] for owner in owners]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, schedule: ScheduleConfig) -> None:
        try:
            await self._run_for_ever(schedule)
        finally:
            with suppress(EventdError):  # the next process that follows the schedule runs it
                await self._break_off(schedule)

    async def _run_for_ever(self, schedule: ScheduleConfig) -> None:
        trouble, countdown = "", Countdown(self._clock)
        while True:
            try:
                await self._clock.sleep(await self._wait_of(schedule, countdown))
                await self._run(schedule)
                trouble = ""
            except EventdError as error:
                if trouble != str(error):
                    logger.warning("scheduled run failed", extra={"owner": schedule.owner, "error": str(error)})
                trouble = str(error)
                # the failed run is in the ledger: the next one is due at its time
                await self._clock.sleep(BROKEN_SECONDS)
            except Exception:  # a defect in one schedule must not end the others
                logger.exception("schedule failed", extra={"owner": schedule.owner})
                await self._clock.sleep(BROKEN_SECONDS)

    async def _wait_of(self, schedule: ScheduleConfig, countdown: Countdown) -> float:
        """Return the seconds until the next run, 0 for the first; a last run that never ended is marked interrupted."""
        last = await self._log.database.read(last_run, schedule.owner)
        if last is None:
            return 0.0
        if last.status is RunStatus.RUNNING:  # no other process runs it: the one that did has ended
            await self._break_off(schedule)
        return countdown.left(last.started_at, last.started_at + schedule.every)

    async def _break_off(self, schedule: ScheduleConfig) -> None:
        await self._log.database.write(interrupt_runs, schedule.owner, BROKEN_OFF, self._clock.now())

    async def _run(self, schedule: ScheduleConfig) -> None:
        asked = await self._log.database.read(prepare_due_run, schedule, self._clock.now())
        await run_without_events(self._log.database, self._clock, self._plugins, asked)
        self._changed()
