"""What a user asks of a stream that is over, while the event that says so is under way, does no harm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eventd.quic.stream import QuicStream
from tests.support.aioquic_client import connected
from tests.support.quic_ends import serve

ACTS: dict[str, Callable[[QuicStream], None]] = {
    "stop": lambda stream: stream.stop_receiving(1),
    "reset": lambda stream: stream.reset(1),
    "write": lambda stream: stream.write(b"y"),
    "end": lambda stream: stream.write(b"", end=True),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("was_ended", [False, True])
async def test_a_stream_that_is_over_already_ends_no_connection(tmp_path: Path, act: str, was_ended: bool) -> None:
    async with serve(tmp_path) as served, connected(served.server.address[1]) as client:
        server = await served.link()
        stream = client.open()
        stream.write(b"x")
        await server.until(lambda it: it.streams)
        (notes,) = server.streams
        if was_ended:
            notes.stream.write(b"", end=True)
            await stream.over()
        await client.alive()

        def received(data: bytes, *, ended: bool) -> None:
            ACTS[act](notes.stream)

        notes.received = received  # type: ignore[method-assign]
        stream.write(b"z")
        client.transmit()
        stream.stop(3)
        stream.reset(4)
        await notes.until(lambda it: it.reset_code == 4 or it.stop_code == 3 or it.stream.is_over)
        await client.alive()
        assert served.failures == []
        assert server.end is None
