"""Clients that follow topics, each at its own pace: the common part of SSE streams and WebSockets.

A client is written to as long as it reads. One that does not read continues later from its own position: little
is buffered for it (`sending.HELD_BYTES` and a page), and no other client waits.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from eventd.api.errors.codes import TOPICS_FORM, Internal, internal
from eventd.api.topics.calls import V0
from eventd.api.topics.shared_reads import Feed, Feeds, Page, TopicRequest
from eventd.errors import EventdError
from eventd.log.core.records import encoded
from eventd.runtime.clock import Clock

BEAT_SECONDS = 0.25
"""Seconds between checks for clients that disconnected or need a heartbeat."""
logger = logging.getLogger("eventd.api")


class OutgoingStream(Protocol):
    """Interface: the outgoing stream to one client."""

    @property
    def closed(self) -> bool:
        """Return whether the client gets nothing more."""
        ...

    @property
    def full(self) -> bool:
        """Return whether nothing should be written now, because the client still has much to read."""
        ...

    def write(self, text: bytes) -> None:
        """Send, without waiting for the client; nothing after the end."""
        ...

    async def drain(self) -> None:
        """Wait, if the stream is full, until it is not. Raises ConnectionError if the client left."""
        ...

    def abort(self) -> None:
        """End the stream now, and drop what the client has not read."""
        ...

    def send_last(self, text: bytes) -> None:
        """Send a last message, without letting a client that does not read delay the node."""
        ...


class WatchCursor(NamedTuple):
    """How far a topic was sent to a client: a seq, and its epoch."""

    seq: int
    epoch: str


class FollowedTopic:
    """One topic that one client follows, without the records of `nodes`.

    The client was sent everything up to the seq `after` of the `epoch`.
    """

    def __init__(self, follower: Follower, feed: Feed, nodes: frozenset[str], cursor: WatchCursor) -> None:
        self.feed = feed
        self.nodes = nodes
        self.after, self.epoch = cursor
        self.is_first = True
        """Whether nothing has been read for the client yet."""
        self.owes_end = True
        """Whether the client must still be notified when it has caught up."""
        self.has_left = False
        self._hidden = frozenset(map(encoded, nodes))
        self._follower = follower

    @property
    def name(self) -> str:
        """Return the name of the topic."""
        return self.feed.want.name

    def take(self, page: Page) -> None:
        """Send the client a page of the feed, and wait for the next one.

        A client that is slow, or in another epoch, reads the topic alone instead.
        """
        follower = self._follower
        if self.has_left or follower.has_ended:
            return
        if follower.stream.full or page.epoch not in ("", self.epoch):
            self.look()
            return
        try:
            follower.send(self, page.without(self._hidden) if self._hidden else page)
        except Exception:
            self.look()  # where the error affects only this client
        else:
            if not (self.has_left or follower.has_ended):
                self.feed.await_more(self)

    def note_sent(self, page: Page) -> None:
        """Move the cursor to the end of a page that was sent."""
        has_news = bool(page.records) or page.tombstone is not None
        self.owes_end = (self.owes_end or has_news) and not page.caught_up
        self.is_first = False
        self.after = page.upto
        self.epoch = page.epoch or self.epoch

    def look(self) -> None:
        """Have the client read the topic alone until it has caught up."""
        if not self.has_left:
            self._follower.fall_behind(self)


class Follower(ABC):
    """A client with the topics it follows, which `run` serves.

    It is served until it disconnects or follows no topic (unless it `stays`), the node stops, or on an error.
    """

    stays = False

    def __init__(self, registry: FollowerRegistry, client: OutgoingStream, heartbeat: float) -> None:
        self.stream = client
        self.topics: dict[str, FollowedTopic] = {}
        self.has_ended = False
        self._registry = registry
        self._clock = registry.clock
        self._heartbeat = heartbeat
        self._sent_at = self._clock.monotonic()
        self._behind: dict[FollowedTopic, None] = {}
        self._nap: asyncio.Future[None] | None = None

    # --- messages in the form of the client -----------------------------------------------------------------------

    @abstractmethod
    def words(self, following: FollowedTopic, page: Page) -> bytes:
        """Return a page as a message to the client; empty if it has no news."""

    @abstractmethod
    def heartbeat(self) -> bytes:
        """Return a message without news, which shows that the node is up."""

    @abstractmethod
    def error(self, code: str, message: str) -> bytes:
        """Return the last message of a stream that fails, or whose node stops."""

    # --- which topics ---------------------------------------------------------------------------------------------

    def follow(self, want: TopicRequest, cursor: WatchCursor) -> None:
        """Send the client a topic from a cursor on; replaces its previous cursor in that topic."""
        if self.has_ended:
            return
        self.leave(want.name)
        following = FollowedTopic(self, self._registry.feeds.use(want), want.pages.nodes, cursor)
        self.topics[want.name] = following
        self.fall_behind(following)

    def leave(self, name: str) -> None:
        """Stop sending a topic to the client."""
        if (following := self.topics.pop(name, None)) is not None:
            self._let_go(following)

    def _let_go(self, following: FollowedTopic) -> None:
        if not following.has_left:
            following.has_left = True
            self._behind.pop(following, None)
            self._registry.feeds.release(following.feed, following)

    def close(self) -> None:
        """End the stream, and release all feeds. The cursors stay readable."""
        self.end()
        for following in self.topics.values():
            self._let_go(following)

    # --- sending --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the client. An error is sent to it, and ends the stream."""
        with self._registry.holding(self):
            try:
                while not self.has_ended and (self.topics or self.stays):
                    if self._behind:
                        await self._catch_up(next(iter(self._behind)))
                    else:
                        await self._rest()
            except ConnectionError:
                pass  # the client disconnected
            except EventdError as error:
                self.stream.write(self.error(TOPICS_FORM.code(error), str(error)))
            except Exception:
                incident = self._registry.chance.token(4).hex()
                logger.exception("stream failed", extra={"incident": incident})
                self.stream.write(self.error(Internal.code, str(internal(incident))))

    def fall_behind(self, following: FollowedTopic) -> None:
        """Have the client read a topic alone."""
        self._behind[following] = None
        self.wake()

    async def _catch_up(self, following: FollowedTopic) -> None:
        """Send one page of one topic; then the other topics that are behind have their turn."""
        del self._behind[following]
        await self.stream.drain()
        if following.is_first:
            await self._registry.catch_up(following.name)
        turn = following.feed.turn
        page = await following.feed.read(following.after, following.nodes, following.epoch)
        if following.has_left or self.has_ended:
            return
        self.send(following, page)
        if not following.has_left and not (page.caught_up and following.feed.wait(following, turn)):
            self._behind[following] = None

    def send(self, following: FollowedTopic, page: Page) -> None:
        """Write a page to the client and move its cursor; then leave the topic if it was deleted.

        Ends a client whose connection is closed instead.
        """
        stream = self.stream
        if stream.closed:
            self.end()
        if self.has_ended:
            return
        if text := self.words(following, page):
            stream.write(text)
            self._sent_at = self._clock.monotonic()
        following.note_sent(page)
        if page.is_deleted:
            self.leave(following.name)
            self.wake()

    async def _rest(self) -> None:
        self._nap = asyncio.get_running_loop().create_future()
        await self._nap

    def wake(self) -> None:
        """Resume `run`: the client has work."""
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)

    def beat(self, now: float) -> None:
        """End a client whose connection is closed; send another, if it reads, a due heartbeat. `now` is monotonic."""
        if self.stream.closed:
            self.end()
        elif now - self._sent_at >= self._heartbeat and not self.stream.full:
            self.stream.write(self.heartbeat())
            self._sent_at = now

    def end(self) -> None:
        """Have `run` return: the client is no longer served."""
        self.has_ended = True
        self.wake()

    def stop(self) -> None:
        """Notify the client that the node stops, and end its stream."""
        if not self.has_ended:
            self.stream.send_last(self.error("server_shutting_down", "the node is stopping: reconnect"))
            self.end()


class FollowerRegistry:
    """All clients of this process that have an open stream."""

    def __init__(self, v0: V0) -> None:
        self.clock: Clock = v0.clock
        self.chance = v0.log.chance
        self.database = v0.database
        self.feeds = Feeds(v0)
        self.catch_up = v0.catch_up
        self._supervisor = v0.supervisor
        self._stopping = v0.stopping
        self._followers: dict[Follower, None] = {}
        self._beating: asyncio.Task[None] | None = None
        v0.stopping.add_done_callback(lambda _: self._stop())

    @contextmanager
    def holding(self, follower: Follower) -> Iterator[None]:
        """Keep a client registered while the block runs, and close it afterwards.

        A registered client gets heartbeats, is notified if the node stops, and ends when its connection is closed.
        """
        self._followers[follower] = None
        if self._stopping.done():
            follower.stop()
        if self._beating is None:
            # It must live: without it clients get no heartbeats, and disconnected ones still count as streams.
            self._beating = self._supervisor.keep(self._beat_for_ever, "heartbeats of the clients that follow topics")
        try:
            yield
        finally:
            follower.close()
            self._followers.pop(follower, None)
            if not self._followers:
                self._beating.cancel()
                self._beating = None

    async def end_disconnected(self) -> None:
        """End the streams of disconnected clients now."""
        self._beat()
        await self.clock.sleep(0)  # lets them end

    async def _beat_for_ever(self) -> None:
        while True:
            await self.clock.sleep(BEAT_SECONDS)
            self._beat()

    def _beat(self) -> None:
        now = self.clock.monotonic()
        for follower in self._followers:
            follower.beat(now)

    def _stop(self) -> None:
        for follower in list(self._followers):
            follower.stop()
