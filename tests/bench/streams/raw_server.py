"""A bare QUIC server, the yardstick of streams: it sends each frame back, or counts bytes until a stream ends.

`python -m tests.bench.streams.raw_server PORT CERTIFICATE KEY`. It also listens on the TCP port of that number, so
that its start can be noticed.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict

import uvloop
from qh3.asyncio import QuicConnectionProtocol, serve
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.events import QuicEvent, StreamDataReceived

from eventd.streams.frames import StreamFrameReader, encode_frame

ECHO, COUNT = 0, 1
"""Flags of a frame: send it back, or answer the stream's end with how many payload bytes it had."""


class Echo(QuicConnectionProtocol):
    """One connection."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._readers: defaultdict[int, StreamFrameReader] = defaultdict(StreamFrameReader)
        self._counted: defaultdict[int, int] = defaultdict(int)

    def quic_event_received(self, event: QuicEvent) -> None:
        """Answer what has arrived."""
        if not isinstance(event, StreamDataReceived):
            return
        for frame in self._readers[event.stream_id].feed(event.data):
            if frame.flags == ECHO:
                self._quic.send_stream_data(event.stream_id, encode_frame(ECHO, frame.payload))
            else:
                self._counted[event.stream_id] += len(frame.payload)
        if event.end_stream:
            counted = b"%d" % self._counted[event.stream_id]
            self._quic.send_stream_data(event.stream_id, encode_frame(COUNT, counted), end_stream=True)


async def main(port: int, certificate: str, key: str) -> None:
    """Serve until killed."""
    configuration = QuicConfiguration(is_client=False, max_datagram_size=4096)
    configuration.load_cert_chain(certificate, key)
    await serve("127.0.0.1", port, configuration=configuration, create_protocol=Echo)
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
