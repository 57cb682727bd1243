"""Access to the groups and topics of one node from a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from eventd.client.connection import USUAL, Connection, Pause, Retry, pause
from eventd.client.publishing import Publisher
from eventd.client.queues import Queues
from eventd.client.routers import Routers
from eventd.client.topics import Topics
from eventd.client.watching import Options, Watch
from eventd.tls.files import ClientTlsConfig


class Client:
    """A node's API for programs: `server` is `http://HOST:PORT`, `key` an API key, `socket` a Unix socket of the node.

    For `https://HOST:PORT`, `tls` says how the node's certificate is verified and which one is shown; without it, the
    system's CAs count. `headers` are sent with every request.

    A request that may succeed later is retried according to `retry`, but not sooner than the node asks for. Use a
    client as a context manager, on one loop. A refusal is an `EventdError` with the node's `code`.
    """

    def __init__(
        self,
        server: str,
        key: str = "",
        *,
        socket: Path | None = None,
        tls: ClientTlsConfig | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        retry: Retry = USUAL,
        pause: Pause = pause,
    ) -> None:
        self._use(Connection(server, key, socket=socket, tls=tls, headers=headers, retry=retry, pause=pause))

    @classmethod
    def over(cls, connection: Connection) -> Self:
        """Return a client that sends its requests over this connection, and closes it."""
        client = cls.__new__(cls)
        client._use(connection)
        return client

    def _use(self, connection: Connection) -> None:
        self._connection = connection
        self.topics = Topics(connection)
        self.routers = Routers(connection)
        self.queues = Queues(connection)

    def watch(
        self,
        topics: Mapping[str, int | None],
        *,
        epochs: Mapping[str, str] = MappingProxyType({}),
        node: Sequence[str] = (),
        tags: bool = True,
        meta: bool = True,
        data: bool = True,
        limit: int = 256,
        heartbeat_ms: int = 15_000,
    ) -> Watch:
        """Return a `Watch` of topics by name, each after a seq; None: only records written after the watch begins.

        To continue an earlier watch, pass its `cursors` and its `epochs`: records of another epoch follow a `Gap`.
        Records whose writer is named in `node` are left out, unless a topic's `dedupe_node` is false. A batch has up to
        `limit` records.
        """
        options = Options(
            node=node,
            limit=limit,
            heartbeat_ms=heartbeat_ms,
            include_meta=meta,
            include_tags=tags,
            include_data=data,
        )
        return Watch(self._connection, topics, epochs, options)

    def publisher(self, group: str, *, window: int = 256, requests: int = 2, websocket: bool = True) -> Publisher:
        """Return a `Publisher` of events to a group; use it as a context manager.

        Up to `window` events wait to be stored at a time. They go over a WebSocket, or in up to `requests` requests at
        a time: without `websocket`, or if the node or a proxy takes none.
        """
        return Publisher(self._connection, group, window=window, requests=requests, websocket=websocket)

    async def reach(self) -> None:
        """Check with one request, without retries, that the node answers. Raises `Unavailable` or its refusal."""
        await self._connection.reach()

    async def close(self) -> None:
        """Close all connections to the node."""
        await self._connection.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
