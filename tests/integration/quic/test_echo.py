"""A server and a client of the project's own, over loopback."""

from __future__ import annotations

from pathlib import Path

from tests.support.quic_ends import serve


async def test_what_a_client_writes_comes_back(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        stream = client.open()
        stream.stream.write(b"hello ")
        stream.stream.write(b"world", end=True)
        await stream.until(lambda it: it.ended)
        assert stream.data == b"hello world"
        client.link.close(7, "enough")
        server = await served.link()
        await server.until(lambda it: it.end)
        assert server.end == (7, "enough")
        await client.until(lambda it: it.end)
        assert not served.failures
