"""Watchers of server-sent events: what each received, and how many received the current write, and when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

from eventd.api.errors.codes import restore
from eventd.bench.wire import HEAD_END, NodeClient, now, read_answer
from eventd.errors import EventdError, Unavailable

MARK_BYTES = 96
BEGIN_SECONDS = 60.0


class WriteProgress:
    """One write in progress: how many watchers have received it, and when."""

    def __init__(self) -> None:
        self.mark = b"\0"
        self.times: list[float] = []
        self._expected = 0
        self._all: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, mark: bytes, expected: int) -> asyncio.Future[None]:
        """Note a write that the caller sends; return a future that is done when `expected` watchers received `mark`."""
        self.mark = mark
        self.times = []
        self._expected = expected
        self._all = asyncio.get_running_loop().create_future()
        return self._all

    def fail(self, error: Exception) -> None:
        """Fail the write in progress, because a watcher has failed."""
        if not self._all.done():
            self._all.set_exception(error)
            self._all.exception()  # retrieved here, because perhaps no write is in progress

    def heard(self) -> None:
        self.times.append(now())
        if len(self.times) == self._expected and not self._all.done():
            self._all.set_result(None)


class WatcherStream(asyncio.Protocol):
    """The connection of one watcher, which keeps all it receives. `begun` is done when that includes `since`."""

    def __init__(self, turn: WriteProgress, asked: bytes, since: bytes) -> None:
        self.received: list[bytes] = []
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turn = turn
        self._asked = asked
        self._since = since
        self._tail = b""
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._asked)

    def data_received(self, data: bytes) -> None:
        if not self.received and data[9:12] != b"200":
            self._refused(restore(*read_answer(data)))
            return
        window = self._tail + data
        at = window.find(self._turn.mark)
        if at >= 0:
            self._turn.heard()
            window = window[at + len(self._turn.mark) :]
        if not self.begun.done() and self._since in window:
            self.begun.set_result(None)
        self._tail = window[-MARK_BYTES:]
        self.received.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._refused(error or Unavailable("a stream of the node ended", hint="check that the node is running"))

    def _refused(self, error: Exception) -> None:
        if self._closing:
            return
        self._closing = True
        if not self.begun.done():
            self.begun.set_exception(error)
            self.begun.exception()
        self._turn.fail(error)

    def close(self) -> None:
        """Close the connection; what was received stays."""
        self._closing = True
        self.begun.cancel()
        self.transport.abort()

    def data_of(self, event: str) -> list[Any]:
        """Return the decoded data of all received server-sent events of a type."""
        _, _, rest = b"".join(self.received).partition(HEAD_END)
        text = bytearray()
        while rest:
            size, _, after = rest.partition(b"\r\n")
            text += after[: int(size, 16)]
            rest = after[int(size, 16) + 2 :]
        blocks = bytes(text).split(b"\n\n")[:-1]
        begins = f"event: {event}\n".encode()
        return [json.loads(block.partition(b"data: ")[2]) for block in blocks if begins in block + b"\n"]

    def numbers(self) -> list[int | str]:
        """Return the numbers of the received records, then a text for each gap that the node reported."""
        found: list[int | str] = [one["data"]["n"] for told in self.data_of("record") for one in told["records"]]
        return [*found, *(f"a gap: {told['reason']}" for told in self.data_of("tombstone"))]


def mark_of(number: int) -> bytes:
    """Return bytes that occur only in the record of this number."""
    return b'"n":%d,' % number


async def open_streams(
    client: NodeClient, topics: Sequence[str], turn: WriteProgress, *, from_seq: int
) -> list[WatcherStream]:
    """Open a watcher for each of these topics, with its own session, and wait until all have caught up.

    They receive the records after `from_seq`. Raises EventdError if that takes longer than `BEGIN_SECONDS`.
    """
    asked = [_session(client, topic, from_seq) for topic in topics]
    sessions = (await client.load([asked])).jsons()[0]
    streams = []
    try:
        for session in sessions:
            path = session["stream_url"]
            streams.append(await open_stream(client, path, turn, b"caught-up"))
        await _all_begun(streams)
    except BaseException:
        for stream in streams:
            stream.close()
        raise
    return streams


async def open_stream(client: NodeClient, path: str, turn: WriteProgress, since: bytes) -> WatcherStream:
    """Open a watcher of a path, without waiting until it has received `since`."""
    asked = client.request("GET", path)
    return await client.open(lambda: WatcherStream(turn, asked, since))


async def _all_begun(streams: Sequence[WatcherStream]) -> None:
    try:
        async with asyncio.timeout(BEGIN_SECONDS):
            await asyncio.gather(*(stream.begun for stream in streams))
    except TimeoutError:
        raise EventdError(f"not all {len(streams)} watchers have caught up within {BEGIN_SECONDS:g} s") from None


def _session(client: NodeClient, topic: str, from_seq: int) -> bytes:
    body = {"topics": {topic: {"from_seq": from_seq}}, "heartbeat_ms": 60_000}
    return client.request("POST", "/v0/watch", body)
