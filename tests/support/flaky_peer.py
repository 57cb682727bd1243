"""An HTTP peer that behaves as a test says: it hangs, answers any status, closes connections or waits; or it passes
requests to a real node, byte by byte, and corrupts them. Blocking, with threads of its own."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it arrived, byte for byte, and when (monotonic seconds)."""

    raw: bytes
    at: float

    @property
    def path(self) -> str:
        return self.raw.split(b" ", 2)[1].decode()

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]


@dataclass(frozen=True)
class Hang:
    """Accept the request and never answer."""


@dataclass(frozen=True)
class Disconnect:
    """Read the request and close the connection, optionally with a reset; with `after`, only once the real node has
    answered."""

    after: bool = False
    reset: bool = False


@dataclass(frozen=True)
class FixedResponse:
    """Answer with this status, these headers and this body."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    delay: float = 0.0

    def encode(self) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        head = f"HTTP/1.1 {self.status} X\r\n{lines}Content-Length: {len(self.body)}\r\n\r\n"
        return head.encode() + self.body


@dataclass(frozen=True)
class Forward:
    """Pass the request to the real node after `delay` seconds, and its answer back."""

    delay: float = 0.0


ByteOffset = tuple[Literal["head", "body"], float]
"""A byte of a message: a fraction from 0 to 1 of its head or its body."""


@dataclass(frozen=True)
class Direction:
    """How a message passes in one direction: after `delay` seconds, in pieces of `piece` bytes (0: as a whole),
    truncated at `cut`, with one bit of the byte at `flip` changed."""

    delay: float = 0.0
    piece: int = 0
    cut: ByteOffset | None = None
    flip: ByteOffset | None = None

    def spoil(self, raw: bytes) -> bytes:
        """Return the bytes that pass."""
        if self.flip is not None and raw:
            at = min(_offset(raw, self.flip), len(raw) - 1)
            raw = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        return raw if self.cut is None else raw[: _offset(raw, self.cut)]

    def send(self, link: socket.socket, raw: bytes) -> None:
        """Send the bytes that pass. Only the first thousand pieces are small, so that a large message arrives
        in time."""
        data = self.spoil(raw)
        time.sleep(self.delay)
        small = self.piece * 1000
        if self.piece:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, min(small, len(data)), self.piece or 1):
            link.sendall(data[start : min(start + self.piece, small)])
        link.sendall(data[small:])


@dataclass(frozen=True)
class CorruptingForward:
    """Pass the request to the real node and its answer back, corrupted on the way.

    The request is delivered `copies` times, each on a connection of its own; `half_close` closes the sending side of
    that connection before the answer is read. The last answer is returned, preceded by `before` and repeated `answers`
    times, unless the request was truncated. `end` says whether and how the connection is closed.
    """

    there: Direction = Direction()
    back: Direction = Direction()
    copies: int = 1
    half_close: bool = False
    before: bytes = b""
    answers: int = 1
    end: Literal["keep", "close", "half-close", "reset", "hang"] = "keep"


Deed = Hang | Disconnect | FixedResponse | Forward | CorruptingForward


@dataclass
class FlakyPeer:
    """Listens on `port` until closed. `behave(request)` returns what to do with each request. The real node has
    `patience` seconds to answer."""

    port: int
    behave: Callable[[ReceivedRequest], Deed] = lambda _: Hang()
    target: int = 0
    patience: float = 30.0
    heard: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._server = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self._start(self._accept)

    def __enter__(self) -> FlakyPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, close every connection, wait for the threads."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.drop_connections()
        for thread in list(self._threads):
            thread.join(5)

    def drop_connections(self) -> None:
        """Close every open connection, as a network failure does."""
        with self._lock:
            for link in self._open:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def paths(self) -> list[str]:
        """Return the paths of the requests, in order."""
        return [heard.path for heard in list(self.heard)]

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads = [each for each in self._threads if each.is_alive()]
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(link)
                self.connections += 1
            self._start(self._serve, link)

    def _serve(self, link: socket.socket) -> None:
        try:
            with link:
                while not self._closing.is_set() and (raw := _read_message(link)):
                    heard = ReceivedRequest(raw, time.monotonic())
                    self.heard.append(heard)
                    if not self._do(self.behave(heard), raw, link):
                        return
        except (OSError, ValueError):
            return
        finally:
            with self._lock:
                self._open.discard(link)

    def _do(self, deed: Deed, raw: bytes, link: socket.socket) -> bool:
        """Carry out a deed; return False if the connection is to be closed."""
        match deed:
            case FixedResponse(delay=delay):
                self._closing.wait(delay)
                link.sendall(deed.encode())
                return True
            case Hang():
                self._hang(link)
                return False
            case Disconnect(after=after, reset=reset):
                if after:
                    self._forward(raw)
                if reset:
                    _reset(link)
                return False
            case Forward(delay=delay):
                self._closing.wait(delay)
                answer = self._forward(raw)
                link.sendall(answer)
                return bool(answer)
            case CorruptingForward():
                return self._spoil(deed, raw, link)

    def _spoil(self, deed: CorruptingForward, raw: bytes, link: socket.socket) -> bool:
        answer = b""
        for _ in range(deed.copies):
            answer = self._forward(raw, deed.there, half_close=deed.half_close)
        if answer:
            link.sendall(deed.before)
            deed.back.send(link, answer * deed.answers if deed.answers > 1 else answer)
        match deed.end:
            case "keep":
                return bool(answer)
            case "half-close":
                link.shutdown(socket.SHUT_WR)
                self._hang(link)
            case "reset":
                _reset(link)
            case "hang":
                self._hang(link)
            case "close":
                pass
        return False

    def _hang(self, link: socket.socket) -> None:
        """Wait until the other side gives up."""
        while not self._closing.is_set():
            if select.select([link], [], [], 0.1)[0] and not link.recv(65536):
                return

    def _forward(self, raw: bytes, way: Direction = Direction(), *, half_close: bool = False) -> bytes:
        """Return the answer of the real node; empty if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.target), timeout=self.patience) as behind:
                way.send(behind, raw)
                if way.cut is not None:
                    return b""
                if half_close:
                    behind.shutdown(socket.SHUT_WR)
                return _read_message(behind)
        except OSError:
            return b""


def _reset(link: socket.socket) -> None:
    """Close with a reset."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def _offset(raw: bytes, place: ByteOffset) -> int:
    part, share = place
    head = raw.find(b"\r\n\r\n") + 4
    return int(head * share) if part == "head" else head + int((len(raw) - head) * share)


def _read_message(link: socket.socket) -> bytes:
    """Read one request or answer with a Content-Length; empty at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := link.recv(65536)):
            return b""
        data += more
    head = data.partition(b"\r\n\r\n")[0].decode("latin-1").lower()
    length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
    whole = len(head) + 4 + length
    while len(data) < whole:
        if not (more := link.recv(65536)):
            return b""
        data += more
    return data
