"""Connects `eventd.client` to a local database: this process answers the requests, and uses a socket only for requests
that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from eventd.cli.gateway.local_topics import LocalTopics
from eventd.cli.gateway.node_socket import SERVER
from eventd.client.connection import Connection, Frame, Query, Retry, require_success


class LocalConnection(Connection):
    """A connection to `topics`.

    `serve` returns the socket of a server for streams and for other requests that only a server can answer.
    """

    def __init__(self, topics: LocalTopics, serve: Callable[[], Awaitable[Path]], retry: Retry) -> None:
        super().__init__(SERVER, retry=retry)
        self._topics = topics
        self._serve = serve
        self._served: Connection | None = None

    async def send(
        self,
        method: str,
        path: str,
        content: bytes | None,
        seconds: float,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """Answer a request in this process; the headers are ignored, because none matters for these requests."""
        answer = await self._topics.answer(method, path, content)
        if answer is None:
            return await (await self._connect()).send(method, path, content, seconds)
        require_success(answer.status, "", answer.body)
        return answer.body

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query | None = None, last_id: str = "", silence: float
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        async with (await self._connect()).stream(path, query=query, last_id=last_id, silence=silence) as frames:
            yield frames

    async def _connect(self) -> Connection:
        if self._served is None:
            self._served = Connection(SERVER, socket=await self._serve(), retry=self.retry)
        return self._served

    async def close(self) -> None:
        await super().close()
        if self._served is not None:
            await self._served.close()
