"""One QUIC connection: hands arriving bytes to its streams, and sends what they write once per turn of the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from eventd.quic.link_timer import LinkTimer
from eventd.quic.stream import QuicStream, StreamEvents
from eventd.runtime.clock import Clock

Address = tuple[str, int] | tuple[str, int, int, int]
MOST_STOPPED: Final = 1024
"""Maximum number of remembered streams that the peer stopped before their first bytes arrived: packets may overtake
each other."""
INTERNAL_ERROR: Final = 1
"""The code of QUIC for a connection that ends by a fault of this end."""

logger = logging.getLogger("eventd.quic")


class NoStreamsLeft(Exception):
    """The peer's limit allows no other stream at present."""


class LinkEvents(Protocol):
    """Interface: the user of one connection. Its methods must not block, and may write."""

    def opened(self) -> None:
        """Note that the handshake is complete."""
        ...

    def stream_opened(self, stream: QuicStream) -> StreamEvents:
        """Return the user of a stream that the peer has opened."""
        ...

    def closed(self, code: int, reason: str) -> None:
        """Note that the connection has ended. Called once, after `lost` of each stream."""
        ...


class LinkEngine(Protocol):
    """Interface: the protocol of one connection, without its socket. See `connection.py`."""

    def connect(self, addr: Address, now: float) -> None: ...

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None: ...

    def pause(self, is_paused: bool) -> None: ...

    def deliver(self, link: QuicLink) -> None: ...

    def outgoing(self, now: float) -> list[tuple[list[bytes], Address]]: ...

    def get_timer(self) -> float | None: ...

    def handle_timer(self, now: float) -> None: ...

    def open(self, unidirectional: bool) -> int: ...

    def streams_left(self, unidirectional: bool) -> int: ...

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool) -> None: ...

    def get_send_buffer_size(self, stream_id: int | None = None) -> int: ...

    def reset_stream(self, stream_id: int, error_code: int) -> None: ...

    def stop_stream(self, stream_id: int, error_code: int) -> None: ...

    def send_ping(self, uid: int) -> None: ...

    def close(self, error_code: int = 0, frame_type: int | None = None, reason_phrase: str = "") -> None: ...

    def peer_chain(self) -> list[bytes]: ...

    @property
    def is_ending(self) -> bool: ...


class DatagramCarrier(Protocol):
    """Interface: the socket of a connection, and the table that finds connections by their ids."""

    def send(self, datagrams: list[bytes], address: Address) -> None:
        """Send datagrams to one address; those that do not fit into the socket's buffer may be dropped."""
        ...

    def add_id(self, number: bytes, link: QuicLink) -> None:
        """Route datagrams with this connection id to a connection."""
        ...

    def remove_id(self, number: bytes) -> None:
        """Forget a connection id."""
        ...

    def opened(self, link: QuicLink) -> None:
        """Give a connection its `events`: its handshake is complete."""
        ...

    def closed(self, link: QuicLink) -> None:
        """Note that this end has closed a connection, and notified the peer."""
        ...

    def ended(self, link: QuicLink) -> None:
        """Forget a connection, which needs no datagram any more."""
        ...


class QuicLink:
    """One connection.

    An exception out of the library, or out of a callback, ends this connection alone, and `failed` is called with it.
    """

    def __init__(
        self,
        connection: LinkEngine,
        carrier: DatagramCarrier,
        address: Address,
        clock: Clock,
        failed: Callable[[Exception, str], None],
    ) -> None:
        self.remote = show(address)
        self.is_closed = False
        self.is_open = False
        self.events: LinkEvents | None = None
        self._connection = connection
        self._carrier = carrier
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, QuicStream] = {}
        self._full: dict[int, QuicStream] = {}
        self._stopped: dict[int, int] = {}  # the code of each
        self._is_due = False
        self._is_gone = False
        self._timer = LinkTimer(clock, connection.get_timer, self._expire)
        self._deadline: asyncio.TimerHandle | None = None

    # --- for the user of the connection

    @property
    def unsent(self) -> int:
        """Return the bytes of all streams that were written and not sent for the first time yet."""
        return 0 if self.is_closed else self._connection.get_send_buffer_size()

    def open_stream(self, events: StreamEvents, *, unidirectional: bool = False) -> QuicStream:
        """Open a stream. Raises `NoStreamsLeft`, also if the connection has ended."""
        if self.streams_left(unidirectional=unidirectional) < 1:
            raise NoStreamsLeft
        number = self._connection.open(unidirectional)
        stream = QuicStream(self, number, is_unidirectional=unidirectional, is_ours=True)
        stream.events = events
        self._streams[number] = stream
        return stream

    def streams_left(self, *, unidirectional: bool) -> int:
        """Return how many streams the peer's limit still allows this end to open."""
        return self._connection.streams_left(unidirectional) if self._is_sending else 0

    def peer_chain(self) -> list[bytes]:
        """Return the certificates that the peer showed, in DER, its own first."""
        return self._connection.peer_chain()

    def ping(self) -> None:
        """Send a packet that the peer must acknowledge: it keeps the connection alive."""
        if self._is_sending:
            self._guarded(lambda: self._connection.send_ping(0))
            self.touch()

    def pause(self) -> None:
        """Make no callbacks until `resume`: the peer gets no credit for the bytes that it sends in the meantime.

        At most `TransportLimits.window` bytes wait in the library. Do not pause for more than a few seconds: meanwhile,
        the end of the connection is not noticed.
        """
        if not self.is_closed:
            self._connection.pause(True)

    def resume(self) -> None:
        """Make callbacks again, first for everything that arrived during the pause."""
        if not self.is_closed:
            self._guarded(self._resume)
            self.touch()

    def close(self, code: int = 0, reason: str = "", *, frame_type: int | None = None) -> None:
        """End the connection, and tell the peer. `LinkEvents.closed` is called in the next turn of the loop.

        With a `frame_type` the code is one of QUIC, not of the application.
        """
        if self.is_closed:
            return
        self._report_end(code, reason)
        self._guarded(lambda: self._connection.close(code, frame_type, reason))
        self.flush()
        self._carrier.closed(self)

    # --- for its streams

    def unsent_of(self, number: int) -> int:
        """Return the bytes of one stream that were written and not sent for the first time yet."""
        return 0 if self.is_closed else self._connection.get_send_buffer_size(number)

    def send(self, stream: QuicStream, data: bytes, *, end: bool) -> None:
        """Queue bytes of a stream, which leave at the end of this turn of the loop."""
        if not self._is_sending:
            return
        self._guarded(lambda: self._connection.send_stream_data(stream.id, data, end))
        if not end and not self.is_closed and stream.unsent >= stream.mark:
            self._full[stream.id] = stream
        self.touch()
        self._forget_finished(stream)

    def stop(self, stream: QuicStream, code: int) -> None:
        """Ask the peer to send nothing more on a stream."""
        if self._is_sending:
            self._guarded(lambda: self._connection.stop_stream(stream.id, code))
            self.touch()

    def reset(self, stream: QuicStream, code: int) -> None:
        """Give up the sending side of a stream."""
        if self._is_sending:
            self._guarded(lambda: self._connection.reset_stream(stream.id, code))
            self._full.pop(stream.id, None)
            self.touch()
            self._forget_finished(stream)

    # --- for the socket

    def events_to(self, user: LinkEvents) -> QuicLink:
        """From now on, call back this receiver of events."""
        self.events = user
        return self

    def start(self, address: Address) -> None:
        """Begin the handshake, as a client."""
        self._guarded(lambda: self._connection.connect(address, now=self._timer.tick()))
        self.flush()

    def take(self, datagrams: list[bytes], address: Address) -> None:
        """Receive datagrams, and call back for what they hold. The socket calls `flush` after the last ones."""
        self._is_due = True
        if not self._is_gone:
            self._guarded(lambda: self._receive(datagrams, address))

    def touch(self) -> None:
        """Have everything that waits sent at the end of this turn of the event loop."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what is waiting, arm the timer, and call back the streams that have room again."""
        self._is_due = False
        if self._is_gone:
            return
        self._guarded(self._transmit)
        if not self._is_gone:
            self._timer.arm()
            if self._full and not self.is_closed:
                self._guarded(self._tell_room)

    def abandon(self, reason: str) -> None:
        """Drop the connection without notifying the peer."""
        self._end(0, reason)

    def open_within(self, seconds: float) -> None:
        """Drop the connection unless its handshake is complete in time."""
        self._deadline = self._loop.call_later(seconds, self.abandon, "the handshake took too long")

    # --- events of the library, called by `Connection.deliver`

    def shook_hands(self) -> None:
        self.is_open = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._carrier.opened(self)
        if self.events is not None:
            self.events.opened()

    def data_arrived(self, number: int, data: bytes, ended: bool) -> None:
        stream = self._streams.get(number)
        if stream is None:
            if self.is_closed or self.events is None:
                return
            stream = QuicStream(self, number, is_unidirectional=bool(number & 2), is_ours=False)
            stream.events = self.events.stream_opened(stream)
            self._streams[number] = stream
            if (code := self._stopped.pop(number, None)) is not None:
                self.stream_stopped(number, code)
        stream.is_over = ended
        if not stream.is_dropping and not self.is_closed:
            stream.events.received(data, ended=ended)
        if ended:
            self._forget_finished(stream)

    def stream_reset(self, number: int, code: int) -> None:
        stream = self._streams.get(number)
        if stream is not None and not stream.is_over:
            stream.is_over = True
            if not stream.is_dropping:
                stream.events.was_reset(code)
            self._forget_finished(stream)

    def stream_stopped(self, number: int, code: int) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            stream.has_ended = True
            self._full.pop(number, None)
            stream.events.was_stopped(code)
            self._forget_finished(stream)
        elif len(self._stopped) < MOST_STOPPED:
            self._stopped[number] = code

    def id_issued(self, number: bytes) -> None:
        self._carrier.add_id(number, self)

    def id_retired(self, number: bytes) -> None:
        self._carrier.remove_id(number)

    def ending(self, code: int, reason: str, *, is_over: bool) -> None:
        """Note that the peer has closed the connection (`is_over`), or that this end does, for a fault of the peer."""
        if is_over:
            self._end(code, reason)
        elif not self.is_closed:
            self._report_end(code, reason)
            self.flush()
            self._carrier.closed(self)

    def terminated(self, code: int, reason: str) -> None:
        self._end(code, reason)

    # --- inside

    @property
    def _is_sending(self) -> bool:
        """Return whether neither end has closed the connection; what arrived before is still called back."""
        return not self.is_closed and not self._connection.is_ending

    def _receive(self, datagrams: list[bytes], address: Address) -> None:
        self._connection.receive(datagrams, address, self._timer.tick())
        self._connection.deliver(self)

    def _resume(self) -> None:
        self._connection.pause(False)
        self._connection.deliver(self)

    def _transmit(self) -> None:
        for datagrams, address in self._connection.outgoing(self._timer.tick()):
            self._carrier.send(datagrams, address)

    def _expire(self) -> None:
        self._is_due = True
        self._guarded(self._handle_timer)
        self.flush()

    def _handle_timer(self) -> None:
        self._connection.handle_timer(now=self._timer.tick())
        self._connection.deliver(self)

    def _tell_room(self) -> None:
        for number, stream in list(self._full.items()):
            if not self.is_closed and stream.unsent * 2 <= stream.mark:
                self._full.pop(number, None)
                stream.events.has_room()

    def _forget_finished(self, stream: QuicStream) -> None:
        if stream.is_over and stream.has_ended:
            self._streams.pop(stream.id, None)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Execute a step; an exception ends the connection."""
        try:
            step()
        except Exception as error:
            if not self._is_gone:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed(error, self.remote)
        try:
            self._connection.close(INTERNAL_ERROR, 0, "internal error")
            self._transmit()
        except Exception:
            logger.debug("QUIC close not sent", exc_info=True)
        self._end(INTERNAL_ERROR, "internal error")

    def _end(self, code: int, reason: str) -> None:
        """Forget the connection, which sends and receives nothing more."""
        if self._is_gone:
            return
        self._is_gone = True
        self._timer.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
        self._carrier.ended(self)
        if not self.is_closed:
            self._report_end(code, reason)

    def _report_end(self, code: int, reason: str) -> None:
        self.is_closed = True
        self._loop.call_soon(self._tell_closed, code, reason)

    def _tell_closed(self, code: int, reason: str) -> None:
        streams = list(self._streams.values())
        self._streams.clear()
        self._full.clear()
        for stream in streams:
            stream.has_ended = stream.is_over = True
            self._guarded(stream.events.lost)
        if self.events is not None:
            events, self.events = self.events, None
            self._guarded(lambda: events.closed(code, reason))


def show(address: Address) -> str:
    """Return an address as `HOST:PORT`."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
