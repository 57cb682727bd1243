"""Counts refused requests in memory and writes the counts to the refusal ledger from time to time.

An attack costs at most one row a minute for each kind of refusal, and kinds are few: of the names in requests, only
declared peers and known keys count. A process that is killed loses about the last minute of counts.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from eventd.errors import EventdError
from eventd.ingress.claimed_sender import UNDECLARED, ClaimedSender
from eventd.log.core.eventlog import EventLog
from eventd.log.delivery.refused_requests import RefusedRequests, StoreRefusals
from eventd.runtime.clock import Clock
from eventd.runtime.log_pause import LogPause

LOOK_SECONDS: Final = 5.0
"""Seconds between two writes of the counts that are due; the first refusal of a kind is written within this time."""
ROW_SECONDS: Final = 60.0
"""Seconds between two rows of one kind."""
MOST_KINDS: Final = 1000
"""Maximum number of kinds in one minute; others are counted without the names of the sender and its key."""

logger = logging.getLogger("eventd.ingress")


class _Kind(NamedTuple):
    group: str
    peer: str
    key_id: str
    reason: str


class _Refusals(NamedTuple):
    times: int
    first_at: int
    last_at: int


class RefusalCounter:
    """Counts the refusals of one process that are not written to the database yet, by group, sender, key and
    reason."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pause = LogPause(clock.monotonic)
        self._seen: dict[_Kind, _Refusals] = {}
        self._written: dict[_Kind, float] = {}  # the time of the last row by kind, newest last

    def note(self, group: str, reason: str, claimed: ClaimedSender, times: int = 1) -> None:
        """Count `times` refusals in memory, as of now."""
        kind = _Kind(group, claimed.peer, claimed.key_id, reason)
        if kind not in self._seen and len(self._seen) + len(self._written) >= MOST_KINDS:
            kind = _Kind(group, UNDECLARED if claimed.peer else "", "", reason)
        now = self._clock.now()
        before = self._seen.get(kind, _Refusals(0, now, now))
        self._seen[kind] = _Refusals(before.times + times, before.first_at, now)

    async def write_for_ever(self, log: EventLog) -> None:
        """Write the due counts every few seconds, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.write(log)

    async def write(self, log: EventLog, *, ends: bool = False) -> None:
        """Write the counts of kinds without a row in the last minute; all counts if the process `ends`.

        A failure is logged once a minute, and the counts are kept for the next write.
        """
        now = self._clock.monotonic()
        self._written = {kind: at for kind, at in self._written.items() if now - at < ROW_SECONDS}
        due = {kind: seen for kind, seen in self._seen.items() if ends or kind not in self._written}
        if not due:
            return
        for kind in due:
            del self._seen[kind]
        try:
            await log.submit(StoreRefusals([RefusedRequests(*kind, *seen) for kind, seen in due.items()]))
        except EventdError as error:
            self._take_back(due)
            if self._pause.is_over_for(str(error)):
                logger.warning("storing refusals failed", extra={"error": str(error)})
        else:
            self._written |= dict.fromkeys(due, now)

    def _take_back(self, due: dict[_Kind, _Refusals]) -> None:
        for kind, seen in due.items():
            later = self._seen.get(kind)
            times, last_at = (later.times, later.last_at) if later else (0, seen.last_at)
            self._seen[kind] = _Refusals(seen.times + times, seen.first_at, last_at)
