"""Bodies that clients send and read: watches in any pieces, writes, emits, batches of a drain, WebSocket frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from aiohttp import StreamReader

from eventd.api.framework.decoding import decode
from eventd.api.listener.masking import MaskedFrames
from eventd.api.topics.write import WriteBody, read_batch
from eventd.client.connection import Frame, _frames
from eventd.client.drain import read_batch as read_drained
from eventd.client.refusals.answers import restore
from eventd.errors import EventdError
from eventd.log.core.records import read_body
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
    FuzzTarget("refusals", check_refusal, refusal_seeds, ('"error":{', '"code":"', '"detail":', '"hint":"')),
)
