"""Holds a batch whose predecessor has not arrived yet.

A sender has several requests in flight over several connections, so they may arrive out of order. A batch that begins
beyond the last one waits a moment for the batch between them, within a limit on memory. This buffer only orders
batches; the transaction that stores a batch decides whether its range fits.
"""

from __future__ import annotations

import asyncio

from eventd.runtime.clock import SECOND, Clock
from federation.peers import RANGE_WAIT
from federation.ranges import Mark, Range

MOST_LINKS = 4096
"""How many links are remembered with their latest position; a link that was dropped is read from the database again."""

LinkLife = tuple[str, str, int]
"""Identifies a link in one life of its sender's log: the sending node, and the epoch and incarnation of its log."""


class ReorderBuffer:
    """The reorder buffer of one group. `max_bytes` limits the total size of the bodies that wait."""

    def __init__(self, clock: Clock, max_bytes: int) -> None:
        self._clock = clock
        self._room = max_bytes
        self._passed: dict[str, tuple[LinkLife, int]] = {}  # by sending node, most recent last
        self._waiting: dict[LinkLife, dict[asyncio.Future[None], None]] = {}  # in the order of arrival

    def knows(self, life: LinkLife) -> bool:
        """Return whether the latest position of the link, in this epoch and incarnation, is remembered."""
        return self._upto(life) is not None

    def _upto(self, life: LinkLife) -> int | None:
        known = self._passed.get(life[0])
        return known[1] if known is not None and known[0] == life else None

    def learn(self, life: LinkLife, mark: Mark | None) -> None:
        """Remember the position of the stored mark, if it has the epoch and incarnation of `life`."""
        if mark is not None and (mark.epoch, mark.incarnation) == life[1:]:
            self.advance(life, mark.upto)

    async def enter(self, life: LinkLife, covered: Range, size: int) -> bool:
        """Wait up to `RANGE_WAIT` until the predecessor of the batch has passed; not at all if memory is short.

        Returns whether the batch passed: then its last position is the link's latest one. Without its predecessor it
        did not, unless it reports all between them as lost. No batch waits while the link's latest position is not
        remembered.
        """
        deadline = self._clock.monotonic() + RANGE_WAIT / SECOND
        if size <= self._room:
            self._room -= size
            try:
                while self._is_ahead(life, covered) and await self._change(life, deadline):
                    pass
            finally:
                self._room += size
        if self._is_ahead(life, covered):
            return False
        self.advance(life, covered.upto)
        return True

    def _is_ahead(self, life: LinkLife, covered: Range) -> bool:
        first = covered.after if covered.lost is None else covered.lost
        upto = self._upto(life)
        return upto is not None and first > upto

    async def _change(self, life: LinkLife, deadline: float) -> bool:
        """Wait until the link's latest position is set or forgotten. Returns False when time is up."""
        left = deadline - self._clock.monotonic()
        if left <= 0:
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.timer(left)
        self._waiting.setdefault(life, {})[future] = None
        try:
            await asyncio.wait({future, timer}, return_when=asyncio.FIRST_COMPLETED)
            return future.done()
        finally:
            timer.cancel()
            del self._waiting[life][future]
            if not self._waiting[life]:
                del self._waiting[life]

    def advance(self, life: LinkLife, upto: int) -> None:
        """Remember that all batches up to this position have passed, unless the link's latest position is later."""
        before = self._upto(life) or 0
        self._passed.pop(life[0], None)  # a sender has one history at a time; the most recent sender goes last
        self._passed[life[0]] = (life, max(upto, before))
        if len(self._passed) > MOST_LINKS:
            del self._passed[next(iter(self._passed))]
        self._wake(life)

    def forget(self, life: LinkLife) -> None:
        """Forget the position of the link: a batch that passed was not stored, so its mark must be read again."""
        if self.knows(life):
            del self._passed[life[0]]
        self._wake(life)

    def _wake(self, life: LinkLife) -> None:
        for future in self._waiting.get(life, ()):
            if not future.done():
                future.set_result(None)
