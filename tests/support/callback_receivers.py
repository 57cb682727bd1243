"""A receiver of callbacks on a real socket: it records every request byte by byte, and answers as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HANG, CUT = -1, -2
"""Instead of a status: give no answer, or close the connection without one."""


@dataclass
class Received:
    """One request. `head` is its text up to the empty line; names in `headers` are in lower case."""

    head: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """What a request is answered with."""

    status: int = 204
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0


def _accept(_: Received) -> Reply:
    return Reply()


class Receiver:
    """Listens on a port of the loopback interface. `answer` may be replaced at any time; `requests` has all requests.

    `accepted` has those that were answered with 2xx.
    """

    def __init__(self) -> None:
        self.answer: Callable[[Received], Reply] = _accept
        self.requests: list[Received] = []
        self.accepted: list[Received] = []
        self.connections = 0
        self.most_at_once = 0
        """How many requests were under way at the same time, at most."""
        self.gate = asyncio.Event()
        """Answers wait for it; it is set at first."""
        self.gate.set()
        self._under_way = 0
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, port: int = 0) -> Receiver:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port or self.port, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in [*self._serving]:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/"

    def always(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer every request in this way from now on."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = lambda _: Reply(status, body, named)

    @property
    def events(self) -> list[str]:
        """The ids of accepted events, in the order of their arrival; of the formats `standard` and `batch`."""
        found: list[str] = []
        for request in self.accepted:
            content = request.json
            found += [one["id"] for one in (content if isinstance(content, list) else [content])]
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while await self._answer_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        pairs = [line.split(": ", 1) for line in head.split("\r\n")[1:] if line]
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Received(head, headers, body)
        self.requests.append(request)
        reply = self.answer(request)
        await self.gate.wait()
        if reply.delay:
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
            await asyncio.sleep(reply.delay)
            self._under_way -= 1
        if 200 <= reply.status <= 299:
            self.accepted.append(request)
        if reply.status == HANG:
            await asyncio.sleep(3600)
        if reply.status == CUT:
            return False
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in reply.headers.items())]
        if reply.status not in (204, 304):
            lines.append(f"Content-Length: {len(reply.body)}")
        writer.write("\r\n".join([*lines, "", ""]).encode() + reply.body)
        await writer.drain()
        return True
