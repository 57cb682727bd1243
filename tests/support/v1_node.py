"""A node of the older protocol, written from the description of its wire format alone: it uses no code of the product.

It stands in for existing nodes. The sender writes its requests byte by byte to a socket, as theirs look on the wire;
the receiver checks in their order and answers with their texts. Blocking, with threads of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

BODY_LIMIT = 1_048_576
_TEXT = "text/plain; charset=utf-8"


def signature(secret: bytes, timestamp: int, body: bytes) -> str:
    """Return the lower-case hex signature over the decimal time, a line feed, and the body."""
    return hmac.new(secret, str(timestamp).encode() + b"\x0a" + body, hashlib.sha256).hexdigest()


def body_of(event_id: str, **fields: Any) -> bytes:
    """Return an event as such a node writes it: the order of its struct, the zero time if it does not expire."""
    event: dict[str, Any] = {"id": event_id, "group": fields.pop("group", "edge")}
    for name in ("sourceNode", "type", "subject", "dedupeKey", "payload"):
        default = {"sourceNode": "old", "type": "routerd.client.ipv4.observed", "dedupeKey": event_id}.get(name)
        if value := fields.pop(name, default):
            event[name] = value
    event["observedAt"] = fields.pop("observedAt", "2026-05-30T10:13:20Z")
    event["expiresAt"] = fields.pop("expiresAt", "0001-01-01T00:00:00Z")
    assert not fields, f"an event has no {', '.join(fields)}"
    text = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()


@dataclass(frozen=True)
class Reply:
    """An answer: the status, the headers in their order and case, the body unchanged."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class V1Sender:
    """Posts single events to one address, as an existing node does."""

    def __init__(self, port: int, secret: bytes) -> None:
        self.port = port
        self.secret = secret

    def post(
        self,
        body: bytes,
        *,
        timestamp: int | str | None = None,
        sign: str | None = None,
        skew: int = 0,
        omit: tuple[str, ...] = (),
        method: str = "POST",
        path: str = "/v1/events",
    ) -> Reply:
        """Send one request on a connection of its own. `sign` replaces the signature, `omit` leaves headers out."""
        now = int(time.time()) + skew
        told = str(now if timestamp is None else timestamp)
        number = int(told) if told.lstrip("+-").isdigit() else now
        headers = {
            "Host": f"127.0.0.1:{self.port}",
            "User-Agent": "Go-http-client/1.1",
            "Content-Length": str(len(body)),
            "Content-Type": "application/json",
            "X-Routerd-Signature": signature(self.secret, number, body) if sign is None else sign,
            "X-Routerd-Timestamp": told,
            "Accept-Encoding": "gzip",
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name not in omit)
        return self.exchange(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    def status(self) -> Reply:
        """Return the answer of /v1/status."""
        return self.exchange(f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())

    def exchange(self, request: bytes, *, seconds: float = 10.0) -> Reply:
        """Write these bytes, read one answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as link:
            with contextlib.suppress(ConnectionError):  # an answer may arrive before the body is read
                link.sendall(request)
            return read_reply(link)


def read_reply(link: socket.socket) -> Reply:
    """Read one answer with a Content-Length, or to the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = link.recv(65536)
        assert more, f"the connection ended without an answer, after {data!r}"
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), None)
    while length is None or len(body) < length:
        if not (more := link.recv(65536)):
            break
        body += more
    return Reply(int(first.split()[1]), headers, body)


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it arrived, with the lines of its head unchanged."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    status: int

    def header(self, name: str) -> str | None:
        """Return the value of a header, its name in exactly this case."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass
class V1Receiver:
    """Accepts events on a port until closed.

    The next posts are answered with `fail` in order: a status, or a status and a text; 0 accepts one. Other paths are
    answered with `unknown`.
    """

    port: int
    secret: bytes
    window: int = 300
    unknown: int = 404
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: list[ReceivedRequest] = field(default_factory=list)
    fail: list[int | tuple[int, bytes]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._server = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self._start(self._accept)

    def __enter__(self) -> V1Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and close every connection."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            for link in self._open:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(5)

    def paths(self) -> list[str]:
        """Return the paths of the requests, in order."""
        return [seen.line.split()[1] for seen in list(self.seen)]

    def _start(self, work: Any, *arguments: object) -> None:
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
            self._start(self._serve, link)

    def _serve(self, link: socket.socket) -> None:
        try:
            with link, link.makefile("rb") as stream:
                for line, headers, body in _requests(stream):
                    status, kind, answer = self._answer(line, headers, body)
                    self.seen.append(ReceivedRequest(line, headers, body, status))
                    head = f"HTTP/1.1 {status} X\r\n" + (f"Content-Type: {kind}\r\n" if kind else "")
                    link.sendall(f"{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer)
        except (OSError, ValueError):
            return
        finally:
            with self._lock:
                self._open.discard(link)

    def _answer(self, line: str, headers: list[tuple[str, str]], body: bytes) -> tuple[int, str, bytes]:
        method, path, _ = line.split()
        if path != "/v1/events":
            return self.unknown, _TEXT, b"404 page not found\n"
        if method != "POST":
            return 405, "", b""
        if self.fail and (failure := self.fail.pop(0)):
            status, text = failure if isinstance(failure, tuple) else (failure, b"store error\n")
            return status, _TEXT, text
        given = {name.lower(): value for name, value in headers}
        try:
            timestamp = int(given.get("x-routerd-timestamp", ""))
        except ValueError:
            return 400, _TEXT, b"bad timestamp\n"
        if abs(int(time.time()) - timestamp) > self.window:
            return 403, _TEXT, b"stale timestamp\n"
        if signature(self.secret, timestamp, body[:BODY_LIMIT]) != given.get("x-routerd-signature", ""):
            return 401, _TEXT, b"bad signature\n"
        return self._store(body[:BODY_LIMIT])

    def _store(self, body: bytes) -> tuple[int, str, bytes]:
        try:
            event = json.loads(body)
        except ValueError:
            return 400, _TEXT, b"bad event body\n"
        for name in ("id", "group", "type"):
            if not str(event.get(name, "")).strip():
                return 400, _TEXT, f"invalid event: federation event {name} is required\n".encode()
        with self._lock:
            duplicate = event["id"] in self.events
            self.events[event["id"]] = event
            self.order.append(event["id"])
        answer = {"accepted": True, "duplicate": duplicate, "id": event["id"]}
        return 200, "application/json", json.dumps(answer, separators=(",", ":")).encode() + b"\n"


def _requests(stream: Any) -> Iterator[tuple[str, list[tuple[str, str]], bytes]]:
    """Yield the requests of one connection: request line, headers unchanged, body by Content-Length."""
    while first := stream.readline():
        headers: list[tuple[str, str]] = []
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").rstrip("\r\n").partition(": ")
            headers.append((name, value))
        length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
        yield first.decode("latin-1").strip(), headers, stream.read(length)
