"""Shared reads: clients at the same position of a topic with the same options receive the same page.

No pages are queued for a client. Clients that have caught up wait at a `Feed`; when the topic grows, one read serves
all of them. A client that is behind reads the pages after its own position, and shares each read with others there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

from eventd.api.topics.calls import V0
from eventd.errors import EventdError
from eventd.log.core.records import View
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.topic_page import Tombstone, TopicPage, TopicQuery, continue_topic_page, read_topic_page

T = TypeVar("T")

LINGER_SECONDS = 0.2
"""How long a page is shared with other clients, as long as nothing is written to its topic."""
AT_ONCE = 50
"""Maximum number of clients that are served before the event loop turns to other work."""


_NODE = re.compile(r'{"\$seq":\d+,"\$ts":\d+,"\$node":("(?:[^"\\]|\\.)*")')
"""The beginning of a record that names its node."""


class PageOptions(NamedTuple):
    """The options of a client's pages: excluded nodes, the members of records, the maximum size, and whether epochs are
    named."""

    nodes: frozenset[str]
    view: View
    limit: int
    max_bytes: int
    epochs: bool = False


class TopicRequest(NamedTuple):
    """A topic, and the options of its pages."""

    topic_id: int
    name: str
    pages: PageOptions

    @property
    def of_any_node(self) -> TopicRequest:
        """Return the same request with the records of all nodes."""
        return self._replace(pages=self.pages._replace(nodes=frozenset()))


ReadKey = tuple[int, frozenset[str], str]
"""The key of a shared read: a seq, the excluded nodes, and the epoch of the seq, if known."""


class Page:
    """A page of a topic after the seq `after`; `found` is None when the topic was deleted.

    `texts` caches the messages made of it, so that each is made once for all clients; `made`, anything else. Its
    properties are cached too, because thousands of clients read them.
    """

    def __init__(self, name: str, after: int, found: TopicPage | None) -> None:
        self.name = name
        self.after = after
        self.found = found
        self.texts: dict[object, bytes] = {}
        self._without: dict[frozenset[str], Page] = {}
        self._made: dict[Hashable, Any] = {}

    def made(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` creates, which is called only the first time with this key."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def without(self, nodes: frozenset[str]) -> Page:
        """Return the page without the records of some nodes, whose names are given as JSON texts.

        A topic without `dedupe_node` excludes none.
        """
        if not nodes or self.found is None or not self.found.dedupe_node or nodes.isdisjoint(self._nodes):
            return self
        hidden = nodes.intersection(self._nodes)
        if hidden not in self._without:
            texts = zip(self.found.records, self._nodes, strict=True)
            kept = replace(self.found, records=[text for text, node in texts if node not in hidden])
            self._without[hidden] = Page(self.name, self.after, kept)
        return self._without[hidden]

    @cached_property
    def _nodes(self) -> list[str]:
        """Return the node of each record as a JSON text; an empty text for a record without one."""
        found = map(_NODE.match, () if self.found is None else self.found.records)
        return [match[1] if match else "" for match in found]

    @cached_property
    def is_deleted(self) -> bool:
        """Return whether the topic was deleted."""
        return self.found is None

    @cached_property
    def upto(self) -> int:
        """Return the seq after which the next page begins."""
        return self.after if self.found is None else self.found.next_from_seq

    @cached_property
    def epoch(self) -> str:
        """Return the epoch of its seqs; empty if the topic no longer exists."""
        return "" if self.found is None else self.found.epoch

    @cached_property
    def caught_up(self) -> bool:
        return self.found is not None and self.found.caught_up

    @cached_property
    def head_seq(self) -> int:
        return 0 if self.found is None else self.found.head_seq

    @cached_property
    def tombstone(self) -> Tombstone | None:
        return None if self.found is None else self.found.tombstone

    @cached_property
    def begins_after(self) -> int:
        """Return the seq after which its records begin: `after`, or the one before its tombstone's `earliest_seq`."""
        return self.after if self.tombstone is None else self.tombstone.earliest_seq - 1

    @cached_property
    def records(self) -> str:
        """Return the records of the page as one JSON list; empty without records."""
        return f"[{','.join(self.found.records)}]" if self.found is not None and self.found.records else ""

    @cached_property
    def bounds(self) -> tuple[str, str, str]:
        """Return the JSON members that describe the range of its records: from_seq (exclusive), to_seq, head_seq."""
        return f'"from_seq":{self.begins_after}', f'"to_seq":{self.upto}', f'"head_seq":{self.head_seq}'

    def loss(self, lost: Tombstone, reason: str = "", *, epochs: bool = False) -> dict[str, str | int]:
        """Return the members of a client's message about lost records; `reason`, unless empty, replaces their own."""
        members: dict[str, str | int] = {
            "topic": self.name,
            "reason": reason or lost.reason,
            "gap_from": lost.gap_from,
            "gap_to": lost.gap_to,
            "earliest_seq": lost.earliest_seq,
            "head_seq": lost.head_seq,
        }
        return members | {"epoch": self.epoch} if epochs else members


class FeedReader(Protocol):
    """The members used here of a client that waits at a feed. `after` is its seq."""

    after: int

    def take(self, page: Page) -> None:
        """Receive the page after its seq. Afterwards the client may wait at the feed again, or read alone."""
        ...

    def look(self) -> None:
        """Have the client read alone: the page could not be read for all clients together."""
        ...


class Feed:
    """One topic for clients with the same options. Its watch on the topic begins before any of them reads.

    Clients that exclude different nodes share a feed: at the end of a topic, the excluded records are removed for each
    client, so that nodes which only exclude their own records share one read.
    """

    def __init__(self, want: TopicRequest, v0: V0) -> None:
        self.want = want
        self.users = 0
        self._v0 = v0
        self._watch = v0.log.wakeups.watch((want.topic_id,))
        self._reads: dict[ReadKey, tuple[int, asyncio.Task[Page]]] = {}
        self._last: tuple[int, TopicPage] | None = None  # a page that had caught up, at this turn of the watch
        self._waiting: dict[int, dict[FeedReader, None]] = {}
        # It must live: without it clients that have caught up get no news.
        self._serving = v0.supervisor.keep(self._serve_for_ever, f"feed of {want.name}")

    def add_users(self, number: int) -> None:
        """Count clients that begin to use the feed, or, with a negative number, end it."""
        self.users += number
        self._watch.readers = self.users

    @property
    def turn(self) -> int:
        """Return the turn, which changes with every signal of the topic."""
        return self._watch.turn

    def wait(self, client: FeedReader, turn: int) -> bool:
        """Have the client wait for the next page, and return True; with a signal since `turn`, only return False.

        The client must then read the topic alone.
        """
        if turn != self.turn:
            return False
        self.await_more(client)
        return True

    def await_more(self, client: FeedReader) -> None:
        """Have the client wait for the page after its seq."""
        there = self._waiting.get(client.after)
        if there is None:
            there = self._waiting[client.after] = {}
        there[client] = None

    def forget(self, client: FeedReader) -> None:
        """Remove a waiting client."""
        there = self._waiting.get(client.after, {})
        there.pop(client, None)
        if not there:
            self._waiting.pop(client.after, None)

    async def read(self, after: int, nodes: frozenset[str] = frozenset(), epoch: str = "") -> Page:
        """Return the page after a seq of the `epoch`, without the records of some nodes, as new as the last signal.

        It is shared until the next signal, for `LINGER_SECONDS` at most. A cached page still costs a turn of the loop:
        a caller that reads page after page would otherwise starve everything else.
        """
        turn, place = self.turn, (after, nodes, epoch)
        known, reading = self._reads.get(place, (-1, None))
        if reading is None or known != turn:
            name = f"read of {self.want.name}"
            reading = self._v0.supervisor.spawn(self._load(*place), name, expects=EventdError)
            self._reads[place] = turn, reading
            reading.add_done_callback(lambda done: self._linger(place, done))
        if reading.done():
            await self._v0.clock.sleep(0)
        return await asyncio.shield(reading)

    async def _load(self, after: int, nodes: frozenset[str], epoch: str) -> Page:
        looks, ask = self._watch.looks, self._ask(after, nodes, epoch)
        self._v0.recency.touch(self.want.topic_id, ask.now)
        try:
            found = await self._v0.database.read(read_topic_page, ask)
        except TopicNotFound:
            return Page(self.want.name, after, None)
        self._last = (looks, found) if found.caught_up else self._last
        return Page(self.want.name, after, found)

    def _ask(self, after: int, nodes: frozenset[str] = frozenset(), epoch: str = "") -> TopicQuery:
        pages = self.want.pages
        return TopicQuery(
            topic=self.want.topic_id,
            now=self._v0.clock.now(),
            from_seq=after,
            limit=pages.limit,
            max_bytes=pages.max_bytes,
            nodes=nodes,
            view=pages.view,
            epoch=epoch,
            apart=True,
        )

    def _at_hand(self, after: int) -> Page | None:
        """Return the page after the seq `after` from memory; None if it must be read.

        It is in memory if the last page read ends there, and the topic has since only grown, by this process alone.
        """
        log, (looks, last) = self._v0.log, self._last or (-1, None)
        if last is None or looks != self._watch.looks or last.head_seq != after:
            return None
        recent = log.tail.beyond(self.want.topic_id, last.head.last, own=False)
        if recent is None or recent.head.last != log.wakeups.head:
            return None
        ask = self._ask(after)
        found = continue_topic_page(last, recent, ask)
        if found is None:
            return None
        self._v0.recency.touch(self.want.topic_id, ask.now)
        self._last = looks, found
        return Page(self.want.name, after, found)

    def _linger(self, place: ReadKey, done: asyncio.Task[Page]) -> None:
        def forget() -> None:
            if self._reads.get(place, (0, None))[1] is done:
                del self._reads[place]

        asyncio.get_running_loop().call_later(LINGER_SECONDS, forget)

    async def _serve_for_ever(self) -> None:
        turn, more = self.turn, False
        while True:
            if not more:
                await self._watch.after(turn)
            turn, more = self.turn, False
            waiting, self._waiting = self._waiting, {}
            for after, clients in waiting.items():
                more |= await self._serve(after, clients)

    async def _serve(self, after: int, clients: Collection[FeedReader]) -> bool:
        """Send these clients the page after their seq; return whether there is a next page that a client waits for."""
        try:
            page = self._at_hand(after) or await self.read(after)
        except Exception:
            for client in clients:
                client.look()  # each client reads by itself and receives the error
            return False
        for served, client in enumerate(clients, 1):
            client.take(page)
            if not served % AT_ONCE:
                await self._v0.clock.sleep(0)
        # Danger: without a client that advances, the same page would be served again and again, for ever.
        return after < page.upto in self._waiting and not (page.caught_up or page.is_deleted)

    def close(self) -> None:
        """Stop: no client uses the feed."""
        self._serving.cancel()
        self._v0.log.wakeups.unwatch(self._watch)


class Feeds:
    """The feeds in use, each as long as it has a user."""

    def __init__(self, v0: V0) -> None:
        self._v0 = v0
        self._feeds: dict[TopicRequest, Feed] = {}

    def use(self, want: TopicRequest) -> Feed:
        """Return the feed of a request, with the records of all nodes. End the use with `release`."""
        want = want.of_any_node
        feed = self._feeds.get(want)
        if feed is None:
            feed = self._feeds[want] = Feed(want, self._v0)
        feed.add_users(1)
        return feed

    def release(self, feed: Feed, client: FeedReader) -> None:
        """End a client's use of a feed; the feed stops after the last one."""
        feed.forget(client)
        feed.add_users(-1)
        if not feed.users:
            del self._feeds[feed.want]
            feed.close()
