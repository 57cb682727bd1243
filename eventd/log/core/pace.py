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
FULL: Final = 1 / 3
"""The part of its size from which on a step counts as full: eviction stops before a block that does not fit."""
SMALLER: Final = 0.7
"""A step is compared with a larger one if it is at most so many times as large: other differences are chance."""
RECENT_SECONDS: Final = 0.25
"""For how long after a write of others the steps leave room for the next one."""


class StepSize:
    """How much the next step should do, in rows or records, so that it takes about `STEP_SECONDS`.

    Between `least` and `most`. A step that did much less than it was allowed to leaves the size as it is; one that
    stops at the end of a block, just before its size, does not.
    """

    def __init__(self, size: int, least: int, most: int) -> None:
        self.now = size
        self._least = least
        self._most = most
        self._larger: tuple[int, float] | None = None  # work and seconds of a step after which smaller ones were tried

    def adapt(self, done: int, seconds: float, *, is_behind: bool) -> None:
        """Choose the next size after a step that did so much in this time."""
        if done < FULL * self.now:
            return
        if is_behind:  # what keeps up with others matters more than how long they wait
            self._become(2 * self.now)
        elif seconds > STEP_SECONDS:
            self._shrink(done, seconds)
        elif seconds > 0:
            self._approach(done, seconds)
            self._larger = None

    def _shrink(self, done: int, seconds: float) -> None:
        larger = self._larger
        if larger is not None and done > SMALLER * larger[0]:  # too near to compare with it
            self._approach(done, seconds)
        elif larger is not None and seconds > larger[1] * (1 + done / larger[0]) / 2:
            self._larger = None
            self._become(2 * self.now)  # it waits for the processor or the disk: small steps only take more turns
        else:
            self._larger = done, seconds
            self._approach(done, seconds)

    def _approach(self, done: int, seconds: float) -> None:
        wanted = done * STEP_SECONDS / seconds
        self._become(min((self.now + wanted) / 2, 2 * self.now))  # go half of the way: one step may be slow by chance

    def _become(self, size: float) -> None:
        self.now = round(min(max(size, self._least), self._most))


class Pace:
    """The pace of one kind of work, whose steps are between `least` and `most` rows or records, and at first `size`."""

    def __init__(self, log: EventLog, *, size: int, least: int, most: int) -> None:
        self._size = StepSize(size, least, most)
        self._log = log
        self._rests_until = self._yields_until = 0.0
        self._seen = log.wakeups.head

    @property
    def size(self) -> int:
        """Return how much the next step should do."""
        return self._size.now

    async def write_step(
        self, step: Callable[[Connection, int], T], *, amount: Callable[[T], int], is_behind: bool = False
    ) -> T:
        """Rest as long as the step before requires, then run this one in a write transaction with its size.

        `amount` returns how much the step did. `is_behind`: others write more than this work removes, so it does not
        rest: it has its turn after each of their transactions, with twice as much each time, up to the most.
        """
        clock = self._log.clock
        if not is_behind and (rest := self._rests_until - clock.monotonic()) > 0:
            await clock.sleep(rest)
        times: list[float] = []

        def timed(conn: Connection) -> T:
            times[:] = [clock.monotonic()]
            done = step(conn, self.size)
            times.append(clock.monotonic())
            return done

        done = await self._log.database.write(timed)
        begun, executed = times
        self._size.adapt(amount(done), executed - begun, is_behind=is_behind)
        self._choose_rest(begun)
        return done

    def _choose_rest(self, begun: float) -> None:
        now, head = self._log.clock.monotonic(), self._log.wakeups.head
        if self._log.is_writing or head != self._seen:
            self._yields_until = now + RECENT_SECONDS
        self._seen = head
        is_alone = now >= self._yields_until
        self._rests_until = now if is_alone else now + min(LONGEST_REST, REST * (now - begun))
