"""A receiver that is as strict as the drains of Routemaster: it reads requests byte by byte, and answers as they do."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

MOST_HEAD = 16 << 10


class DrainRequest(NamedTuple):
    """A request as its bytes say, and the status that it was answered with."""

    line: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    status: int

    @property
    def names(self) -> list[str]:
        """The names of the headers, as they were written and in their order."""
        return [name for name, _ in self.headers]

    def header(self, name: str) -> str:
        """Return the value of the only header that is written in exactly this way."""
        [value] = [value for found, value in self.headers if found == name]
        return value

    @property
    def urls(self) -> list[str]:
        return [event["url"] for event in json.loads(self.body)]


@dataclass
class DrainRules:
    """What a drain accepts: the path that it is mounted at, its methods, its users, and what its application does.

    `handle` gets each event; an error of it is a 500 for the whole batch. `always`: the answer to every request that
    arrives at the right place with the right user, as if none had the right form.
    """

    path: str = "/hooks/"
    methods: tuple[str, ...] = ("POST",)
    users: tuple[str, ...] = ("demo",)
    always: int = 0
    handle: Callable[[dict[str, Any]], None] = lambda event: None


class StrictDrain:
    """Listens over TLS on a port of the loopback interface; `rules` may be replaced at any time."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.rules = DrainRules()
        self.requests: list[DrainRequest] = []
        self.broken: list[str] = []
        """What was not HTTP/1.1 as a drain's server reads it."""
        self._context = context
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def stop(self) -> None:
        for one in (self._server, *self._connections):
            with contextlib.suppress(OSError):  # it is closed
                one.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(10)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}{DrainRules.path}"

    @property
    def accepted(self) -> list[DrainRequest]:
        return [one for one in self.requests if one.status == 204]

    @property
    def urls(self) -> list[str]:
        """The URLs of all events that the application has handled, in order."""
        return [url for one in self.accepted for url in one.urls]

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._server.accept()
            except OSError:  # it is stopped
                return
            thread = threading.Thread(target=self._serve, args=(plain,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        try:
            with self._context.wrap_socket(plain, server_side=True) as connection:
                self._connections.append(connection)
                held = b""
                while True:
                    held = self._serve_one(connection, held)
        except (OSError, EOFError):
            return
        except ValueError as error:
            self.broken.append(str(error))

    def _serve_one(self, connection: ssl.SSLSocket, held: bytes) -> bytes:
        """Read one request and answer it; return what follows it."""
        while b"\r\n\r\n" not in held:
            held += _receive(connection)
            if len(held) > MOST_HEAD:
                raise ValueError("a head without an end")
        head, held = held.split(b"\r\n\r\n", 1)
        line, *lines = head.decode("ascii").split("\r\n")
        headers = tuple(_header(one) for one in lines)
        lengths = [value for name, value in headers if name == "Content-Length"]
        if len(lengths) != 1 or any(name.lower() == "transfer-encoding" for name, _ in headers):
            raise ValueError(f"the body has no length of its own: {headers}")
        while len(held) < int(lengths[0]):
            held += _receive(connection)
        body, held = held[: int(lengths[0])], held[int(lengths[0]) :]
        request = DrainRequest(line, headers, body, 0)
        request = request._replace(status=self._judge(request))
        self.requests.append(request)
        close = b"" if request.status == 204 else b"Content-Length: 0\r\n"
        connection.sendall(f"HTTP/1.1 {request.status} X\r\n".encode() + close + b"\r\n")
        return held

    def _judge(self, request: DrainRequest) -> int:
        rules = self.rules
        method, path, version = request.line.split(" ")
        if version != "HTTP/1.1":
            raise ValueError(request.line)
        if path != rules.path:
            return 404
        if method not in rules.methods:
            return 405
        found = [value for name, value in request.headers if name == "Authorization"]
        if not found:
            return 401
        if found[0] not in [f"Basic {base64.b64encode(f'{user}:x'.encode()).decode()}" for user in rules.users]:
            return 403
        if rules.always:
            return rules.always
        if request.header("Content-Type") != "application/json":
            return 415
        if not _is_batch(request.body):
            return 400
        try:
            for event in json.loads(request.body):
                rules.handle(event)
        except RuntimeError:
            return 500
        return 204


def _receive(connection: ssl.SSLSocket) -> bytes:
    found = connection.recv(65536)
    if not found:
        raise EOFError
    return found


def _header(line: str) -> tuple[str, str]:
    name, mark, value = line.partition(": ")
    if not mark or name != name.strip() or value != value.strip():
        raise ValueError(f"not a header: {line!r}")
    return name, value


def _is_batch(body: bytes) -> bool:
    """Whether a body is an array of events with these members in this order, none of them null, and not empty."""
    batch = json.loads(body, object_pairs_hook=lambda pairs: pairs)
    members = ["topic", "type", "url", "t"]
    return bool(batch) and all(
        [name for name, _ in event] in (members, [*members, "data"])
        and all(value is not None for _, value in event)
        and all(isinstance(value, str) for _, value in event[:3])
        and type(event[3][1]) in (int, float)
        for event in batch
    )
