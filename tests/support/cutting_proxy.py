"""A TCP proxy that cuts each connection after a number of bytes, in one of the two directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_PIECE = 1 << 12


@dataclass
class CuttingProxy:
    """Passes bytes on. `cuts` are taken one for each connection: how many bytes of the server, or of the client, it
    passes on before it aborts both ends; without any left, connections last. `opened` counts connections.
    """

    port: int
    url: str = ""
    cuts: list[tuple[str, int]] = field(default_factory=list)
    opened: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        ends, most = self.cuts.pop(0) if self.cuts else ("", 0)
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass(reader, to_server, most if ends == "client" else -1))
                both.create_task(_pass(from_server, writer, most if ends == "server" else -1))
        except* ConnectionError:
            pass
        finally:
            writer.transport.abort()
            to_server.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int) -> None:
    """Pass on `most` bytes, or all if it is negative. Raises ConnectionError at the end."""
    while piece := await reader.read(_PIECE):
        if 0 <= most < len(piece):
            writer.write(piece[:most])
            await writer.drain()
            break
        most -= len(piece) if most >= 0 else 0
        writer.write(piece)
        await writer.drain()
    raise ConnectionResetError("the end")


@asynccontextmanager
async def cutting_proxy(target: str) -> AsyncIterator[CuttingProxy]:
    """Yield a proxy in front of the server at `target`."""
    proxy = CuttingProxy(int(target.rpartition(":")[2]))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 1)
