"""The memory budget of a process for batches to peers: one budget for all links.

One half, `main`, is for links whose peer has answered since the link was opened: whole batches, and several of them
while there is plenty. When it is used up, no link reads ahead, and links wait in order, for one batch each. The other
half, `first`, is for the first batch of each link. That batch is small enough that every link has room for one without
waiting, unless it would be below `LEAST`.

A peer that takes a batch and never answers therefore holds its link's share of this half and no more, from one timeout
to the next. A link that has caught up also uses its share instead of waiting: its new events are few, and must not
queue behind the backlog of other links. If all peers stop answering in the middle of their batches, they hold `main`
until their timeouts. If nothing is returned to `main` for `PATIENCE` while links wait, these continue with their
shares of `first`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from eventd.runtime.clock import Clock

LEAST = 64 << 10
"""Minimum bytes that a link gets; it waits until they are available, unless its batches are smaller. Small batches
cost nearly as much as large ones."""
PATIENCE = 2.0
"""Seconds without any returned batch after which waiting links use the other half. If any of many peers answers at
all, one of the batches is answered within milliseconds.
"""


class BudgetShare:
    """One half of the budget: its `size` in bytes, of which `held` are in use, and the links waiting for it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self.queue: dict[Allowance, None] = {}

    def fits(self, size: int) -> bool:
        """Return whether this many bytes are available.

        A size above the whole half counts as available while nothing is held.
        """
        return self.held + size <= self.size or not self.held


class Grant(NamedTuple):
    """Bytes that a link got from one half of the budget."""

    half: BudgetShare
    size: int


class Budget:
    """`total` bytes for all links. `links` returns their number. For one event loop."""

    def __init__(self, total: int, links: Callable[[], int], clock: Clock) -> None:
        self.main = BudgetShare(total // 2)
        self.first = BudgetShare(total - total // 2)
        self._links = links
        self._clock = clock
        self._timer: asyncio.Future[None] | None = None
        self._moves = True
        self._is_stuck = False

    @property
    def held(self) -> int:
        """Return the bytes in use in both halves."""
        return self.main.held + self.first.held

    @property
    def waiting(self) -> int:
        """Return the number of links that wait for memory."""
        return len(self.main.queue) + len(self.first.queue)

    def offer(self, link: Allowance) -> Grant | None:
        """Return what a link may use now for one batch, as bytes of one half of the budget; None: it has to wait.

        Reserves nothing.
        """
        if link.answers and self.main.fits(link.wanted):
            return Grant(self.main, link.wanted)
        if link.uses_main and not self._is_stuck:
            return None
        size = min(link.wanted, max(link.needed, self.first.size // max(1, self._links())))
        return Grant(self.first, size) if self.first.fits(size) else None

    def queue(self, link: Allowance) -> None:
        """Queue a link for its turn, which may come at once. A link that waits keeps its place."""
        self._queue_of(link)[link] = None
        self._serve()

    def is_free(self, link: Allowance) -> bool:
        """Return whether a link with nothing under way need not wait."""
        return not self._queue_of(link) and self.offer(link) is not None

    def leave(self, link: Allowance) -> None:
        """Remove a link from the queue."""
        self.main.queue.pop(link, None)
        self.first.queue.pop(link, None)
        self._serve()  # the next one may need less

    def give_back(self, half: BudgetShare, size: int) -> None:
        """Return bytes to a half of the budget, and offer them to the links whose turn it is."""
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
    """The share of one link in a budget. `most`: bytes of events in its largest batch.

    Before each page, ask for the `window`, or `wait` for the link's turn; then `take`, read the page, and `keep` it.
    `drop` the page, or `carry` it as a batch until that is `settled`. `end` returns everything. `answers`: the peer has
    answered since the link was opened. `is_in_step`: the last page reached the end of the log.
    """

    def __init__(self, budget: Budget, most: int) -> None:
        self._budget = budget
        self._events = most
        self._most = min(most + most // 8, budget.main.size)  # each event is preceded by its position and path
        self._least = self.needed = min(LEAST, self._most)
        self._asked = self._again = 0
        self._taken = Grant(budget.main, 0)
        self._under_way: deque[Grant] = deque()
        self._nudge: asyncio.Future[None] | None = None
        self.answers = self.is_in_step = False

    @property
    def uses_main(self) -> bool:
        """Return whether this link waits for the main half: its peer has answered, and it is behind the log's end."""
        return self.answers and not self.is_in_step

    @property
    def wanted(self) -> int:
        """Return the maximum bytes that the next batch may take; `needed` is the minimum."""
        return max(self._most, self.needed)

    def window(self, wide: int) -> int:
        """Return how many batches may be under way now, up to `wide`; 0 when it has to wait for its turn."""
        main = self._budget.main
        if self.answers and main.held + self.wanted <= main.size and not main.queue:
            return wide
        return int(self._taken.size > 0 or len(self._under_way) > 0 or self._budget.is_free(self))

    def wait(self, nudge: asyncio.Future[None]) -> None:
        """Join the queue; the result of `nudge` is set when it is this link's turn."""
        self._nudge = nudge
        if not self._taken.size:
            self._budget.queue(self)
        elif not nudge.done():
            nudge.set_result(None)

    def try_its_turn(self) -> bool:
        """Reserve what is available, and set the nudge of `wait`; return whether any bytes are reserved."""
        self._take_offer()
        if self._taken.size and self._nudge is not None and not self._nudge.done():
            self._nudge.set_result(None)
        return self._taken.size > 0

    def take(self) -> int:
        """Reserve room for a page, unless that is done already; return the bytes of events that it may have."""
        if not self._taken.size:
            self._take_offer()
        self._asked = self._again or min(self._events, self._taken.size * 8 // 9)
        return self._asked

    def keep(self, size: int) -> bool:
        """Keep a page that was read, now that its size is known; return False if it was dropped instead.

        A page is dropped if it is larger than reserved and the rest is not free. It must be read again in its turn: a
        waiting link must not hold what others wait for.
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
        """Count the page that was kept as a batch under way."""
        self._under_way.append(self._taken)
        self._taken = Grant(self._budget.main, 0)

    def drop(self) -> None:
        """Give back the bytes reserved for a page, which is not sent."""
        taken, self._taken = self._taken, Grant(self._budget.main, 0)
        self._budget.give_back(*taken)

    def settled(self) -> None:
        """Give back the bytes of the oldest batch under way, which is done."""
        self._budget.give_back(*self._under_way.popleft())

    def end(self) -> None:
        """Give back all bytes, and stop waiting."""
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
