"""Writes the metrics of the Routemaster surface to the log from time to time, one line for each value."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from prometheus_client.core import Metric

from eventd.observe.routemaster_figures import RoutemasterFigures
from eventd.runtime.clock import SECOND, Clock
from eventd.runtime.supervisor import Chore
from eventd.runtime.worker_share import Share
from eventd.settings.model import Settings

LINES_AT_ONCE: Final = 100
"""Number of lines after which the event loop runs other tasks: with a thousand subscribers there are many lines."""

logger = logging.getLogger("eventd.routemaster")


Collect = Callable[[], Awaitable[Sequence[Metric]]]
"""A function that returns all metrics of a node."""


def chores(
    settings: Settings, share: Share, collect: Collect, figures: RoutemasterFigures, clock: Clock
) -> dict[str, Chore]:
    """Return the chore that logs the metrics, by task name.

    Empty if the surface or its log is off, or if another process logs them.
    """
    interval = settings.routemaster_metrics_interval
    if settings.routemaster_listen is None or not interval or not share.is_first:
        return {}
    return {"metrics": SurfaceLog(collect, figures.reference_names(), clock, interval / SECOND).run_for_ever}


class SurfaceLog:
    """Logs metrics at an interval.

    `names`: Routemaster's name of each metric that is logged, by its name here without `_total`.
    """

    def __init__(self, collect: Collect, names: Mapping[str, str], clock: Clock, seconds: float) -> None:
        self._collect = collect
        self._names = names
        self._clock = clock
        self._seconds = seconds

    async def run_for_ever(self) -> None:
        """Write the metrics after each pause, until cancelled."""
        while True:
            await self._clock.sleep(self._seconds)
            await self.write()

    async def write(self) -> None:
        """Write one line for each value. A limit that is not set gets no line."""
        found = [(metric, sample) for metric in await self._collect() for sample in metric.samples]
        chosen = [(metric, one) for metric, one in found if metric.name in self._names and math.isfinite(one.value)]
        for number, (metric, sample) in enumerate(chosen, 1):
            about = {"metric": self._names[metric.name], "kind": metric.type, "value": sample.value, **sample.labels}
            logger.info("routemaster metric", extra=about)
            if number % LINES_AT_ONCE == 0:
                await self._clock.sleep(0)
