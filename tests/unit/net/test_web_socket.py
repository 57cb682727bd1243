"""The client's end of a WebSocket: its request, its frames, and the end of a server that breaks the protocol."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import pytest

from eventd.net import web_socket
from eventd.net.exchange import NoAnswer
from eventd.net.web_socket import MAGIC, ClosedSocket, UpgradeRefused, WebSocket, masked

KEY = base64.b64encode(b"k" * 16)
ACCEPT = base64.b64encode(hashlib.sha1(KEY + MAGIC).digest())
ACCEPTED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %b\r\n\r\n" % ACCEPT


class Wire(asyncio.Transport):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.ended = ""

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.sent += b"".join(map(bytes, list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = self.ended or "aborted"


class Opened:
    """An open WebSocket, the bytes that it sends, and what its owner is told."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.socket = WebSocket(lambda count: b"k" * count)
        self.socket.connection_made(self.wire)
        self.messages: list[bytes] = []
        self.ends: list[ClosedSocket] = []

    async def open(self, answer: bytes = ACCEPTED) -> Opened:
        opening = asyncio.ensure_future(self.socket.open("GET /x HTTP/1.1\r\nHost: a"))
        await asyncio.sleep(0)
        self.socket.data_received(answer)
        await opening
        self.socket.on_message, self.socket.on_end = self.messages.append, self.ends.append
        self.wire.sent = b""
        return self


async def test_it_asks_for_a_websocket_and_sends_masked_messages() -> None:
    opened = Opened()
    opening = asyncio.ensure_future(opened.socket.open("GET /x HTTP/1.1\r\nHost: a"))
    await asyncio.sleep(0)
    head = opened.wire.sent
    assert head.startswith(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n")
    assert head.endswith(b"Sec-WebSocket-Key: " + KEY + b"\r\n\r\n")
    opened.socket.data_received(ACCEPTED[:20])
    assert not opening.done()
    opened.socket.data_received(ACCEPTED[20:])
    await opening
    opened.wire.sent = b""
    for size, header in (
        (5, b"\x82\x85"),
        (200, b"\x82\xfe\x00\xc8"),
        (70_000, b"\x82\xff" + (70_000).to_bytes(8, "big")),
    ):
        opened.socket.send(b"m" * size)
        assert opened.wire.sent == header + b"kkkk" + bytes([ord("m") ^ ord("k")]) * size
        opened.wire.sent = b""


@pytest.mark.parametrize("size", [0, 1, 3, 1023, 1024, 5001])
def test_a_mask_applied_twice_is_none(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = bytes(at % 251 for at in range(size))
    expected = bytes(byte ^ b"abcd"[at % 4] for at, byte in enumerate(payload))
    assert bytes(masked(b"abcd", payload)) == expected
    assert bytes(masked(b"abcd", bytes(expected))) == payload
    monkeypatch.setattr(web_socket, "_mask_in_place", lambda: web_socket._mask_slowly)
    assert bytes(masked(b"abcd", payload)) == expected


@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
async def test_messages_are_read_however_they_arrive(step: int) -> None:
    opened = await Opened().open()
    sent = b"\x81\x02hi" + b"\x01\x01a" + b"\x89\x02?!" + b"\x80\x02bc" + b"\x82\x7e\x00\x80" + b"x" * 128
    for at in range(0, len(sent), step):
        opened.socket.data_received(sent[at : at + step])
    assert opened.messages == [b"hi", b"abc", b"x" * 128]
    assert opened.wire.sent == b"\x8a\x82kkkk" + bytes(byte ^ ord("k") for byte in b"?!"), "the ping is answered"


async def test_frames_behind_the_answer_are_read() -> None:
    opened = Opened()
    opened.socket.on_message = opened.messages.append
    await opened.open(ACCEPTED + b"\x81\x02hi")
    assert opened.messages == [b"hi"]


async def test_a_close_of_the_server_is_answered_and_reported_once() -> None:
    opened = await Opened().open()
    opened.socket.data_received(b"\x88\x06\x03\xe9bye!\x81\x02no")
    opened.socket.connection_lost(None)
    assert [(end.code, "bye!" in end.reason) for end in opened.ends] == [(1001, True)]
    assert opened.messages == []
    assert opened.wire.sent.startswith(b"\x88\x82")
    assert opened.wire.ended == "closed"


WRONG: Sequence[tuple[str, bytes]] = [
    ("masked", b"\x81\x80abcd"),
    ("reserved bits", b"\xc1\x00"),
    ("an unknown kind", b"\x83\x00"),
    ("a continuation of nothing", b"\x80\x00"),
    ("a message within a message", b"\x01\x01a\x81\x01b"),
    ("too large", b"\x82\x7f" + (1 << 40).to_bytes(8, "big")),
    ("too large in parts", b"\x02\x01a\x80\x7f" + (16 << 20).to_bytes(8, "big")),
]


@pytest.mark.parametrize("sent", [sent for _, sent in WRONG], ids=[words for words, _ in WRONG])
async def test_a_server_that_breaks_the_protocol_loses_the_connection(sent: bytes) -> None:
    opened = await Opened().open()
    opened.socket.data_received(sent)
    opened.socket.data_received(b"\x81\x02no")
    assert [end.code for end in opened.ends] == [0]
    assert opened.messages == []
    assert opened.wire.ended == "aborted"


async def test_another_answer_is_a_refusal() -> None:
    opened = Opened()
    with pytest.raises(UpgradeRefused) as refused:
        await opened.open(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nA: b\r\n\r\n{}")
    assert (refused.value.answer.status, refused.value.answer.body) == (404, b"{}")
    assert opened.wire.ended == "aborted"


@pytest.mark.parametrize(
    "answer",
    [b"nonsense\r\n\r\n", ACCEPTED.replace(ACCEPT, b"x" * 28), b"x" * 40_000],
    ids=["no HTTP", "another key", "no end"],
)
async def test_an_answer_that_is_no_websocket_of_this_request_is_none(answer: bytes) -> None:
    with pytest.raises(NoAnswer):
        await Opened().open(answer)


async def test_a_connection_that_ends_is_reported_and_one_that_is_closed_here_is_not() -> None:
    lost, closed, aborted = [await Opened().open() for _ in range(3)]
    lost.socket.connection_lost(None)
    assert [end.code for end in lost.ends] == [0]
    closed.socket.close()
    assert closed.wire.sent == b"\x88\x82kkkk" + bytes(byte ^ ord("k") for byte in b"\x03\xe8")
    aborted.socket.abort()
    for each in (closed, aborted):
        each.socket.connection_lost(None)
        assert each.ends == []


async def test_a_connection_that_ends_before_the_answer_fails_its_opening() -> None:
    opened = Opened()
    opening = asyncio.ensure_future(opened.socket.open("GET / HTTP/1.1"))
    await asyncio.sleep(0)
    opened.socket.connection_lost(ConnectionResetError("gone"))
    with pytest.raises(NoAnswer, match="gone"):
        await opening
