"""One connection: opens streams of requests, and hands the streams that the server opens to their subscriptions."""

from __future__ import annotations

from typing import Final, Protocol

from eventd.client.streams.request_stream import STOPPED
from eventd.quic.link import QuicLink
from eventd.quic.stream import QuicStream, StreamEvents
from eventd.streams.frames import BadFrame, Frame, StreamFrameReader
from eventd.streams.messages import BadMessage, EventStreamHello, read_answer

MAX_HELLO: Final = 64 << 10
"""Maximum bytes of the first message of a stream of events."""


class EventFeed(Protocol):
    """Interface: takes the frames of one subscription."""

    def take_frame(self, frame: Frame) -> bool:
        """Receive a frame of the subscription. False ends its stream: it is over, or its buffer is full.

        Raises `BadFrame`, `BadMessage` and `BadLayout`.
        """
        ...

    def ended(self, reason: str) -> None:
        """Note that no more frames come; `reason` is empty, or says what the server did wrong."""
        ...


class StreamConnection:
    """One QUIC connection of a client: it opens streams, and passes the server's streams to subscriptions."""

    def __init__(self) -> None:
        self.link: QuicLink
        self.is_lost = False
        self._feeds: dict[int, EventFeed] = {}
        self._readers: dict[int, EventStreamReader] = {}
        self._next_id = 1

    @property
    def is_usable(self) -> bool:
        """Return whether streams can be opened."""
        return not self.is_lost and not self.link.is_closed

    @property
    def subscriptions(self) -> int:
        """Return how many subscriptions the connection has."""
        return len(self._feeds)

    def add(self, feed: EventFeed) -> int:
        """Add a subscription whose events go to this feed, and return its id."""
        number = self._next_id
        self._next_id += 1
        self._feeds[number] = feed
        return number

    def end(self, number: int) -> None:
        """Ask the server to end a subscription, and forget the subscription."""
        self._feeds.pop(number, None)
        reader = self._readers.pop(number, None)
        if reader is not None:
            reader.stop()

    def attach(self, number: int, reader: EventStreamReader) -> EventFeed | None:
        """Return the feed of the subscription whose stream this reader reads.

        None if the subscription is unknown, or has a reader already.
        """
        if number in self._readers or number not in self._feeds:
            return None
        self._readers[number] = reader
        return self._feeds[number]

    def detach(self, number: int) -> None:
        """Forget a subscription that has ended."""
        self._feeds.pop(number, None)
        self._readers.pop(number, None)

    # --- events of the connection

    def opened(self) -> None:
        pass

    def stream_opened(self, stream: QuicStream) -> StreamEvents:
        return EventStreamReader(self, stream)

    def closed(self, code: int, reason: str) -> None:
        self.is_lost = True
        feeds = [*self._feeds.values()]
        self._feeds.clear()
        self._readers.clear()
        for feed in feeds:
            feed.ended("")


class EventStreamReader:
    """Reads a stream that the server has opened: its first message says to which subscription it belongs."""

    def __init__(self, connection: StreamConnection, stream: QuicStream) -> None:
        self._connection = connection
        self._stream = stream
        self._reader = StreamFrameReader(MAX_HELLO)
        self._feed: EventFeed | None = None
        self._number = 0

    def stop(self, reason: str = "") -> None:
        """Ask the server to end the stream; `reason` says what is wrong with it."""
        self._stream.stop_receiving(STOPPED)
        self._end(reason)

    # --- events of the stream

    def received(self, data: bytes, *, ended: bool) -> None:
        try:
            for frame in self._reader.feed(data):
                if self._feed is None:
                    self._begin(frame)
                elif not self._feed.take_frame(frame):
                    self.stop()
                    return
        except ValueError as error:  # of a frame, a layout or a message
            self.stop(f"its events cannot be read: {error}")
            return
        if ended:
            self._end("")

    def was_reset(self, code: int) -> None:
        self._end("")

    def was_stopped(self, code: int) -> None:
        pass

    def has_room(self) -> None:
        pass

    def lost(self) -> None:
        self._end("")

    def _begin(self, frame: Frame) -> None:
        hello = None if frame.flags else read_answer(frame.payload)
        if not isinstance(hello, EventStreamHello):
            raise BadMessage("the stream does not begin with its subscription")
        self._feed = self._connection.attach(hello.subscription_id, self)
        if self._feed is None:  # given up meanwhile
            raise BadFrame("there is no such subscription")
        self._number = hello.subscription_id
        self._reader.most = StreamFrameReader().most

    def _end(self, reason: str) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            self._connection.detach(self._number)
            feed.ended(reason)
