"""Wakes readers by number: a reader waits until the log's head is after a position, never for a signal without a
position.

A watch is registered before its owner first reads, and its number only increases. So an append between a read and the
following wait is not missed, and a lost signal costs one poll.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final

UNSEEN: Final = 1024
"""Maximum positions that a watch with families may pass without a signal, so that its reader does not fall behind."""
FEW_READERS: Final = 4
"""Maximum number of readers of a topic that run before a client is answered."""
_NEVER: Final = 1 << 63


class Watch:
    """One reader's interest in the topics with these ids; `topics` None: in all topics.

    With `own`, only in records that enter the log at this node. With `families`, only in records whose tag begins with
    one of these and a dot. Other records signal the watch as well, but perhaps only after `UNSEEN` positions.
    """

    __slots__ = ("_due", "_signs", "_waiting", "families", "head", "looks", "own", "readers", "topics", "turn")

    def __init__(
        self, topics: Collection[int] | None, *, own: bool = False, families: frozenset[str] | None = None
    ) -> None:
        self.topics = topics
        self.own = own
        self.families = families
        self.head = 0
        self.readers = 1
        """How many readers share the watch, where they are known."""
        self.turn = 0
        """Changes with every signal, including those without a new head."""
        self.looks = 0
        """Changes only with signals without a new head."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._due = _NEVER  # the first position that is waited for
        self._signs: list[asyncio.Future[None]] = []

    def raise_to(self, head: int) -> None:
        """Signal that the log has grown up to the position `head`; without effect if that is not after `self.head`."""
        if head <= self.head:
            return
        self.head = head
        self.turn += 1
        if self._signs:
            self._sign()
        if head > self._due:
            self._end_waits(head)

    def _end_waits(self, head: int) -> None:
        waiting, self._waiting, self._due = self._waiting, [], _NEVER
        for position, future in waiting:
            if future.done():
                continue
            if head > position:
                future.set_result(None)
            else:
                self._wait(position, future)

    def _wait(self, position: int, future: asyncio.Future[None]) -> None:
        self._waiting.append((position, future))
        self._due = min(self._due, position)

    def look(self) -> None:
        """Signal a change of its topics without a new head: every waiting future is done, so readers read again."""
        waiting, self._waiting, self._due = self._waiting, [], _NEVER
        self.looks += 1
        self.turn += 1
        self._sign()
        for _, future in waiting:
            if not future.done():
                future.set_result(None)

    def _sign(self) -> None:
        signs, self._signs = self._signs, []
        for future in signs:
            if not future.done():
                future.set_result(None)

    def after(self, turn: int) -> asyncio.Future[None]:
        """Return a future that is done once `self.turn` is above `turn`, which the caller notes before reading."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.turn > turn:
            future.set_result(None)
        else:
            self._signs = [f for f in self._signs if not f.done()]
            self._signs.append(future)
        return future

    def beyond(self, position: int, future: asyncio.Future[None] | None = None) -> asyncio.Future[None]:
        """Return the given future, or a new one, that is done once the head is after `position`, or at the next `look`.

        Cancelling it is harmless.
        """
        future = future or asyncio.get_running_loop().create_future()
        if self.head > position:
            future.set_result(None)
        else:
            self._waiting = [(p, f) for p, f in self._waiting if not f.done()]
            self._wait(position, future)
        return future


Listener = Callable[[Collection[int] | None], None]
"""Called synchronously with the ids of the topics that grew or changed; None: any may have. For followers of very many
topics."""


class Wakeups:
    """All watches and listeners of a process, and the last position that the process knows (`head`)."""

    def __init__(self) -> None:
        self.head = 0
        self.listeners: list[Listener] = []
        self._by_topic: defaultdict[int, dict[Watch, None]] = defaultdict(dict)
        self._all: dict[Watch, None] = {}
        self._everything: dict[Watch, None] = {}
        self._selective = 0  # watches with families

    @property
    def needs_families(self) -> bool:
        """Return whether any watch asks for the families of new records: without one, a commit need not know them."""
        return self._selective > 0

    def watch(
        self, topics: Collection[int] | None, *, own: bool = False, families: frozenset[str] | None = None
    ) -> Watch:
        """Register and return a watch, which `unwatch` ends."""
        watch = Watch(topics, own=own, families=families)
        watch.head = self.head
        self._all[watch] = None
        self._selective += families is not None
        if topics is None:
            self._everything[watch] = None
        for topic in topics or ():
            self._by_topic[topic][watch] = None
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Remove a watch."""
        if watch in self._all:
            del self._all[watch]
            self._selective -= watch.families is not None
        self._everything.pop(watch, None)
        for topic in watch.topics or ():
            self._by_topic[topic].pop(watch, None)
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    def is_watched(self, topic_id: int) -> bool:
        """Return whether any watch names this topic; watches of all topics do not count."""
        return topic_id in self._by_topic

    def are_few(self, topics: Collection[int]) -> bool:
        """Return whether at most `FEW_READERS` watch these topics; watches of all topics do not count."""
        if sum(len(self._by_topic.get(topic, ())) for topic in topics) > FEW_READERS:
            return False  # thousands of watches are not counted one by one
        return sum(watch.readers for topic in topics for watch in self._by_topic.get(topic, ())) <= FEW_READERS

    def appended(
        self, first: int, last: int, topics: Mapping[int, bool], families: Collection[str] | None = None
    ) -> None:
        """Wake the readers of these topics: this process committed the positions `first` to `last`.

        If another process appended before `first`, every reader is woken.

        `topics`: for each topic id, whether any of its new records entered the log at this node. `families` are those
        of the tags of all new records; None if they are not known.
        """
        if first != self.head + 1:
            self.foreign(last)  # another process appended in between, to unknown topics
            return
        self.head = last
        own = any(topics.values())
        for topic, entered in topics.items():
            for watch in self._by_topic.get(topic, ()):
                unseen = families is not None and watch.families is not None and watch.families.isdisjoint(families)
                if (entered or not watch.own) and not (unseen and last - watch.head < UNSEEN):
                    watch.raise_to(last)
        for watch in self._everything:
            if own or not watch.own:
                watch.raise_to(last)
        self._notify(topics)

    def touch(self, topic_id: int) -> None:
        """Wake the readers of a topic that changed without an append.

        The topic or records of it were deleted, or its configuration changed.
        """
        for watch in [*self._by_topic.get(topic_id, ()), *self._everything]:
            watch.look()
        self._notify((topic_id,))

    def touch_all(self) -> None:
        """Wake every reader: other processes may have changed any topic."""
        for watch in self._all:
            watch.look()
        self._notify(None)

    def foreign(self, last: int) -> None:
        """Wake every reader: the head is at `last`, and another process appended to unknown topics."""
        if last > self.head:
            self.head = last
        for watch in self._all:
            watch.raise_to(self.head)
        self._notify(None)

    def _notify(self, topics: Collection[int] | None) -> None:
        for listener in self.listeners:
            listener(topics)
