"""Paces work of the node itself, such as retention, which is written in steps between the transactions of clients.

The steps are short, and while anything else is written they get a share of the writer's time only, so that clients are
slowed down by a part of it. By the measured time, with the clock of the log: a slow disk makes steps smaller and rests
longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from eventd.log.core.eventlog import EventLog
from eventd.store.engine.database import Connection

T = TypeVar("T")

STEP_SECONDS: Final = 0.005
"""How long the statements of a step should take: a client's write waits that long for it, and for one commit."""
REST: Final = 3
"""The pause after a step, as a multiple of its duration, while others write: a quarter of the time is left for it."""
LONGEST_REST: Final = 1.0
"""The longest pause after a step, in seconds."""
RECENT_SECONDS: Final = 0.25
"""For how long after a write of others the steps leave room for the next one."""


class Pace:
    """The pace of one kind of work; `size` is how much its next step should do, in rows or records.

    It adapts between `least` and `most`, and begins with `size`.
    """

    def __init__(self, log: EventLog, *, size: int, least: int, most: int) -> None:
        self.size = size
        self._log = log
        self._least = least
        self._most = most
        self._rests_until = self._yields_until = 0.0
        self._seen = log.wakeups.head

    async def write_step(self, step: Callable[[Connection, int], T], *, is_behind: bool = False, least: int = 0) -> T:
        """Rest as long as the step before requires, then run this one in a write transaction with its size.

        `is_behind`: others write more than this work removes, and it must not rest. Then, each time that they have
        written a transaction, it has its turn with at least the size `least`.
        """
        clock = self._log.clock
        if not is_behind and (rest := self._rests_until - clock.monotonic()) > 0:
            await clock.sleep(rest)
        size = max(self.size, least) if is_behind else self.size
        times: list[float] = []

        def timed(conn: Connection) -> T:
            times[:] = [clock.monotonic()]
            done = step(conn, size)
            times.append(clock.monotonic())
            return done

        done = await self._log.database.write(timed)
        self._adapt(*times)
        return done

    def _adapt(self, begun: float, executed: float) -> None:
        """Choose the size of the next step, and how long to rest before it."""
        taken, now = executed - begun, self._log.clock.monotonic()
        if taken > 0:  # half-way: a single step may have been disturbed
            wanted = self.size * STEP_SECONDS / taken
            self.size = round(min(max((self.size + wanted) / 2, self._least), 2 * self.size, self._most))
        head = self._log.wakeups.head
        if self._log.is_writing or head != self._seen:
            self._yields_until = now + RECENT_SECONDS
        self._seen = head
        is_alone = now >= self._yields_until
        self._rests_until = now if is_alone else now + min(LONGEST_REST, REST * (now - begun))
