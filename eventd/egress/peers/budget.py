"""How many bytes a process holds for batches on their way to peers: one budget for all links.

One half is for links whose peer has answered since the link was opened: whole batches, and more of them read ahead
while there is plenty. When it is used up nobody reads ahead, and links wait: first come, first served, a batch each.

The other half is for the first batch of each link. It is of a size of which there is room for one for each link there
is, so it need not wait. A peer that takes a batch and never answers therefore holds its link's part of this half and
no more, from one time-out to the next, and what the others live on is out of its reach. A link that is in step takes
its part, too, rather than wait: what is new to it is little, and must not queue behind what others have to catch up.

Peers that fall silent all at once, in the middle of it, hold what they have until their time-outs. When nothing comes
back to the first half for as long as `PATIENCE` while links wait for it, these go on with their parts of the second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from eventd.runtime.clock import Clock

LEAST = 64 << 10
"""Bytes of a batch that a link waits for rather than to take less: a small batch costs nearly what a large one does."""
PATIENCE = 2.0
"""Seconds. Of many batches that are answered at all one is within milliseconds, however long each of them takes."""


class Half:
    """So many bytes, of which `held` are taken, and the links that wait for them, in their order."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self.queue: dict[Allowance, None] = {}

    def fits(self, size: int) -> bool:
        """Whether so much may be taken. An event that is larger than all of it goes alone."""
        return self.held + size <= self.size or not self.held


class Grant(NamedTuple):
    """Bytes of one half or the other."""

    half: Half
    size: int


class Budget:
    """`total` bytes for all links. `links` tells how many there are. For one loop alone."""

    def __init__(self, total: int, links: Callable[[], int], clock: Clock) -> None:
        self.main = Half(total // 2)
        self.first = Half(total - total // 2)
        self._links = links
        self._clock = clock
        self._timer: asyncio.Future[None] | None = None
        self._moves = True
        self._is_stuck = False

    @property
    def held(self) -> int:
        """Bytes that are taken."""
        return self.main.held + self.first.held

    @property
    def waiting(self) -> int:
        """Links that wait for their turn."""
        return len(self.main.queue) + len(self.first.queue)

    def offer(self, link: Allowance) -> Grant | None:
        """What a link that has nothing under way may take now; None: it has to wait."""
        if link.answers and self.main.fits(link.wanted):
            return Grant(self.main, link.wanted)
        if link.uses_main and not self._is_stuck:
            return None
        size = min(link.wanted, max(link.needed, self.first.size // max(1, self._links())))
        return Grant(self.first, size) if self.first.fits(size) else None

    def queue(self, link: Allowance) -> None:
        """Let a link wait for its turn, which may be at once. One that waits already keeps its place."""
        self._queue_of(link)[link] = None
        self._serve()

    def is_free(self, link: Allowance) -> bool:
        """Whether a link that has nothing under way need not wait."""
        return not self._queue_of(link) and self.offer(link) is not None

    def leave(self, link: Allowance) -> None:
        """It waits no longer."""
        self.main.queue.pop(link, None)
        self.first.queue.pop(link, None)
        self._serve()  # the next one may need less

    def give_back(self, half: Half, size: int) -> None:
        """So much is free again: whose turn it is gets it."""
        half.held -= size
        if half is self.main and size > 0:
            self._moves, self._is_stuck = True, False
        if self.main.queue or self.first.queue:
            self._serve()

    def _queue_of(self, link: Allowance) -> dict[Allowance, None]:
        return self.main.queue if link.uses_main else self.first.queue

    def _serve(self) -> None:
        for half in (self.main, self.first):
            while half.queue and (first := next(iter(half.queue))).try_its_turn():
                del half.queue[first]
        if self.main.queue and self._timer is None and not self._is_stuck:
            self._moves = False
            self._timer = self._clock.timer(PATIENCE)
            self._timer.add_done_callback(self._look)

    def _look(self, _: object) -> None:
        self._timer = None
        self._is_stuck = bool(self.main.queue) and not self._moves
        self._serve()


class Allowance:
    """What one link holds of a budget. `most`: bytes of events in its largest batch.

    It asks for the `window` before each page, or waits for its turn; then come `take` and `keep`. The page is dropped,
    or carried as a batch until that is `settled`. `end` gives all back. `answers`: its peer has, since the opening.
    `is_in_step`: the last page was all there was to read.
    """

    def __init__(self, budget: Budget, most: int) -> None:
        self._budget = budget
        self._events = most
        self._most = min(most + most // 8, budget.main.size)  # before each event stand its position and path
        self._least = self.needed = min(LEAST, self._most)
        self._asked = self._again = 0
        self._taken = Grant(budget.main, 0)
        self._under_way: deque[Grant] = deque()
        self._nudge: asyncio.Future[None] | None = None
        self.answers = self.is_in_step = False

    @property
    def uses_main(self) -> bool:
        """Whether it waits for whole batches."""
        return self.answers and not self.is_in_step

    @property
    def wanted(self) -> int:
        """Bytes of the next batch at most; it takes no less than `needed`."""
        return max(self._most, self.needed)

    def window(self, wide: int) -> int:
        """How many batches may be under way now, of so many at most; 0 when it has to wait for its turn."""
        main = self._budget.main
        if self.answers and main.held + self.wanted <= main.size and not main.queue:
            return wide
        return int(self._taken.size > 0 or len(self._under_way) > 0 or self._budget.is_free(self))

    def wait(self, nudge: asyncio.Future[None]) -> None:
        """Wait for its turn, in which the nudge is set."""
        self._nudge = nudge
        if not self._taken.size:
            self._budget.queue(self)
        elif not nudge.done():
            nudge.set_result(None)

    def try_its_turn(self) -> bool:
        """Take what there is for it, and go on; whether there is anything."""
        self._take_offer()
        if self._taken.size and self._nudge is not None and not self._nudge.done():
            self._nudge.set_result(None)
        return self._taken.size > 0

    def take(self) -> int:
        """Take room for a page, if that is not done; how many bytes of events it may have."""
        if not self._taken.size:
            self._take_offer()
        self._asked = self._again or min(self._events, self._taken.size * 8 // 9)
        return self._asked

    def keep(self, size: int) -> bool:
        """Whether a page that was read may be kept, now that its size is known.

        Where it is larger than what was taken, and there is no room for that, it has to be read again in its turn: who
        waits for others must hold nothing that they wait for.
        """
        half, taken = self._taken
        if size > taken and half.held + size - taken > half.size and half.held > taken:
            self._again, self.needed = self._asked, size
            self.drop()
            return False
        self._again, self.needed, self._taken = 0, self._least, Grant(half, size)
        self._budget.give_back(half, taken - size)
        return True

    def carry(self) -> None:
        """The page that was kept becomes a batch under way."""
        self._under_way.append(self._taken)
        self._taken = Grant(self._budget.main, 0)

    def drop(self) -> None:
        """The page is gone."""
        taken, self._taken = self._taken, Grant(self._budget.main, 0)
        self._budget.give_back(*taken)

    def settled(self) -> None:
        """The first batch under way is done, and the peer has answered."""
        self._budget.give_back(*self._under_way.popleft())

    def end(self) -> None:
        """Hold nothing, and wait for nothing."""
        self._nudge, self._again, self.needed = None, 0, self._least
        self.answers = self.is_in_step = False
        self._budget.leave(self)
        self.drop()
        while self._under_way:
            self.settled()

    def _take_offer(self) -> None:
        if (grant := self._budget.offer(self)) is not None:
            grant.half.held += grant.size
            self._taken = grant
