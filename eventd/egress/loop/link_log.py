"""Logs a link, or another consumer, when its state or the reason changes, not each attempt; and the events it lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from eventd.log.cursors.cursors import LinkState
from eventd.runtime.log_pause import LogPause, PausedCount

EVENTS: Final = {
    LinkState.BACKING_OFF: "link backing off",
    LinkState.BLOCKED: "link blocked",
    LinkState.FAILED: "link failed",
    LinkState.RUNNING: "link recovered",
}


class LinkLog:
    """Logs the changes of one link; `about` are the fields that name it, and `monotonic` returns seconds.

    States may alternate, as those of a link whose peer is down while the database cannot record it: until the link
    recovers, each state and reason is logged once a minute at most.
    """

    def __init__(self, logger: logging.Logger, about: Mapping[str, str], monotonic: Callable[[], float]) -> None:
        self.reason = ""
        """Why the link is not running; empty while it is."""
        self._state = LinkState.RUNNING
        self._logged = (LinkState.RUNNING, "")  # the state and reason that the last line names
        self._logger = logger
        self._about = about
        self._monotonic = monotonic
        self._pause = LogPause(monotonic)

    def note(self, state: LinkState, reason: str = "", error: str = "") -> None:
        """Note that the link has this state, and log it unless the last line names the same state and reason.

        A state whose line was left out is logged with a later attempt: the log must not end with a state that is over.
        """
        if state is LinkState.RUNNING and self._state is not state:
            self._logger.info(EVENTS[state], extra=self._about)
            self._pause = LogPause(self._monotonic)
            self._logged = (state, "")
        elif (state, reason) != self._logged and self._pause.is_over(f"{state} {reason}"):
            self._logger.warning(EVENTS[state], extra={**self._about, "reason": reason, "error": error})
            self._logged = (state, reason)
        self._state, self.reason = state, reason


class LossLog:
    """Logs once a minute that a link has lost events; `monotonic` returns seconds."""

    def __init__(self, logger: logging.Logger, about: Mapping[str, str], monotonic: Callable[[], float]) -> None:
        self._logger = logger
        self._about = about
        self._lost = PausedCount(monotonic)

    def note(self, evicted: int) -> None:
        """Add events that were lost, 0 for none, and log those that no line has counted yet."""
        if count := self._lost.add(evicted):
            self._logger.warning("events lost", extra={**self._about, "count": count})
