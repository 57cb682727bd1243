"""Clients of streams for tests of /v0: one that reads server-sent events, one that may stop reading, one of
WebSockets."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import ClientResponse, ClientWebSocketResponse

from tests.support.v0 import Client, Response

PATIENCE = 10.0


class Event(NamedTuple):
    """An event of a stream; `place` is its decoded id, and None for an id that names a checkpoint.

    A comment has an empty `kind`, and its text as `data`.
    """

    kind: str
    place: Any
    data: Any
    id: str = ""

    @property
    def seqs(self) -> list[int]:
        """Return the seqs of its records."""
        return [record["$seq"] for record in self.data["records"]]


def read_place(text: str) -> Any:
    """Return the topics' places in an id: a seq, or a list of the number of an epoch and a seq."""
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def write_place(**seqs: int) -> str:
    """Return the id for these topics' seqs."""
    return base64.urlsafe_b64encode(json.dumps(seqs, separators=(",", ":")).encode()).rstrip(b"=").decode()


class Stream:
    """A client that reads a stream of events."""

    def __init__(self, response: ClientResponse) -> None:
        self.response = response
        self.status = response.status
        self.headers = response.headers

    async def block(self) -> str:
        """Return the next block of lines; empty at the end of the stream."""
        async with asyncio.timeout(PATIENCE):
            return (await self.response.content.readuntil(b"\n\n")).decode().removesuffix("\n\n")

    async def next(self, *, comments: bool = False) -> Event | None:
        """Return the next event, or comment; None at the end."""
        while block := await self.block():
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            if "event" in fields:
                place = None if "." in fields["id"] else read_place(fields["id"])
                return Event(fields["event"], place, json.loads(fields["data"]), fields["id"])
            if comments and "" in fields:
                return Event("", None, fields[""])
        return None

    async def take(self, *kinds: str) -> list[Event]:
        """Return the next events, which must be of these kinds in this order."""
        taken = [event for _ in kinds if (event := await self.next()) is not None]
        assert tuple(event.kind for event in taken) == kinds, taken
        return taken

    async def seqs(self, upto: int) -> list[int]:
        """Return the seqs of all records up to a seq, skipping other events."""
        found: list[int] = []
        while not found or found[-1] < upto:
            event = await self.next()
            assert event is not None, f"the stream ended after {found}"
            if event.kind == "record":
                found += event.seqs
        return found


async def begin_session(client: Client, *topics: str, query: str = "", **members: Any) -> Response:
    """Begin a session for these topics from the first record on, or for the `topics` of the body."""
    asked = {"topics": {topic: {} for topic in topics}} | members
    return await client.ask("POST", f"/watch{query}", asked)


@asynccontextmanager
async def open_stream(
    client: Client, wid: str, *, last: str = "", accept: str = "", query: str = ""
) -> AsyncIterator[Stream]:
    """Yield a stream of a session."""
    headers = dict(client.headers)
    if last:
        headers["Last-Event-ID"] = last
    if accept:
        headers["Accept"] = accept
    async with client.session.get(f"{client.url}/v0/watch/{wid}{query}", headers=headers) as response:
        yield Stream(response)


@asynccontextmanager
async def watch_topics(client: Client, *topics: str, last: str = "", **members: Any) -> AsyncIterator[Stream]:
    """Yield a stream of a new session."""
    told = await begin_session(client, *topics, **members)
    assert told.status == 200, told.body
    async with open_stream(client, told.body["wid"], last=last) as stream:
        yield stream


@asynccontextmanager
async def open_unread_stream(client: Client, wid: str) -> AsyncIterator[asyncio.StreamReader]:
    """Yield the reader of a stream whose client reads nothing beyond its buffers until the reader is used."""
    host, _, port = client.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    try:
        writer.write(f"GET /v0/watch/{wid} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"\r\n\r\n")
        yield reader
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


class Socket:
    """A client of a WebSocket."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, op: str, **members: Any) -> None:
        """Send one command."""
        await self.socket.send_json({"op": op, **members})

    async def next(self) -> Any:
        """Return the next message; None when the connection has ended."""
        message = await self.socket.receive(PATIENCE)
        return json.loads(message.data) if message.type == 1 else None

    async def ask(self, op: str, **members: Any) -> Any:
        """Send one command and return the next message."""
        await self.say(op, **members)
        return await self.next()

    async def take(self, *ops: str) -> list[Any]:
        """Return the next messages, which must have these ops in this order."""
        taken = [await self.next() for _ in ops]
        assert tuple(told["op"] for told in taken) == ops, taken
        return taken


@asynccontextmanager
async def connect_socket(client: Client) -> AsyncIterator[Socket]:
    """Yield a connected WebSocket."""
    async with client.session.ws_connect(f"{client.url}/v0/ws", headers=client.headers, max_msg_size=0) as socket:
        yield Socket(socket)
