"""Subscribers of streams for tests: connections in memory whose client reads, or does not, as the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from eventd.api.keys.api_key import ApiKey
from eventd.api.quic.interfaces import ClientGrant, NoPlace, OpenSubscription, Subscriber
from eventd.api.quic.subscribing import Subscribing
from eventd.quic.link import NoStreamsLeft
from eventd.quic.stream import MARK, StreamEvents
from eventd.streams.frames import Flags, StreamFrameReader
from eventd.streams.layouts import read_events
from eventd.streams.messages import At, Message, Subscribed, SubscribeRequest
from eventd.streams.names import StreamName
from eventd.streams.permissions import StreamAction

PATIENCE = 10.0
ORDERS = StreamName("t", "n", "orders")
EVERYTHING = frozenset({"gap"})


class AnyGrant:
    """Permits everything, for ever."""

    tenant = "t"
    subject = "tests"
    key: ApiKey | None = None
    identity = b"tests"

    def allows(self, action: StreamAction, resource: str) -> bool:
        return True

    def ended(self, now: int) -> str:
        return ""


class Places:
    """The subscriptions of one connection."""

    def __init__(self, most: int = 1 << 20) -> None:
        self.open: dict[int, OpenSubscription | None] = {}
        self._most = most
        self._last = 0

    def take(self, grant: ClientGrant, asked: int | None) -> int:
        if len(self.open) >= self._most:
            raise NoPlace("max subscriptions per connection exceeded")
        self._last += 1
        number = self._last if asked is None else asked
        assert number not in self.open
        self.open[number] = None
        return number

    def hold(self, id: int, subscription: OpenSubscription) -> None:
        assert self.open[id] is None
        self.open[id] = subscription

    def release(self, id: int) -> None:
        del self.open[id]


class ReadStream:
    """An event stream, as its client sees it. While `stalls` is set, the client does not read."""

    mark = MARK
    is_unidirectional = True

    def __init__(self, number: int, events: StreamEvents, *, stalls: bool) -> None:
        self.id = number
        self.events = events
        self.ended = False
        self.was_reset = False
        self.frames: list[tuple[int, int]] = []
        """The flags and the number of events of each frame."""
        self.messages: list[Any] = []
        self.seen: list[tuple[int | None, bytes]] = []
        """The offsets and payloads of all events."""
        self.most_unsent = 0
        self._stalls = stalls
        self._unread = b""
        self._reader = StreamFrameReader()
        self._changed = asyncio.Event()

    @property
    def unsent(self) -> int:
        return len(self._unread)

    def write(self, data: bytes, *, end: bool = False) -> None:
        assert not self.ended, "written after the end"
        self._unread += data
        self.most_unsent = max(self.most_unsent, len(self._unread))
        self.ended = end
        if not self._stalls:
            self._take()
        self._changed.set()

    def stop_receiving(self, code: int = 0) -> None:
        raise AssertionError("the stream has one direction")

    def reset(self, code: int = 0) -> None:
        self.ended = self.was_reset = True
        self._changed.set()

    def stall(self) -> None:
        """Read nothing more."""
        self._stalls = True

    def resume(self) -> None:
        """Read everything, and go on reading."""
        was_full = self.unsent >= self.mark
        self._stalls = False
        self._take()
        if was_full:
            self.events.has_room()
        self._changed.set()

    def _take(self) -> None:
        data, self._unread = self._unread, b""
        for flags, payload in self._reader.feed(data):
            if not flags:
                self.messages.append(json.loads(payload))
                self.frames.append((0, 0))
                continue
            batch = read_events(flags, payload)
            self.frames.append((flags, len(batch.payloads)))
            base = batch.base_offset
            self.seen += [(None if base is None else base + n, each) for n, each in enumerate(batch.payloads)]
        assert not self._reader.held, "a frame was written in parts"

    @property
    def offsets(self) -> list[int | None]:
        """Return the offsets of all events."""
        return [offset for offset, _ in self.seen]

    @property
    def gaps(self) -> list[Any]:
        """Return the messages about gaps."""
        return [message for message in self.messages if message["type"] == "gap"]

    async def until(self, condition: Callable[[ReadStream], object]) -> None:
        """Wait until the condition holds; it is looked at after each write."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition(self):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"it never did; {self.frames[-9:]}, {self.messages[-9:]}, {self.ended}") from None

    async def until_seen(self, count: int) -> None:
        """Wait for so many events."""
        await self.until(lambda stream: len(stream.seen) >= count)


class ReadLink:
    """A connection in memory, which lets the node open `most` streams."""

    def __init__(self, *, most: int = 1 << 20, stalls: bool = False) -> None:
        self.remote = "127.0.0.1:1"
        self.is_closed = False
        self.streams: list[ReadStream] = []
        self._most = most
        self._stalls = stalls

    def streams_left(self, *, unidirectional: bool) -> int:
        assert unidirectional
        return self._most - len(self.streams)

    def open_stream(self, events: StreamEvents, *, unidirectional: bool = False) -> ReadStream:
        if not self.streams_left(unidirectional=unidirectional):
            raise NoStreamsLeft
        stream = ReadStream(4 * len(self.streams) + 3, events, stalls=self._stalls)
        self.streams.append(stream)
        return stream

    def lose(self) -> None:
        """End the connection."""
        self.is_closed = True
        for stream in self.streams:
            stream.events.lost()


class StreamClient:
    """The client of a connection that subscribes."""

    def __init__(
        self,
        subscribing: Subscribing,
        link: Any = None,
        *,
        flags: int = 63,
        extensions: frozenset[str] = EVERYTHING,
        places: Places | None = None,
    ) -> None:
        self.link = link or ReadLink()
        self.places = places or Places()
        self._subscribing = subscribing
        self._subscriber = Subscriber(self.link, AnyGrant(), self.places, flags, extensions)

    async def ask(self, name: StreamName = ORDERS, **members: Any) -> tuple[Message, Callable[[], None] | None]:
        """Subscribe; return the answer, and what starts the events."""
        if isinstance(members.get("start"), int):
            members["start"] = At(members["start"])
        request = SubscribeRequest(tenant_id=name.tenant, namespace=name.namespace, stream=name.stream, **members)
        return await self._subscribing.subscribe(self._subscriber, request, name)

    async def refused(self, name: StreamName = ORDERS, **members: Any) -> Message:
        """Subscribe in vain; return the answer."""
        answer, start = await self.ask(name, **members)
        assert start is None
        assert not self.places.open
        return answer

    async def begin(self, name: StreamName = ORDERS, **members: Any) -> tuple[Message, ReadStream]:
        """Subscribe, and have the events sent; return the answer and their stream."""
        answer, start = await self.ask(name, **members)
        assert start is not None, answer
        start()
        return answer, self.link.streams[-1]

    async def read(self, name: StreamName = ORDERS, **members: Any) -> ReadStream:
        """Subscribe, and return the stream of the events."""
        answer, stream = await self.begin(name, **members)
        assert isinstance(answer, Subscribed)
        return stream


OFFSETS = int(Flags.SHARED_EVENTS | Flags.OFFSETS)
"""The flags of the frames of events for clients that know offsets."""
