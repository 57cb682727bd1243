"""An HTTP peer that does what a test says: hangs, answers any status, cuts connections, waits; or passes requests on
to a real node and spoils them on the way. Blocking, with threads of its own.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Heard:
    """A request as it came, byte for byte, and when (monotonic seconds)."""

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
    """Take the request and never answer."""


@dataclass(frozen=True)
class Cut:
    """Take the request and end the connection; with `after`, only once the node behind has answered."""

    after: bool = False


@dataclass(frozen=True)
class Say:
    """Answer this."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    delay: float = 0.0

    def encode(self) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        head = f"HTTP/1.1 {self.status} X\r\n{lines}Content-Length: {len(self.body)}\r\n\r\n"
        return head.encode() + self.body


@dataclass(frozen=True)
class Pass:
    """Hand it to the node behind, `delay` seconds later, and its answer back."""

    delay: float = 0.0


Deed = Hang | Cut | Say | Pass


@dataclass
class FlakyPeer:
    """Listens on `port` until closed. `behave(request)` decides what becomes of each request."""

    port: int
    behave: Callable[[Heard], Deed] = lambda _: Hang()
    target: int = 0
    heard: list[Heard] = field(default_factory=list)
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
        """Stop listening, end every connection, wait for the threads."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.drop_connections()
        for thread in list(self._threads):
            thread.join(5)

    def drop_connections(self) -> None:
        """End every connection that is open, as a network that breaks does."""
        with self._lock:
            for link in self._open:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def paths(self) -> list[str]:
        """The paths asked for, in order."""
        return [heard.path for heard in list(self.heard)]

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
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
                    heard = Heard(raw, time.monotonic())
                    self.heard.append(heard)
                    answer = self._do(self.behave(heard), raw)
                    if answer is None:
                        return
                    link.sendall(answer)
        except (OSError, ValueError):
            return
        finally:
            with self._lock:
                self._open.discard(link)

    def _do(self, deed: Deed, raw: bytes) -> bytes | None:
        """The answer; None where the connection is to end without one."""
        match deed:
            case Say(delay=delay):
                self._closing.wait(delay)
                return deed.encode()
            case Hang():
                self._closing.wait()
                return None
            case Cut(after=after):
                if after:
                    self._forward(raw)
                return None
            case Pass(delay=delay):
                self._closing.wait(delay)
                return self._forward(raw)

    def _forward(self, raw: bytes) -> bytes | None:
        try:
            with socket.create_connection(("127.0.0.1", self.target), timeout=30) as behind:
                behind.sendall(raw)
                return _read_message(behind)
        except OSError:
            return None


def _read_message(link: socket.socket) -> bytes:
    """One request or answer with a Content-Length; empty at the end of the connection."""
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
