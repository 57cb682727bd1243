"""The client of the bare QUIC echo: the round trip of a frame, many frames under way, and bulk on one stream."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qh3.asyncio import QuicConnectionProtocol, connect
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.events import QuicEvent, StreamDataReceived

from eventd.streams.frames import Frame, StreamFrameReader, encode_frame
from tests.bench.streams.load import WARM_UP, Latencies, Rate
from tests.bench.streams.raw_server import COUNT, ECHO

PIECE = 64 << 10
"""Bytes that are written to a stream at a time, in bulk; several such pieces are under way."""


class RawClient(QuicConnectionProtocol):
    """One connection with one stream."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._reader = StreamFrameReader()
        self._waiting: deque[asyncio.Future[Frame]] = deque()
        self._room = asyncio.Event()
        self.stream = self._quic.get_next_available_stream_id()

    def quic_event_received(self, event: QuicEvent) -> None:
        """Hand each frame to the request that waits longest."""
        if isinstance(event, StreamDataReceived):
            for frame in self._reader.feed(event.data):
                self._waiting.popleft().set_result(frame)

    def transmit(self) -> None:
        """Send, and let `pour` go on once little is unsent."""
        super().transmit()
        if self._quic.get_send_buffer_size(self.stream) <= 4 * PIECE:
            self._room.set()

    def ask(self, payload: bytes, flags: int = ECHO) -> asyncio.Future[Frame]:
        """Send a frame; the result is the frame that answers it."""
        answer = self._loop.create_future()
        self._waiting.append(answer)
        self._quic.send_stream_data(self.stream, encode_frame(flags, payload))
        self.transmit()
        return answer

    async def pour(self, payload: bytes, count: int) -> int:
        """Send frames that are only counted, then the end; return the bytes that the server has counted."""
        answer: asyncio.Future[Frame] = self._loop.create_future()
        self._waiting.append(answer)
        frame = encode_frame(COUNT, payload)
        batch = max(1, PIECE // len(frame))
        for begun in range(0, count, batch):
            self._quic.send_stream_data(self.stream, frame * min(batch, count - begun))
            self._room.clear()
            self.transmit()
            await self._room.wait()
        self._quic.send_stream_data(self.stream, b"", end_stream=True)
        self.transmit()
        return int((await answer).payload)


@asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[RawClient]:
    """Connect to the server."""
    configuration = QuicConfiguration(is_client=True, verify_mode=ssl.CERT_NONE, max_datagram_size=4096)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=RawClient) as client:
        assert isinstance(client, RawClient)
        yield client


async def round_trips(port: int, size: int, count: int) -> Latencies:
    """Return the round trips of frames, one at a time."""
    payload, taken = bytes(size), []
    async with raw_client(port) as client:
        for number in range(WARM_UP + count):
            begun = time.perf_counter()
            answer = await client.ask(payload)
            if number >= WARM_UP:
                taken.append(time.perf_counter() - begun)
            if answer.payload != payload:
                raise AssertionError("the echo differs")
    return Latencies.of(taken)


async def pipelined(port: int, size: int, count: int, outstanding: int) -> Rate:
    """Return the frames per second with so many under way on one stream."""
    payload = bytes(size)
    async with raw_client(port) as client:
        rate, waiting = Rate.begin(), deque[asyncio.Future[Frame]]()
        for _ in range(count):
            if len(waiting) == outstanding:
                await waiting.popleft()
            waiting.append(client.ask(payload))
        for each in waiting:
            await each
        return rate.end(count)


async def bulk(port: int, size: int, count: int) -> Rate:
    """Return the frames per second of bulk on one stream, all of which the server has counted."""
    async with raw_client(port) as client:
        rate = Rate.begin()
        counted = await client.pour(bytes(size), count)
        if counted != size * count:
            raise AssertionError(f"{counted} bytes arrived of {size * count}")
        return rate.end(count)
