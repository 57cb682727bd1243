"""Long polls: clients that wait for the same page share the watch and the read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from eventd.api.topics.calls import V0
from eventd.errors import EventdError
from eventd.log.core.wakeups import Watch
from eventd.log.topics.topic_page import TopicPage, TopicQuery, read_topic_page


class Poll:
    """A wait for one page, shared by several clients. It lasts as long as one of them remains."""

    def __init__(self, ask: TopicQuery, watch: Watch, v0: V0) -> None:
        self.watch = watch
        self.clients = 0
        self._ask = ask
        self._v0 = v0
        self._turn = -1
        self._reading: asyncio.Task[TopicPage] | None = None
        self._sign: asyncio.Future[None] | None = None

    async def read(self) -> TopicPage:
        """Return the page, read after the topic's last signal: one read serves all clients until the next signal."""
        if self._reading is None or self._turn != self.watch.turn:
            self._turn = self.watch.turn
            name = f"a page of {self._ask.topic}"
            self._reading = self._v0.supervisor.spawn(self._read(), name, expects=EventdError)
        return await asyncio.shield(self._reading)

    def after(self, turn: int) -> asyncio.Future[None]:
        """Return a future for the topic's next signal after `turn`. Several clients share it: do not cancel it."""
        if self.watch.turn > turn or self._sign is None or self._sign.done():
            self._sign = self.watch.after(turn)
        return self._sign

    async def _read(self) -> TopicPage:
        return await self._v0.database.read(read_topic_page, replace(self._ask, now=self._v0.clock.now()))


class Polls:
    """The polls of all clients of this process."""

    def __init__(self, v0: V0) -> None:
        self._v0 = v0
        self._polls: dict[tuple[int, TopicQuery], Poll] = {}

    @contextmanager
    def of(self, topic_id: int, ask: TopicQuery) -> Iterator[Poll]:
        """Yield the poll that all clients with this query of the topic `topic_id` share.

        It is created by the first client, with its watch before any read, and ends with the last one.
        """
        wakeups, key = self._v0.log.wakeups, (topic_id, replace(ask, now=0))
        poll = self._polls.get(key)
        if poll is None:
            poll = self._polls[key] = Poll(ask, wakeups.watch([topic_id]), self._v0)
        poll.clients += 1
        try:
            yield poll
        finally:
            poll.clients -= 1
            if not poll.clients:
                del self._polls[key]
                wakeups.unwatch(poll.watch)


def is_at_end(found: TopicPage) -> bool:
    """Return whether a page has neither records nor a tombstone, and ends at the head of its topic."""
    return not found.records and found.tombstone is None and found.caught_up


async def wait_for_more(v0: V0, ask: TopicQuery, first: TopicPage, seconds: float) -> TopicPage:
    """Return the page as soon as it has news or ends at another seq than `first`.

    Or as it is when the time is over, or the node stops. The watch begins before the page is read again, so nothing
    that is written in between is missed.
    """
    over = v0.clock.timer(seconds)
    with v0.part(Polls).of(first.topic_id, ask) as poll:
        try:
            while True:
                turn = poll.watch.turn
                found = await poll.read()
                is_new = not is_at_end(found) or found.next_from_seq != first.next_from_seq
                if is_new or over.done() or v0.stopping.done():
                    return found
                await asyncio.wait({poll.after(turn), over, v0.stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
