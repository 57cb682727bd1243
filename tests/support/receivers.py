"""HTTP receivers at addresses of this machine, and a resolver whose answers a test writes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Receiver:
    """Answers each request with `answer`, once `gate` is set; `heard` has the requests, byte for byte."""

    def __init__(self) -> None:
        self.answer = OK
        self.heard: list[bytes] = []
        self.names: list[str | None] = []
        """The names that clients sent in their TLS handshakes."""
        self.open = self.most_open = self.connections = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                self.heard.append(head + await reader.readexactly(length))
                await self.gate.wait()
                writer.write(self.answer)
                await writer.drain()
        self.open -= 1
        writer.close()

    def end(self) -> None:
        """Close every connection."""
        self.gate.set()
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def receiving(host: str, port: int = 0, context: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """A receiver that listens at an address, over TLS with a context."""
    receiver = Receiver()
    if context is not None:
        context.sni_callback = lambda _, name, __: receiver.names.append(name)
    server = await asyncio.start_server(receiver.serve, host, port, ssl=context)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        receiver.end()
        await server.wait_closed()


class Resolver:
    """Answers every look-up with `addresses`, and notes it."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[tuple[str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def find(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        await self.gate.wait()
        return list(self.addresses)
