"""Waking readers by number: "wait until the head is beyond mine", never "wait for an event".

A watch is registered before its owner first reads, and only ever raises a number. So an append that lands between a
read and the wait after it is not missed, and a sign that is lost costs one poll.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection


class Watch:
    """One reader's interest in some topics; `None` means all of them."""

    def __init__(self, topics: Collection[int] | None) -> None:
        self.topics = topics
        self.head = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def raise_to(self, head: int) -> None:
        """Say that records up to `head` exist."""
        if head <= self.head:
            return
        self.head = head
        waiting, self._waiting = self._waiting, []
        for position, future in waiting:
            if future.done():
                continue
            if head > position:
                future.set_result(None)
            else:
                self._waiting.append((position, future))

    def beyond(self, position: int) -> asyncio.Future[None]:
        """A future that is done when the head is beyond `position`. Cancelling it is harmless."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.head > position:
            future.set_result(None)
        else:
            self._waiting = [(p, f) for p, f in self._waiting if not f.done()]
            self._waiting.append((position, future))
        return future


class Wakeups:
    """All watches of a process, and the last position it knows of."""

    def __init__(self) -> None:
        self.head = 0
        self._by_topic: defaultdict[int, set[Watch]] = defaultdict(set)
        self._all: set[Watch] = set()
        self._everything: set[Watch] = set()

    def watch(self, topics: Collection[int] | None) -> Watch:
        """Register an interest. End it with `unwatch`."""
        watch = Watch(topics)
        watch.head = self.head
        self._all.add(watch)
        if topics is None:
            self._everything.add(watch)
        for topic in topics or ():
            self._by_topic[topic].add(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """End an interest."""
        self._all.discard(watch)
        self._everything.discard(watch)
        for topic in watch.topics or ():
            self._by_topic[topic].discard(watch)
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    def appended(self, first: int, last: int, topics: Collection[int]) -> None:
        """This process committed positions `first` to `last` in these topics."""
        if first != self.head + 1:
            return self.foreign(last)  # another process appended in between: nobody here knows to which topic
        self.head = last
        for watch in {w for topic in topics for w in self._by_topic.get(topic, ())} | self._everything:
            watch.raise_to(last)
        return None

    def foreign(self, last: int) -> None:
        """The head is at `last`, and we do not know in which topics: look everywhere."""
        if last > self.head:
            self.head = last
        for watch in self._all:
            watch.raise_to(self.head)
