"""A receiver of callbacks in a thread, for tests of processes: it records requests, and can lose its answers."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOSE = 0
"""Instead of a status: record the request, and close the connection without an answer."""


@dataclass(frozen=True)
class Call:
    """One request, and the status that it was answered with (`LOSE`: none)."""

    id: str
    body: bytes
    headers: dict[str, str]
    status: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        content = self.json
        return [one.get("id") or one["url"] for one in (content if isinstance(content, list) else [content])]


class ReceiverThread:
    """Listens on a port of the loopback interface. `answer` returns the status for the number of a request, from 0.

    Messages with an id in `refused` are answered with 400.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.answer: Callable[[int], int] = lambda _: 204
        self.calls: list[Call] = []
        self.refused: set[str] = set()
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    def start(self) -> ReceiverThread:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = receiver.take(body, {name.lower(): value for name, value in self.headers.items()})
                if status == LOSE:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Keep the test's output to what it says itself."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        with self._lock:
            refused = headers["webhook-id"] in self.refused
            status = 400 if refused else self.answer(len(self.calls))
            self.calls.append(Call(headers["webhook-id"], body, headers, status))
            return status

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}/hooks"

    @property
    def accepted(self) -> list[Call]:
        """The requests that were answered with 2xx."""
        with self._lock:
            return [call for call in self.calls if 200 <= call.status < 300]

    def first_seen(self) -> list[str]:
        """The ids of events in the order in which they arrived for the first time."""
        with self._lock:
            return list(dict.fromkeys(id for call in self.calls for id in call.events))
