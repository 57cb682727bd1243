"""Access to the node on this machine over its local socket. Most commands use it, so it imports nothing slow."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import BinaryIO

from eventd.cli.gateway.api_gateway import REQUEST_SECONDS, ApiGateway, NodeGone
from eventd.cli.gateway.serving_file import lock_file, read_serving_file
from eventd.errors import Unavailable
from eventd.net.local_socket import DATABASE_HEADER, NAME, ROOT, Peer, SocketFolder, SocketProblem, SocketUnusable
from eventd.settings.location import NodeLocation

HELLO_SECONDS = 2.0
"""Seconds that a node may take to show that it serves the right database; after that, the database is opened
directly."""
SERVER = "http://localhost"
_RESTART = "unless its setting local_socket is off on purpose, restart the node with local_socket = true"
_MOST_LINE_BYTES = 64 << 10
_MOST_HEADERS = 256


class _Broken(Exception):
    """The connection has ended, or the received bytes are not an HTTP answer."""


class HttpConnection:
    """One persistent HTTP connection over a connected Unix socket, for one request at a time."""

    def __init__(self, connected: socket.socket, headers: dict[str, str]) -> None:
        lines = {"Host": "localhost", "Accept": "application/json", **headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._socket = connected
        self._reader: BinaryIO = connected.makefile("rb")
        self._is_last = False

    def is_open(self) -> bool:
        """Return whether another request can be sent: the node has not closed the connection, as when it stops."""
        if self._is_last:
            return False
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False  # closed, or an answer that was not asked for

    def ask(self, method: str, target: str, body: bytes | None, seconds: float, most: int) -> tuple[int, bytes]:
        """Return the status and the body of the answer, of which at most one byte more than `most` is read.

        Raises `_Broken` and OSError, after which the connection must not be used again.
        """
        self._is_last = True  # until the answer is complete
        self._socket.settimeout(seconds)
        content = "" if body is None else f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._socket.sendall(f"{method} {target} HTTP/1.1\r\n{self._headers}{content}\r\n".encode() + (body or b""))
        first = self._line().split(b" ", 2)
        if len(first) < 2 or not first[0].startswith(b"HTTP/1.") or not first[1].isdigit():
            raise _Broken("not an answer in HTTP")
        size, is_last = self._read_head()
        answer = self._reader.read(min(size, most + 1))
        if len(answer) < min(size, most + 1):
            raise _Broken("the answer is incomplete")
        self._is_last = is_last or size > most
        return int(first[1]), answer

    def _read_head(self) -> tuple[int, bool]:
        """Read the headers of an answer; return the length of its body, and whether the connection ends with it."""
        size, is_last = b"", False
        for _ in range(_MOST_HEADERS):
            line = self._line()
            if not line:
                break
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = value.strip()
            is_last |= name.lower() == b"connection" and value.strip().lower() == b"close"
        if not size.isdigit():
            raise _Broken("the answer has no length")
        return int(size), is_last

    def _line(self) -> bytes:
        line = self._reader.readline(_MOST_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise _Broken("the node closed the connection")
        return line.rstrip(b"\r\n")

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


class SocketGateway(ApiGateway):
    """Runs operations over the API of the node that listens at the local socket in a folder, without a key."""

    def __init__(self, folder: SocketFolder, connection: HttpConnection, headers: dict[str, str], process: str) -> None:
        self.server = f"{folder.path}/{NAME}"
        self.headers = headers
        """Headers of every request, by which a node with another database refuses it."""
        self._process = process
        self._folder = folder
        self._connection = connection

    @property
    def address(self) -> Path:
        """Return the address of the socket for further connections, until `close`."""
        return Path(self._folder.address(NAME))

    def exchange(self, method: str, target: str, body: bytes | None, most: int) -> tuple[int, bytes]:
        if not self._connection.is_open():
            raise NodeGone(f"the node at {self.server} closed the connection")
        try:
            return self._connection.ask(method, target, body, REQUEST_SECONDS, most)
        except (OSError, _Broken) as error:
            is_late = isinstance(error, TimeoutError)
            words = f"no answer within {REQUEST_SECONDS:g} s" if is_late else getattr(error, "strerror", None) or error
            kind = NodeGone if method == "GET" and not is_late else Unavailable
            hint = "check that it runs; a change that was requested may have been made"
            raise kind(f"the node at {self.server} did not answer: {words}", hint=hint) from None

    def serving(self) -> str:
        return self._process

    async def close(self) -> None:
        self._connection.close()
        self._folder.close()


def find_node(location: NodeLocation) -> tuple[SocketGateway | None, SocketProblem | None]:
    """Return access to the node at a location, and an empty reason; without a usable socket, None and the reason."""
    problem: SocketProblem | None = None
    for path in location.folders:
        try:
            return _open(path, location), None
        except SocketUnusable as error:
            problem = problem or error.problem
    return None, problem


def _open(path: Path, location: NodeLocation) -> SocketGateway:
    """Return access to the node whose socket is in a folder. Raises `SocketUnusable` if there is none."""
    user = os.geteuid()
    folder = SocketFolder(path, owners=None if user == ROOT else (user, ROOT))
    try:
        found = folder.connect()
        if found is None:
            raise SocketUnusable(f"no node listens at {path / NAME}", _RESTART)
        headers = {DATABASE_HEADER: location.identity}
        connection = HttpConnection(found[0], headers)
        try:
            _greet(connection, path / NAME)
        except BaseException:
            connection.close()
            raise
        return SocketGateway(folder, connection, headers, _process(found[1], location))
    except BaseException:
        folder.close()
        raise


def _greet(connection: HttpConnection, shown: Path) -> None:
    """Ask the node whether it serves the right database. Raises `SocketUnusable` unless it confirms that in time."""
    try:
        status, _ = connection.ask("GET", "/healthz", None, HELLO_SECONDS, _MOST_LINE_BYTES)
    except (OSError, _Broken) as error:
        raise SocketUnusable(f"the node at {shown} does not answer: {error}", "restart the node") from None
    if status == 421:
        raise SocketUnusable(f"the node at {shown} serves another database", "give each node a data_dir of its own")
    if status != 200:
        raise SocketUnusable(f"the node at {shown} answers with HTTP status {status}", "see the node's log")


def _process(peer: Peer, location: NodeLocation) -> str:
    """Return the id of the node's process: of several processes, the socket shows that of a worker."""
    serving = read_serving_file(lock_file(location.file)) if location.file else None
    return (serving.process if serving else "") or str(peer.process)
