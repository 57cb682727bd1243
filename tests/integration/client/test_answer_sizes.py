"""A client takes answers of a node up to a size of its own choice."""

from __future__ import annotations

import asyncio

import pytest

from eventd.client.connection import ONCE, Connection
from eventd.errors import Unavailable

ANSWER = b'{"groups":[' + b" " * 1000 + b"]}"


async def test_an_answer_that_is_larger_than_the_client_takes_counts_as_none() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        for most in (len(ANSWER), len(ANSWER) - 1):
            connection = Connection(address, retry=ONCE, most_bytes=most)
            try:
                if most >= len(ANSWER):
                    assert await connection.ask("GET", "/api/v1/status", dict) == {"groups": []}
                else:
                    with pytest.raises(Unavailable, match=f"its answer is larger than {most} bytes"):
                        await connection.ask("GET", "/api/v1/status", dict)
            finally:
                await connection.close()
