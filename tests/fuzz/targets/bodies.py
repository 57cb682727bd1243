"""Bodies that clients send and read: watches in any pieces, writes, batches of a drain, messages, WebSocket frames."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
from aiohttp import StreamReader

from eventd.api.admin.events.publish_messages import UnnumberedMessage, read_message, refusal, write_answers
from eventd.api.framework.decoding import decode
from eventd.api.listener.masking import MaskedFrames
from eventd.api.topics.write import WriteBody, read_batch
from eventd.client.connection import Frame, _frames
from eventd.client.drain import read_batch as read_drained
from eventd.client.refusals.answers import restore
from eventd.errors import EventdError
from eventd.log.core.records import read_body
from eventd.net.web_socket import MAGIC, ClosedSocket, WebSocket
from federation.errors import Malformed
from tests.fuzz.target import FuzzTarget, pieces


class Chunks:
    """The chunks of a response, as aiohttp's reader yields them."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = [part for part in parts if part]

    async def iter_any(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


_LOOP = asyncio.new_event_loop()


async def _read(parts: Iterable[bytes]) -> list[Frame] | str:
    chunks: Any = Chunks(parts)
    reader: StreamReader = chunks
    try:
        return [frame async for frame in _frames(reader)]
    except EventdError as error:
        return type(error).__name__


def check_event_stream(data: bytes) -> None:
    whole = _LOOP.run_until_complete(_read([data[8:]]))
    split = _LOOP.run_until_complete(_read(pieces(data)))
    assert split == whole


class FrameSink:
    """Collects the bytes that are passed on to the reader of frames."""

    def __init__(self) -> None:
        self.passed = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.passed += data
        return False, b""

    def feed_eof(self) -> None:
        pass


def check_masking(data: bytes) -> None:
    passed: list[bytes] = []
    for parts in ([data[8:]], [*pieces(data)]):
        sink = FrameSink()
        frames = MaskedFrames(sink)
        for part in parts:
            frames.feed_data(part)
        passed.append(sink.passed)
    assert passed[0] == passed[1]
    # Whole frames are passed on as they came, all of them masked, up to the first that is not.
    assert data[8:].startswith(passed[0].removesuffix(b"\xf0\x00"))


def check_write(data: bytes) -> None:
    try:
        body = decode(data, WriteBody)
        drafts = read_batch(body)
    except EventdError:
        return
    texts = [*drafts.bodies]
    assert len(texts) == len(body.records) == len(drafts.sizes or ())
    for text, record in zip(texts, body.records, strict=True):
        parts = read_body(text)
        assert "\n" not in text
        assert repr(json.loads(parts.data)) == repr(json.loads(bytes(record.data)))
        assert parts.tag == record.tag


def check_drained(data: bytes) -> None:
    try:
        found = read_drained(data)
    except Malformed:
        return
    assert len(found) >= 1
    assert all(event.url and event.topic for event in found)


def check_refusal(data: bytes) -> None:
    for status in (400, 404, 409, 413, 429, 503):
        assert isinstance(restore(status, data), EventdError)


def check_message(data: bytes) -> None:
    try:
        message = read_message(data)
    except UnnumberedMessage:
        return
    assert (
        msgspec.json.decode(write_answers([refusal(message.seq, UnnumberedMessage("wrong"))]))["answers"][0]["seq"] >= 0
    )
    if message.problem is None:
        written = json.loads(data)  # of a name that is given twice, the last one counts in both readings
        assert message.seq == written["seq"]
        assert len(message.events) == len(written["events"]) >= 1
    else:
        assert message.events == []


class Wire(asyncio.Transport):
    """Takes what is sent, and nothing else."""

    def write(self, data: object) -> None:
        pass

    def writelines(self, list_of_data: object) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


async def _hear(parts: Iterable[bytes]) -> tuple[list[bytes], ClosedSocket | None]:
    """Return the messages, and the end, that a client reads from the frames of a server that has accepted it."""
    socket, ends, messages = WebSocket(bytes), list[ClosedSocket](), list[bytes]()
    socket.connection_made(Wire())
    opening = asyncio.ensure_future(socket.open("GET / HTTP/1.1"))
    await asyncio.sleep(0)
    accept = base64.b64encode(hashlib.sha1(base64.b64encode(bytes(16)) + MAGIC).digest())
    socket.data_received(b"HTTP/1.1 101 Switching\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    await opening
    socket.on_message, socket.on_end = messages.append, ends.append
    for part in parts:
        socket.data_received(part)
    assert len(ends) <= 1
    return messages, ends[0] if ends else None


def check_server_frames(data: bytes) -> None:
    split = _LOOP.run_until_complete(_hear(pieces(data)))
    assert split == _LOOP.run_until_complete(_hear([data[8:]]))


def message_seeds() -> Iterable[bytes]:
    yield b'{"seq":1,"events":[{"type":"t","payload":{"k":"v"}},{"type":"t","ttl":"1h"}]}'
    yield b'{"events":[{"type":7}],"seq":9007199254740991}'
    yield b'{"seq":2,"events":[],"more":null}'


def server_frame_seeds() -> Iterable[bytes]:
    yield b"\3\50\1\2\7\11\77\0\x81\5hello\1\2he\x89\1p\x80\3llo\x8a\0\x88\5\3\xe9bye\x81\1x"
    yield bytes(8) + b"\x82\x7e\0\x90" + bytes(144) + b"\x81\x85abcdhello"


def stream_seeds() -> Iterable[bytes]:
    yield b'\3\50\1\2\7\11\77\0id: 1\nevent: batch\ndata: {"a":1}\n\n: comment\n\ndata:x\r\n\r\n'


def masking_seeds() -> Iterable[bytes]:
    mask = b"abcd"
    yield b"\3\50\1\2\7\11\77\0\x81\x85" + mask + b"hello" + b"\x02\xfe\0\x90" + mask + bytes(144) + b"\x89\x80" + mask
    yield bytes(8) + b"\x81\x05hello"


def write_seeds() -> Iterable[bytes]:
    yield b'{"records":[{"data":{"a":1},"tag":"t","node":"n","meta":{"m":"\\u00e9"}},{"data":null}],"node":"n"}'
    yield b'{"records":[{"data":1}],"idempotency_key":"k","create":true,"config":{"ttl_ms":5}}'


def drained_seeds() -> Iterable[bytes]:
    yield b'[{"topic":"a","type":"create","url":"https://x/1","t":1,"data":{"k":[]}}]'
    yield b'[{"topic":"b","type":"noop","url":"u","t":1.5}]'


def refusal_seeds() -> Iterable[bytes]:
    yield b'{"error":{"code":"topic_not_found","message":"m","hint":"h","detail":{}}}'
    yield b'{"error":"invalid","message":"m"}'


TARGETS = (
    FuzzTarget("event-streams", check_event_stream, stream_seeds, ("data:", "id:", "event:", "\n\n", "\r\n")),
    FuzzTarget("websocket-frames", check_masking, masking_seeds),
    FuzzTarget("write-bodies", check_write, write_seeds, ('"records":[', '"data":', '"meta":', '"tag":', '"config":{')),
    FuzzTarget("drain-bodies", check_drained, drained_seeds, ('"topic":"', '"type":"update"', '"url":"', '"t":')),
    FuzzTarget("publish-messages", check_message, message_seeds, ('"seq":', '"events":[', '{"type":"t"}')),
    FuzzTarget("server-frames", check_server_frames, server_frame_seeds),
    FuzzTarget("refusals", check_refusal, refusal_seeds, ('"error":{', '"code":"', '"detail":', '"hint":"')),
)
