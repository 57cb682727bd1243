"""Many peers in one small process: it answers for all of them, with signed receipts, and keeps only counters.

`python -m tests.bench.growth_sink PORT SECRET`. A peer is identified by its group and its name. Its position is the end
of the last range, a checksum covers all received bytes, and `GET /counts` returns both. A peer whose name begins with
`silent` accepts requests and never answers.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

import msgspec
import uvloop

from eventd.bench.wire import HEAD_END, length_of
from eventd.runtime.clock import SystemClock
from federation.event import from_micros
from federation.keys import KeyRing
from federation.ranges import Mark
from federation.signing import Head, Receiver, VerifiedRequest, check_body, sign_answer, verify_head
from federation.wire import BatchHeader, LinkAnswer, Receipt, encode_json

SILENT = "silent"
WINDOW = 300_000_000
"""The maximum age of a request in microseconds."""


Reply = Callable[[dict[str, str], bytes], None]
"""Sends the headers and the body of an answer."""


@dataclass(slots=True)
class PeerState:
    """What one peer has received. `upto` is its position in the sender's history."""

    events: int = 0
    batches: int = 0
    checksum: int = 0
    upto: int = 0
    epoch: str = ""
    incarnation: int = 0

    def take(self, header: BatchHeader, digest: str, body: bytes) -> Receipt:
        """Count the batch that follows the one before."""
        covers = header.range
        self.upto, self.epoch, self.incarnation = covers.upto or 0, covers.epoch, covers.incarnation
        lines = body.count(b"\n")
        self.events += lines
        self.batches += 1
        self.checksum = zlib.crc32(body, self.checksum)
        return Receipt(
            group=header.group,
            from_node=header.from_node,
            to_node=header.to_node,
            batch=header.batch_id,
            digest=digest,
            epoch=covers.epoch,
            incarnation=covers.incarnation,
            upto=self.upto,
            accepted=lines,
            duplicates=0,
            recorded_at=from_micros(SystemClock().now()),
        )


class Sink:
    """All peers, by their names. A batch that arrives early waits for its predecessor."""

    def __init__(self, secret: str) -> None:
        self._keys = KeyRing.shared(secret)
        self._held: dict[str, PeerState] = {}
        self._early: dict[tuple[str, int], tuple[VerifiedRequest, bytes, Reply]] = {}

    def ask(self, head: Head, body: bytes, reply: Reply) -> None:
        """Answer a request, now or when its predecessor has arrived."""
        if head.path == "/counts":
            told = {name: asdict(held) for name, held in self._held.items()}
            reply({"Content-Type": "application/json"}, msgspec.json.encode(told))
            return
        headers = cast(dict[str, str], head.headers)
        node, group = headers["eventd-to"], headers["eventd-group"]
        if node.startswith(SILENT):
            return
        receiver = Receiver(node, group, self._keys, WINDOW)
        request = verify_head(head, receiver, now=SystemClock().now())
        check_body(request, body)
        name = f"{group}/{node}"
        held = self._held.setdefault(name, PeerState())
        header = request.header
        if not isinstance(header, BatchHeader):
            mark = Mark(epoch=held.epoch, incarnation=held.incarnation, upto=held.upto, base=0) if held.epoch else None
            told_link = LinkAnswer(group=header.group, from_node=header.from_node, to_node=node, mark=mark)
            self._tell(request, encode_json(told_link), reply)
            return
        self._early[name, header.range.after or 0] = request, body, reply
        while waiting := self._early.pop((name, held.upto), None):
            request, body, reply = waiting
            assert isinstance(request.header, BatchHeader)
            self._tell(request, encode_json(held.take(request.header, request.digest, body)), reply)

    def _tell(self, request: VerifiedRequest, told: bytes, reply: Reply) -> None:
        key = self._keys.signer(request.header.to_node)
        reply(sign_answer(request, 200, told, key, now=SystemClock().now()), told)


class Connection(asyncio.Protocol):
    """One connection: requests with a Content-Length, answered in their order."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._buffer = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (size := _length(self._buffer)) and len(self._buffer) >= size:
            whole = bytes(self._buffer[:size])
            del self._buffer[:size]
            head, _, body = whole.partition(HEAD_END)
            first, *lines = head.decode().split("\r\n")
            method, path, _ = first.split(" ")
            fields = dict(line.split(": ", 1) for line in lines)
            self._sink.ask(Head(method, path, {k.lower(): v for k, v in fields.items()}), body, self._reply)

    def _reply(self, headers: dict[str, str], told: bytes) -> None:
        rows = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._transport.write(f"HTTP/1.1 200 OK\r\n{rows}Content-Length: {len(told)}\r\n\r\n".encode() + told)


def _length(data: bytearray) -> int:
    """Return the bytes of the request that begins here; 0 while its head is incomplete. One without a length has no
    body."""
    end = data.find(HEAD_END)
    if end < 0:
        return 0
    return length_of(data) if b"\r\ncontent-length:" in data[:end].lower() else end + len(HEAD_END)


async def serve(port: int, sink: Sink) -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(lambda: Connection(sink), "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Sink(sys.argv[2])))
