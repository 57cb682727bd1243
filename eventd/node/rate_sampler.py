"""Samples the rates of this process every 5 s, also while no client reads them: a chart begins 15 minutes ago."""

from __future__ import annotations

from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import read_group_topics
from eventd.node.attempts import Attempts
from eventd.observe.rates import INTERVAL_SECONDS, RateHistory
from eventd.observe.traffic import Traffic
from eventd.resources.group_configuration import topic_of
from eventd.runtime.clock import SECOND

LOOK_SECONDS = 1.0
"""Seconds between two comparisons of the clock with the next tick: every worker notices a tick within this time."""
REREAD_TICKS = 12
"""Number of samples after which the topics of groups are read again even if no new topic was seen: once a minute."""


class RateSampler:
    """The one sampler of a process; `history` has its rates."""

    def __init__(self, log: EventLog, traffic: Traffic) -> None:
        self.history = RateHistory()
        self._log = log
        self._attempts = Attempts(log.clock.monotonic)
        self._traffic = traffic
        self._groups: dict[int, str] = {}
        self._highest = -1
        """The highest id of a topic that existed when `_groups` was read."""
        self._read_at = -REREAD_TICKS
        log.count_blocks = traffic.appended

    async def run_for_ever(self) -> None:
        """Take a sample at each tick of the wall clock, until cancelled. A failure is logged."""
        clock = self._log.clock
        begun, last = clock.monotonic(), self._tick()
        while True:
            await clock.sleep(LOOK_SECONDS)
            now, tick = clock.monotonic(), self._tick()
            if tick != last:
                await self._attempts.make("rates", self._sample(tick, now - begun))
                begun, last = now, tick

    def _tick(self) -> int:
        return self._log.clock.now() // (INTERVAL_SECONDS * SECOND)

    async def _sample(self, tick: int, seconds: float) -> None:
        sample = self._traffic.take()
        highest = max(sample.topics, default=-1)
        if highest > self._highest or abs(tick - self._read_at) >= REREAD_TICKS:
            rows = await self._log.database.read(read_group_topics)
            self._groups = {row.id: row.name.removeprefix(topic_of("")) for row in rows}
            self._highest, self._read_at = max(highest, self._highest), tick
        self.history.add(tick, seconds, sample, self._groups)
