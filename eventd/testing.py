"""For tests of the node and of what is built on it: a clock that stands still until it is moved, and small builders.

Nothing in the node imports this.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from eventd.log.core.values import Draft
from eventd.runtime.clock import SECOND
from federation.event import UNSET, Event, encode, expiry_micros, from_micros

NOW = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()) * SECOND
"""The time at which a `ManualClock` begins: microseconds since 1970, UTC."""
_LONGEST_PAUSE = 0.25
TURNS = 10
"""Turns of the loop that `give_turns` gives: enough for a woken task to reach its next wait."""


class SeededChance:
    """A `Chance` that yields the same values for the same seed."""

    def __init__(self, seed: int) -> None:
        source = random.Random(seed)
        self.token = source.randbytes
        self.fraction = source.random


class ManualClock:
    """A `Clock` that moves only by `advance`, which ends the sleeps that are due, and by `set_wall`."""

    def __init__(self, now: int = NOW) -> None:
        self._now = self._steady = now
        self._monotonic = 1000.0
        self._timers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def steady(self) -> int:
        return self._steady

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)  # as with the machine's clock, others have their turn
        await self.timer(seconds)

    def timer(self, seconds: float) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if seconds <= 0:
            future.set_result(None)
        else:
            self._timers.append((self._monotonic + seconds, future))
        return future

    @property
    def waits(self) -> list[float]:
        """Return the seconds that each sleep or timer still has to run, the shortest first."""
        self._timers = [(at, future) for at, future in self._timers if not future.done()]
        return sorted(at - self._monotonic for at, _ in self._timers)

    def advance(self, seconds: float) -> None:
        """Advance all three times, and end the waits that are over; their tasks run in the next turn of the loop."""
        self._monotonic += seconds
        self._now += round(seconds * SECOND)
        self._steady += round(seconds * SECOND)
        due = [future for at, future in self._timers if at <= self._monotonic + 1e-9]
        self._timers = [(at, future) for at, future in self._timers if future not in due]
        for future in due:
            if not future.done():
                future.set_result(None)

    def set_wall(self, now: int) -> None:
        """Step the wall time alone, as an operator or a time server may: no sleep ends."""
        self._now = now


async def until(
    condition: Callable[[], object | Awaitable[object]], what: str = "the condition", *, seconds: float = 10.0
) -> None:
    """Call `condition`, plain or a coroutine function, until it returns a true value.

    Raises AssertionError, which names `what`, after `seconds` of real time.

    The pauses between the calls grow to 20 ms, or to four times what a call takes, but to 250 ms at most: a test that
    waits must not keep the core that it waits for busy.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pause = 0.001
    while True:
        asked = loop.time()
        answer = condition()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return
        if loop.time() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what}; last answer: {answer!r}")
        await asyncio.sleep(max(pause, min(4 * (loop.time() - asked), _LONGEST_PAUSE)))
        pause = min(1.3 * pause, 0.02)


async def give_turns(turns: int = TURNS) -> None:
    """Let tasks that can run do so for some turns of the loop, to show that something does *not* happen."""
    for _ in range(turns):
        await asyncio.sleep(0)


def event(
    event_id: str,
    *,
    group: str = "g",
    node: str = "a",
    type: str = "t",
    subject: str = "",
    payload: Mapping[str, str] | None = None,
    observed: int = NOW,
    expires: int | None = None,
) -> Event:
    """Return a complete event. Times in microseconds; without `expires` it never expires."""
    return Event(
        id=event_id,
        group=group,
        source_node=node,
        type=type,
        subject=subject,
        dedupe_key=event_id,
        payload=dict(payload or {}),
        observed_at=from_micros(observed),
        expires_at=UNSET if expires is None else from_micros(expires),
    )


def drafted(event: Event, *, path: str = "") -> Draft:
    """Return the event as a draft for the log; `path` names the nodes it came through, encoded."""
    body = encode(event)
    return Draft(
        event_id=event.id,
        node=event.source_node,
        tag=event.type,
        expires_at=expiry_micros(event),
        path=path,
        body=body.decode(),
    )


def draft(
    event_id: str,
    *,
    group: str = "g",
    node: str = "a",
    type: str = "t",
    subject: str = "",
    payload: Mapping[str, str] | None = None,
    observed: int = NOW,
    expires: int | None = None,
    path: str = "",
) -> Draft:
    """Return `drafted(event(…))`."""
    made = event(
        event_id,
        group=group,
        node=node,
        type=type,
        subject=subject,
        payload=payload,
        observed=observed,
        expires=expires,
    )
    return drafted(made, path=path)
