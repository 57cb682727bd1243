"""Clients that follow topics, each at its own pace: what an SSE stream and a WebSocket have in common.

A client is written to as long as it takes what it is sent. One that does not is left alone until it does, and then
reads on from where it is: it is merely behind, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from aiohttp.abc import AbstractStreamWriter

from eventd.api.errors.codes import TOPICS_FORM
from eventd.api.topics.calls import V0
from eventd.api.topics.shared_reads import Feed, Feeds, Portion, Want
from eventd.errors import EventdError
from eventd.log.core.records import encoded
from eventd.runtime.clock import Clock

HELD_BYTES = 64 << 10
"""Bytes a client may leave untaken before it counts as behind. Beside them, at most one page waits for it."""
BEAT_SECONDS = 0.25
"""How soon it is noticed that a client has gone, or has not been told anything for long."""
logger = logging.getLogger("eventd.api")
PARTING_SECONDS = 0.25
"""How long a client has to take the last words of a node that stops."""


class Outlet:
    """The way to one client."""

    def __init__(self, transport: asyncio.Transport, writer: AbstractStreamWriter) -> None:
        self._transport = transport
        self._writer = writer
        transport.set_write_buffer_limits(high=HELD_BYTES)

    @property
    def closed(self) -> bool:
        """Whether the client has gone."""
        return self._transport.is_closing()

    @property
    def full(self) -> bool:
        """Whether the client does not take what it is sent."""
        return self._transport.get_write_buffer_size() > HELD_BYTES

    def write(self, text: bytes) -> None:
        """Send, as soon as the client takes it."""
        if not self._transport.is_closing():
            self._transport.write(text)

    async def drain(self) -> None:
        """Until the client has taken most of what it was sent. Raises ConnectionError when it goes meanwhile."""
        await self._writer.drain()

    def abort(self) -> None:
        """End the connection now, whatever has not been taken."""
        self._transport.abort()

    def part(self, text: bytes) -> None:
        """Say something last, to who takes it at once: a node that stops must not wait for clients that do not read."""
        self.write(text)
        asyncio.get_running_loop().call_later(PARTING_SECONDS, self._abandon)

    def _abandon(self) -> None:
        if self._transport.get_write_buffer_size():
            self._transport.abort()


class WatchCursor(NamedTuple):
    """How far a client was told of a topic: a seq, and the history of the topic that it belongs to."""

    seq: int
    epoch: str


class Following:
    """One topic that one client follows, without the records of `nodes`.

    It was told of all up to the seq `after`, of the history `epoch`.
    """

    def __init__(self, follower: Follower, feed: Feed, nodes: frozenset[str], cursor: WatchCursor) -> None:
        self.feed = feed
        self.nodes = nodes
        self.after, self.epoch = cursor
        self.is_first = True
        """Whether nothing has been read for the client yet."""
        self.owes_end = True
        """Whether the client is to be told when it has caught up."""
        self.has_left = False
        self._hidden = frozenset(map(encoded, nodes))
        self._follower = follower

    @property
    def name(self) -> str:
        """The topic's."""
        return self.feed.want.name

    def take(self, portion: Portion) -> None:
        """What the feed has for the client; see `Waiting`."""
        if self.has_left or self._follower.has_ended:
            return
        if self._follower.outlet.full or portion.epoch not in ("", self.epoch):
            self.look()
            return
        try:
            self._follower.tell(self, portion.without(self._hidden))
        except Exception:
            self.look()  # and meet the error where it concerns nobody else
        else:
            if not (self.has_left or self._follower.has_ended):
                self.feed.await_more(self)

    def is_told(self, portion: Portion) -> None:
        """The client was told of a page."""
        told = bool(portion.records) or portion.tombstone is not None
        self.owes_end = (self.owes_end or told) and not portion.caught_up
        self.is_first = False
        self.after = portion.upto
        self.epoch = portion.epoch or self.epoch

    def look(self) -> None:
        """The client reads by itself from now on, until it has caught up."""
        if not self.has_left:
            self._follower.fall_behind(self)


class Follower(ABC):
    """A client with the topics it follows. `run` serves it until it goes, follows nothing more, or the node stops.

    `stays`: it goes on although it follows nothing.
    """

    stays = False

    def __init__(self, watching: Watching, outlet: Outlet, heartbeat: float) -> None:
        self.outlet = outlet
        self.topics: dict[str, Following] = {}
        self.has_ended = False
        self._watching = watching
        self._clock = watching.clock
        self._heartbeat = heartbeat
        self._told_at = self._clock.monotonic()
        self._behind: dict[Following, None] = {}
        self._nap: asyncio.Future[None] | None = None

    # --- what it is told, in its own form -------------------------------------------------------------------------

    @abstractmethod
    def words(self, following: Following, portion: Portion) -> bytes:
        """A page as the client gets it; empty where there is nothing to tell."""

    @abstractmethod
    def heartbeat(self) -> bytes:
        """What tells the client that the node is there."""

    @abstractmethod
    def error(self, code: str, message: str) -> bytes:
        """What tells the client why nothing more comes."""

    # --- which topics ---------------------------------------------------------------------------------------------

    def follow(self, want: Want, cursor: WatchCursor) -> None:
        """Tell the client of a topic, beyond a cursor; instead of what it was told of it before."""
        if self.has_ended:
            return
        self.leave(want.name)
        following = Following(self, self._watching.feeds.use(want), want.pages.nodes, cursor)
        self.topics[want.name] = following
        self.fall_behind(following)

    def leave(self, name: str) -> None:
        """Tell the client no more of a topic."""
        if (following := self.topics.pop(name, None)) is not None:
            self._let_go(following)

    def _let_go(self, following: Following) -> None:
        if not following.has_left:
            following.has_left = True
            self._behind.pop(following, None)
            self._watching.feeds.release(following.feed, following)

    def close(self) -> None:
        """Let go of everything. How far the client was told stays known."""
        self.end()
        for following in self.topics.values():
            self._let_go(following)

    # --- telling --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the client. What goes wrong is told to it, and ends it."""
        with self._watching.holding(self):
            try:
                while not self.has_ended and (self.topics or self.stays):
                    if self._behind:
                        await self._catch_up(next(iter(self._behind)))
                    else:
                        await self._rest()
            except ConnectionError:
                pass  # the client has gone
            except EventdError as error:
                self.outlet.write(self.error(TOPICS_FORM.code(error), str(error)))
            except Exception:
                incident = self._watching.chance.token(4).hex()
                logger.exception("a stream failed", extra={"incident": incident})
                self.outlet.write(self.error("internal", f"a fault in the node: its log has it as incident {incident}"))

    def fall_behind(self, following: Following) -> None:
        """The client has to read by itself."""
        self._behind[following] = None
        self.wake()

    async def _catch_up(self, following: Following) -> None:
        """One page for one topic; then it is the turn of the others that are behind."""
        del self._behind[following]
        await self.outlet.drain()
        if following.is_first:
            await self._watching.catch_up(following.name)
        turn = following.feed.turn
        portion = await following.feed.read(following.after, following.nodes, following.epoch)
        if following.has_left or self.has_ended:
            return
        self.tell(following, portion)
        if not following.has_left and not (portion.caught_up and following.feed.wait(following, turn)):
            self._behind[following] = None

    def tell(self, following: Following, portion: Portion) -> None:
        """Write a page to the client."""
        if self.outlet.closed:
            self.end()
        if self.has_ended:
            return
        if text := self.words(following, portion):
            self.outlet.write(text)
            self._told_at = self._clock.monotonic()
        following.is_told(portion)
        if portion.gone:
            self.leave(following.name)
            self.wake()

    async def _rest(self) -> None:
        self._nap = asyncio.get_running_loop().create_future()
        await self._nap

    def wake(self) -> None:
        """There is something to be done."""
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)

    def beat(self, now: float) -> None:
        """Some time has passed; `now` by the clock that never goes back."""
        if self.outlet.closed:
            self.end()
        elif now - self._told_at >= self._heartbeat and not self.outlet.full:
            self.outlet.write(self.heartbeat())
            self._told_at = now

    def end(self) -> None:
        """Serve it no more."""
        self.has_ended = True
        self.wake()

    def stop(self) -> None:
        """The node stops."""
        if not self.has_ended:
            self.outlet.part(self.error("server_shutting_down", "the node is stopping: connect again"))
            self.end()


class Watching:
    """All clients of a node that follow topics."""

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
        """Look after a client while the block runs."""
        self._followers[follower] = None
        if self._stopping.done():
            follower.stop()
        if self._beating is None:
            # It must live: clients would get no heartbeats, and those that have gone would keep their places.
            self._beating = self._supervisor.keep(self._beat_for_ever, "beat of the clients that follow topics")
        try:
            yield
        finally:
            follower.close()
            self._followers.pop(follower, None)
            if not self._followers:
                self._beating.cancel()
                self._beating = None

    async def forget_gone(self) -> None:
        """Notice now who has gone."""
        self._beat()
        await self.clock.sleep(0)  # their turn to end

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
