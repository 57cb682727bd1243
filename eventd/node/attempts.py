"""Runs one round of a periodic chore; a failure is logged and does not end the node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from eventd.errors import EventdError
from eventd.runtime.log_pause import LogPause

logger = logging.getLogger("eventd.housekeeping")


class Attempts:
    """Runs rounds of chores. What fails twice a second is logged once a minute; `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._pause = LogPause(monotonic)

    async def make(self, job: str, work: Coroutine[Any, Any, None]) -> bool:
        """Await the work. An error is logged with the name `job` and not raised; the caller's next round tries again.

        Returns whether the work was done.
        """
        try:
            await work
            return True
        except EventdError as error:
            if self._pause.is_over_for(str(error), job):
                logger.warning("housekeeping failed", extra={"job": job, "error": str(error)})
        except Exception as error:  # a defect here must not end a node that works
            if self._pause.is_over_for(repr(error), job):
                logger.exception("housekeeping failed", extra={"job": job})
        return False
