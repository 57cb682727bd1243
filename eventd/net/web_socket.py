"""The client's end of a WebSocket (RFC 6455): messages out, messages in, without a task for either.

It takes no extensions. Messages and their parts are limited; a server that breaks the protocol loses the connection.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
import sys
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple, cast

from eventd.net.exchange import MAX_HEAD, Answer, AnswerReader, AnswerTooLarge, NoAnswer

MOST_MESSAGE: Final = 16 << 20
"""Maximum bytes of a message of the server."""
GOING_AWAY: Final = 1001
TOO_BIG: Final = 1009
TRY_AGAIN_LATER: Final = 1013
"""Codes with which a server closes: it stops, a message was larger than it accepts, or it lacks memory or time."""
_REFUSAL_BYTES: Final = 1 << 20
"""Maximum bytes that are read of the answer of a server that refuses the connection."""
MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""What RFC 6455 appends to a key before it is hashed."""
_FINAL, _RESERVED, _MASKED = 0x80, 0x70, 0x80
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_CLOSING: Final = 1000


class UpgradeRefused(Exception):
    """The server answered the request for a WebSocket with `answer`."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"status {answer.status}")
        self.answer = answer


class ClosedSocket(NamedTuple):
    """Why a WebSocket has ended: the code with which the server closed it, 0 without one, and a reason."""

    code: int
    reason: str


class WebSocket(asyncio.Protocol):
    """One WebSocket. After `open`, `on_message` gets each message, and `on_end` once why the connection ended.

    `token(16)` returns random bytes, for the key and the masks.
    """

    def __init__(self, token: Callable[[int], bytes]) -> None:
        self.on_message: Callable[[bytes], None] = lambda _: None
        self.on_end: Callable[[ClosedSocket], None] = lambda _: None
        self.heard_at = 0.0
        """When the server last sent anything, by the loop's clock."""
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] | None = None
        self._refusal: AnswerReader | None = None  # of the answer, once it is known not to be a WebSocket
        self._accept = b""
        self._is_open = self._is_over = False
        self._lost: Exception | None = None
        self._buffer = b""
        self._parts: list[bytes] = []
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def open(self, head: str) -> None:
        """Ask for a WebSocket; `head`: the request line and the headers, without the end of the last line.

        Raises `UpgradeRefused`, `NoAnswer`, and the error of a connection that ends.
        """
        key = base64.b64encode(self._token(16))
        self._accept = base64.b64encode(hashlib.sha1(key + MAGIC, usedforsecurity=False).digest())
        self._opened = self._loop.create_future()
        if self._lost is not None:
            raise self._lost
        lines = f"{head}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        self._transport.write(lines.encode() + b"Sec-WebSocket-Key: " + key + b"\r\n\r\n")
        try:
            await self._opened
        except BaseException:
            self.abort()
            raise

    @property
    def is_full(self) -> bool:
        """Return whether the server is behind in reading, so that nothing should be sent now."""
        return self._transport.get_write_buffer_size() > 1 << 20

    def send(self, payload: bytes) -> None:
        """Send a message, without waiting."""
        self._write(_BINARY, payload)

    def send_frame(self, frame: bytes) -> None:
        """Send a frame of `client_frame`, without waiting."""
        self._transport.write(frame)

    def close(self) -> None:
        """End the connection: send what was written, and a close."""
        if not self._is_over:
            self._is_over = True
            self._write(_CLOSE, _CLOSING.to_bytes(2, "big"))
            self._transport.close()

    def abort(self) -> None:
        """End the connection now; `on_end` is not called."""
        self._is_over = True
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        if self._is_over:
            return
        try:
            if self._is_open:
                self._read_frames(self._buffer + data if self._buffer else data)
            else:
                self._read_answer(data)
        except (NoAnswer, AnswerTooLarge, UpgradeRefused) as error:
            self._fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        message = "the other end closed the connection"
        self._lost = error if isinstance(error, ssl.SSLError) else NoAnswer(f"{message}: {error}" if error else message)
        if self._refusal is not None and (answer := self._refusal.end()) is not None:
            self._lost = UpgradeRefused(answer)
        self._fail(self._lost)

    def _fail(self, error: Exception, code: int = 0) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(error)
        elif not self._is_over:
            self._is_over = True
            if code:
                self._transport.close()
            else:
                self._transport.abort()
            self.on_end(ClosedSocket(code, str(error)))

    # --- the answer to the request ------------------------------------------------------------------------------------

    def _read_answer(self, data: bytes) -> None:
        if self._refusal is None:
            self._buffer += data
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                if len(head) > MAX_HEAD:
                    raise NoAnswer(f"the head of the answer is larger than {MAX_HEAD} bytes")
                return
            if head.startswith(b"HTTP/1.1 101"):
                self._require_accepted(head)
                self._is_open, self._buffer = True, b""
                assert self._opened is not None
                if not self._opened.done():
                    self._opened.set_result(None)
                if rest:
                    self._read_frames(rest)
                return
            self._refusal, data = AnswerReader(_REFUSAL_BYTES, "", cut=True), self._buffer
        self._refusal.feed(data)
        if self._refusal.answer is not None:
            raise UpgradeRefused(self._refusal.answer)

    def _require_accepted(self, head: bytes) -> None:
        fields = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
        if (b"sec-websocket-accept", self._accept) not in [(name.lower(), value.strip()) for name, _, value in fields]:
            raise NoAnswer("the other end does not accept a WebSocket")

    # --- frames -------------------------------------------------------------------------------------------------------

    def _read_frames(self, data: bytes) -> None:
        """Read all complete frames, and keep the rest. Raises `NoAnswer` for what no server may send."""
        at, end = 0, len(data)
        while at + 2 <= end and not self._is_over:
            first, size, begin = data[at], data[at + 1], at + 2
            if size & _MASKED or first & _RESERVED:
                raise NoAnswer("the other end sent a frame that is not valid")
            if size >= 126:
                wide = 2 if size == 126 else 8
                if begin + wide > end:
                    break
                size, begin = int.from_bytes(data[begin : begin + wide], "big"), begin + wide
            if size + self._size > MOST_MESSAGE:
                raise NoAnswer(f"the other end sent a message of more than {MOST_MESSAGE} bytes")
            if begin + size > end:
                break
            at = begin + size
            self._take(first, data[begin:at])
        self._buffer = data[at:]

    def _take(self, first: int, payload: bytes) -> None:
        kind = first & 0x0F
        if kind in (_CONTINUED, _TEXT, _BINARY):
            self._take_part(payload, is_first=kind != _CONTINUED, is_last=bool(first & _FINAL))
        elif kind == _PING:
            self._write(_PONG, payload)
        elif kind == _CLOSE:
            code = int.from_bytes(payload[:2], "big")
            self._write(_CLOSE, payload[:2])
            words = payload[2:].decode(errors="replace")
            self._fail(NoAnswer(f"the other end closed the connection ({code}{f', {words}' if words else ''})"), code)
        elif kind != _PONG:
            raise NoAnswer("the other end sent a frame that is not valid")

    def _take_part(self, payload: bytes, *, is_first: bool, is_last: bool) -> None:
        if is_first == bool(self._parts):
            raise NoAnswer("the other end sent a frame that is not valid")
        if is_first and is_last:
            self.on_message(payload)
            return
        self._parts.append(payload)
        self._size += len(payload)
        if is_last:
            whole = b"".join(self._parts)
            self._parts, self._size = [], 0
            self.on_message(whole)

    def _write(self, kind: int, payload: bytes) -> None:
        mask = self._token(4)
        self._transport.writelines((_head(kind, len(payload)) + mask, masked(mask, payload)))


def client_frame(payload: bytes, mask: bytes, kind: int = _BINARY) -> bytes:
    """Return a whole message as one frame of a client; `mask`: four random bytes, `kind`: the opcode of RFC 6455."""
    return _head(kind, len(payload)) + mask + bytes(masked(mask, payload))


def _head(kind: int, size: int) -> bytes:
    """Return the head of a frame, without its mask."""
    if size < 126:
        return bytes((_FINAL | kind, _MASKED | size))
    if size < 1 << 16:
        return bytes((_FINAL | kind, _MASKED | 126)) + size.to_bytes(2, "big")
    return bytes((_FINAL | kind, _MASKED | 127)) + size.to_bytes(8, "big")


def masked(mask: bytes, payload: bytes) -> bytes | bytearray:
    """Return the payload with each byte XORed with one of the mask's four, in turn."""
    if len(payload) < 1024:
        size = len(payload)
        masks = int.from_bytes((mask * (size // 4 + 1))[:size], "little")
        return (int.from_bytes(payload, "little") ^ masks).to_bytes(size, "little")
    mixed = bytearray(payload)
    _mask_in_place()(mask, mixed)
    return mixed


def _mask_in_place() -> Callable[[bytes, bytearray], None]:
    """Return the function that masks a long payload.

    In a program that has loaded aiohttp, that is its own in C, which takes a twentieth of the time; to load it for
    this alone costs as much as to mask a hundred megabytes.
    """
    helpers = sys.modules.get("aiohttp._websocket.helpers")
    return getattr(helpers, "websocket_mask", _mask_slowly)


def _mask_slowly(mask: bytes, payload: bytearray) -> None:
    for at in range(4):
        payload[at::4] = payload[at::4].translate(_xored(mask[at]))


@cache
def _xored(key: int) -> bytes:
    """Return all bytes XORed with one of a mask."""
    return bytes(byte ^ key for byte in range(256))
