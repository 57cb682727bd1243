"""A TCP proxy that can fall silent: it then forwards nothing in either direction and closes nothing, like a
dead link."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator


class SilentProxy:
    """Forwards connections from `port` to a port of this machine, except while `silent` is set."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.silent = threading.Event()
        self._end, self._ended = socket.socketpair()
        self._ways: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run, name="silent proxy")

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listening, selectors.EVENT_READ)
            ready.register(self._ended, selectors.EVENT_READ)
            while True:
                if silent := self.silent.is_set():
                    time.sleep(0.02)  # what waits is not read, so `select` would report it again and again
                for key, _ in ready.select(0 if silent else None):
                    if key.fileobj is self._ended:
                        return
                    if self.silent.is_set():
                        continue
                    if key.fileobj is self._listening:
                        self._accept(ready)
                    elif isinstance(key.fileobj, socket.socket):
                        self._forward(ready, key.fileobj)

    def _accept(self, ready: selectors.BaseSelector) -> None:
        here, _ = self._listening.accept()
        there = socket.create_connection(("127.0.0.1", self._target))
        for one, other in ((here, there), (there, here)):
            self._ways[one] = other
            ready.register(one, selectors.EVENT_READ)

    def _forward(self, ready: selectors.BaseSelector, one: socket.socket) -> None:
        other = self._ways.get(one)
        if other is None:
            return
        chunk = b""
        with contextlib.suppress(OSError):
            chunk = one.recv(1 << 16)
            other.sendall(chunk)
        if not chunk:
            for each in (one, other):
                ready.unregister(each)
                del self._ways[each]
                each.close()

    def start(self) -> None:
        """Start to forward."""
        self._thread.start()

    def close(self) -> None:
        """Close every connection."""
        self._end.close()
        self._thread.join(10)
        for each in (*self._ways, self._listening, self._ended):
            each.close()


@contextlib.contextmanager
def silent_proxy(target: int) -> Iterator[SilentProxy]:
    """Yield a proxy in front of a port of this machine."""
    proxy = SilentProxy(target)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
