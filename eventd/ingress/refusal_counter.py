"""Counting what is refused: in memory, and now and then in the book of refusals.

An attack is one row a minute for each kind of refusal, and kinds are few: only the names of peers and of keys that are
known make one. What is counted when a node is killed is lost, at most a minute of it.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from eventd.errors import EventdError
from eventd.ingress.claimed_sender import STRANGER, Claim
from eventd.log.core.eventlog import EventLog
from eventd.log.delivery.refused_requests import RefusedRequests, StoreRefusals
from eventd.runtime.clock import Clock

LOOK_SECONDS: Final = 5.0
"""So long the first refusal of a kind waits at most to be written."""
ROW_SECONDS: Final = 60.0
"""Between two rows of one kind."""
MOST_KINDS: Final = 1000
"""Beyond so many in a minute, who was named makes no kind of its own any more."""

logger = logging.getLogger("eventd.ingress")


class _Kind(NamedTuple):
    group: str
    peer: str
    key_id: str
    reason: str


class _Seen(NamedTuple):
    times: int
    first_at: int
    last_at: int


class RefusalCounter:
    """The refusals of a node that are not written yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[_Kind, _Seen] = {}
        self._written: dict[_Kind, float] = {}  # when, the latest at the end

    def note(self, group: str, reason: str, claim: Claim, times: int = 1) -> None:
        """Something was refused so many times."""
        kind = _Kind(group, claim.peer, claim.key_id, reason)
        if kind not in self._seen and len(self._seen) + len(self._written) >= MOST_KINDS:
            kind = _Kind(group, STRANGER if claim.peer else "", "", reason)
        now = self._clock.now()
        before = self._seen.get(kind, _Seen(0, now, now))
        self._seen[kind] = _Seen(before.times + times, before.first_at, now)

    async def write_for_ever(self, log: EventLog) -> None:
        """Write what has to be, every few seconds."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.write(log)

    async def write(self, log: EventLog, *, ends: bool = False) -> None:
        """Write the kinds of which no row was written for a minute, or all of them when the node `ends`."""
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
            logger.warning("storing refusals failed", extra={"error": str(error)})
        else:
            self._written |= dict.fromkeys(due, now)

    def _take_back(self, due: dict[_Kind, _Seen]) -> None:
        for kind, seen in due.items():
            later = self._seen.get(kind)
            times, last_at = (later.times, later.last_at) if later else (0, seen.last_at)
            self._seen[kind] = _Seen(seen.times + times, seen.first_at, last_at)
