"""A client of streams that shares nothing with the node: aioquic, and frames as bytes.

Every wait has a deadline. A stream's bytes are kept until the test reads them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from tests.support.felix_wire import HEADER, RawFrame, read_json

SECONDS = 10.0
"""How long a wait lasts unless it is given another deadline."""


class StreamOver(Exception):
    """The stream has ended before what was waited for; `left` is what it held."""

    def __init__(self, why: str, left: bytes = b"") -> None:
        super().__init__(f"{why}, with {len(left)} bytes of an unfinished frame" if left else why)
        self.left = left


class RawStream:
    """One stream: bytes are written as they are, frames are read."""

    def __init__(self, client: RawClient, id: int) -> None:
        self.client = client
        self.id = id
        self.data = bytearray()
        self.arrived = 0
        self.has_ended = False
        self.reset_code: int | None = None
        self.stopped_code: int | None = None
        self._finished = False

    def write(self, *parts: bytes, end: bool = False) -> None:
        """Send bytes, and FIN with `end`; nothing after FIN or once the node does not read the stream."""
        if self.stopped_code is None and not self._finished and not self.client.is_closed:
            self._finished = end
            self.client.quic.send_stream_data(self.id, b"".join(parts), end_stream=end)
            self.client.transmit_soon()

    def end(self) -> None:
        """Send FIN."""
        self.write(end=True)

    def reset(self, code: int = 0) -> None:
        """Give up sending."""
        self._finished = True
        self.client.quic.reset_stream(self.id, code)
        self.client.transmit_soon()

    def stop(self, code: int = 0) -> None:
        """Tell the node that the stream is not read any more."""
        self.client.quic.stop_stream(self.id, code)
        self.client.transmit_soon()

    async def frame(self, seconds: float = SECONDS) -> RawFrame:
        """Return the next frame. Raises StreamOver if the stream ends before it."""
        await self._wait(lambda: self._has_frame() or self.is_over, "a frame", seconds)
        if not self._has_frame():
            raise StreamOver(self._end(), bytes(self.data))
        _, _, flags, length = HEADER.unpack_from(self.data)
        payload = bytes(self.data[HEADER.size : HEADER.size + length])
        del self.data[: HEADER.size + length]
        return RawFrame(flags, payload)

    async def message(self, seconds: float = SECONDS) -> dict[str, Any]:
        """Return the next frame, which must hold JSON."""
        flags, payload = await self.frame(seconds)
        assert flags == 0, f"flags 0x{flags:04x}: {payload[:100]!r}"
        return read_json(payload)

    async def ask(self, *parts: bytes, seconds: float = SECONDS) -> dict[str, Any]:
        """Send bytes and return the next message."""
        self.write(*parts)
        return await self.message(seconds)

    async def rest(self, seconds: float = SECONDS) -> list[RawFrame]:
        """Return all frames up to the end of the stream, which must be FIN after a whole frame."""
        found = []
        with suppress(StreamOver):
            while True:
                found.append(await self.frame(seconds))
        assert self.has_ended, f"{self._end()}, not FIN; before it came {found}"
        assert not self.data, f"{bytes(self.data[:100])!r} is no whole frame; before it came {found}"
        return found

    async def over(self, seconds: float = SECONDS) -> None:
        """Wait until the node has ended its side, by FIN or a reset, or the connection is closed."""
        await self._wait(lambda: self.is_over, "the end of a stream", seconds)

    async def stopped(self, seconds: float = SECONDS) -> None:
        """Wait until the node says that it does not read the stream any more."""
        await self._wait(lambda: self.stopped_code is not None, "STOP_SENDING", seconds)

    @property
    def is_over(self) -> bool:
        """Return whether nothing more comes."""
        return self.has_ended or self.reset_code is not None or self.client.is_closed

    def received(self, data: bytes, ended: bool) -> None:
        """Take what arrived."""
        self.data += data
        self.arrived += len(data)
        self.has_ended |= ended

    def _has_frame(self) -> bool:
        if len(self.data) < HEADER.size:
            return False
        magic, version, _, length = HEADER.unpack_from(self.data)
        assert (magic, version) == (b"FLX1", 1), bytes(self.data[:40])
        return len(self.data) >= HEADER.size + length

    def _end(self) -> str:
        if self.has_ended:
            return "the stream has ended"
        return f"reset with {self.reset_code}" if self.reset_code is not None else f"closed: {self.client.closed_by}"

    async def _wait(self, condition: Any, what: str, seconds: float) -> None:
        await self.client.wait(condition, f"{what} on stream {self.id}", seconds)


class RawClient(QuicConnectionProtocol):
    """One connection. `opened` holds the streams that the node has opened and nobody has taken yet."""

    def __init__(self, quic: QuicConnection) -> None:
        super().__init__(quic)
        self.quic = quic
        self.streams: dict[int, RawStream] = {}
        self.opened: deque[RawStream] = deque()
        self.closed_by: tuple[int, str] | None = None
        self.is_open = self.is_asleep = False
        self._changed = asyncio.Event()
        self._stalled: set[int] = set()
        self._write_limits = quic._write_stream_limits
        quic._write_stream_limits = self._limits  # type: ignore[method-assign]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.bye()

    async def bye(self) -> None:
        """Close the connection, and the socket at once."""
        if not self.is_closed:
            self.close()
        self.vanish()

    def vanish(self) -> None:
        """Close the socket without a word to the node."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport = self._transport if self._transport is None else _Silence(self._transport)  # type: ignore[assignment]

    @property
    def is_closed(self) -> bool:
        """Return whether the connection has ended."""
        return self.closed_by is not None

    def open(self, *, unidirectional: bool = False) -> RawStream:
        """Open a stream; the node hears of it with its first bytes."""
        id = self.quic.get_next_available_stream_id(is_unidirectional=unidirectional)
        stream = self.streams[id] = RawStream(self, id)
        self.quic.send_stream_data(id, b"")  # takes the id
        return stream

    async def take_opened(self, seconds: float = SECONDS) -> RawStream:
        """Return the next stream that the node opens."""
        await self.wait(lambda: self.opened or self.is_closed, "a stream of the node", seconds)
        if not self.opened:
            raise StreamOver(f"closed: {self.closed_by}")
        return self.opened.popleft()

    async def closed(self, seconds: float = SECONDS) -> tuple[int, str]:
        """Wait until the connection has ended; return the code and the reason."""
        await self.wait(lambda: self.is_closed, "the end of the connection", seconds)
        assert self.closed_by is not None
        return self.closed_by

    async def alive(self, seconds: float = SECONDS) -> None:
        """Check with a ping that the connection stands."""
        async with asyncio.timeout(seconds):
            await self.ping()

    async def wait(self, condition: Any, what: str, seconds: float = SECONDS) -> None:
        """Wait until the condition holds; it is looked at whenever something happens on the connection."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"waited {seconds:g} s for {what}") from None

    def stall(self, stream: RawStream) -> None:
        """Grant a stream no more credit, as a program does that has stopped reading it."""
        self._stalled.add(stream.id)

    def resume(self, stream: RawStream) -> None:
        """Grant it credit again."""
        self._stalled.discard(stream.id)
        self.transmit_soon()

    def transmit_soon(self) -> None:
        """Send what is pending in the next turn of the loop."""
        self._transmit_soon()

    def fall_asleep(self) -> None:
        """Take and send nothing more, as a process that is stopped by a signal."""
        self.is_asleep = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def datagram_received(self, data: bytes | str, addr: Any) -> None:
        """Take a datagram, unless asleep."""
        if not self.is_asleep:
            super().datagram_received(data, addr)

    def error_received(self, exc: Exception) -> None:
        """End the connection: no process listens at the port any more."""
        if not self.is_closed:
            self.closed_by = (-1, str(exc))
            self.vanish()
            self._changed.set()

    def quic_event_received(self, event: events.QuicEvent) -> None:
        """Hand an event to its stream."""
        if isinstance(event, events.StreamDataReceived):
            self._stream(event.stream_id).received(event.data, event.end_stream)
        elif isinstance(event, events.StreamReset):
            self._stream(event.stream_id).reset_code = event.error_code
        elif isinstance(event, events.StopSendingReceived):
            self._stream(event.stream_id).stopped_code = event.error_code
        elif isinstance(event, events.HandshakeCompleted):
            self.is_open = True
        elif isinstance(event, events.ConnectionTerminated):
            self.closed_by = (event.error_code, event.reason_phrase)
        self._changed.set()

    def _stream(self, id: int) -> RawStream:
        if id not in self.streams:
            self.streams[id] = RawStream(self, id)
            self.opened.append(self.streams[id])
        return self.streams[id]

    def _limits(self, builder: Any, space: Any, stream: Any) -> None:
        if stream.stream_id not in self._stalled:
            self._write_limits(builder, space, stream)


class _Silence:
    """The transport of a client that has vanished."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        transport.close()

    def sendto(self, data: bytes, addr: Any = None) -> None:
        """Drop a datagram."""

    def close(self) -> None:
        """Nothing is left to close."""


async def connect(
    port: int,
    *,
    alpn: list[str] | None = None,
    trust: Path | None = None,
    server_name: str = "localhost",
    seconds: float = SECONDS,
    **options: Any,
) -> RawClient:
    """Connect to a node on this machine. Raises ConnectionError if it refuses, TimeoutError if it does not answer;

    `options`: of QuicConfiguration.
    """
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=alpn, server_name=server_name, verify_mode=ssl.CERT_NONE, **options
    )
    if trust is not None:
        configuration.verify_mode = ssl.CERT_REQUIRED
        configuration.load_verify_locations(cafile=str(trust))
    loop = asyncio.get_running_loop()
    client = RawClient(QuicConnection(configuration=configuration))
    await loop.create_datagram_endpoint(lambda: client, remote_addr=("127.0.0.1", port))
    try:
        client.connect(("127.0.0.1", port))
        await client.wait(lambda: client.is_closed or client.is_open, "the handshake", seconds)
        if client.is_closed:
            raise ConnectionError(client.closed_by)
    except BaseException:
        client.vanish()
        raise
    return client


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[RawClient]:
    """Connect as `connect` does, and close the connection afterwards."""
    client = await connect(port, **options)
    try:
        yield client
    finally:
        await client.bye()
