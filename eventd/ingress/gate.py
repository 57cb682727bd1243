"""Holding a batch whose predecessor is still under way.

A sender has several requests in flight over several connections, so they may arrive out of order. A batch that begins
beyond what was let through waits a moment for the one in between, within a bound on memory. The gate only orders;
whether a range fits is decided in the transaction that stores it.
"""

from __future__ import annotations

import asyncio

from eventd.clock import SECOND, Clock
from federation.peers import RANGE_WAIT
from federation.ranges import Mark, Range

LinkLife = tuple[str, str, int]
"""The sending node, and the epoch and incarnation of its log."""


class Gate:
    """The gate of one group. `max_bytes` bounds the bodies that wait at one time."""

    def __init__(self, clock: Clock, max_bytes: int) -> None:
        self._clock = clock
        self._room = max_bytes
        self._passed: dict[LinkLife, int] = {}
        self._waiting: dict[LinkLife, set[asyncio.Future[None]]] = {}

    def knows(self, life: LinkLife) -> bool:
        """Whether it is known how far the link has come."""
        return life in self._passed

    def learn(self, life: LinkLife, mark: Mark | None) -> None:
        """Take over the stored mark, if it is of this life of the sender's log."""
        if mark is not None and (mark.epoch, mark.incarnation) == life[1:]:
            self._raise(life, mark.upto)

    async def enter(self, life: LinkLife, claim: Range, size: int) -> None:
        """Return when the batch's predecessor was let through, when time is up, or at once when memory is short."""
        deadline = self._clock.monotonic() + RANGE_WAIT / SECOND
        if size <= self._room:
            self._room -= size
            try:
                while claim.after > self._passed.get(life, claim.after) and await self._change(life, deadline):
                    pass
            finally:
                self._room += size
        if claim.after <= self._passed.get(life, claim.after):
            self._raise(life, claim.upto)

    async def _change(self, life: LinkLife, deadline: float) -> bool:
        """Wait for the next change of this link; False when the time is up."""
        left = deadline - self._clock.monotonic()
        if left <= 0:
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.timer(left)
        self._waiting.setdefault(life, set()).add(future)
        try:
            await asyncio.wait({future, timer}, return_when=asyncio.FIRST_COMPLETED)
            return future.done()
        finally:
            timer.cancel()
            self._waiting[life].discard(future)
            if not self._waiting[life]:
                del self._waiting[life]

    def _raise(self, life: LinkLife, upto: int) -> None:
        for older in [other for other in self._passed if other[0] == life[0] and other != life]:
            del self._passed[older]  # a sender has one history at a time; what is remembered stays bounded
        self._passed[life] = max(upto, self._passed.get(life, 0))
        self._tell(life)

    def forget(self, life: LinkLife) -> None:
        """A batch that was let through was not stored: what is known must be read again."""
        self._passed.pop(life, None)
        self._tell(life)

    def _tell(self, life: LinkLife) -> None:
        for future in self._waiting.get(life, ()):
            if not future.done():
                future.set_result(None)
